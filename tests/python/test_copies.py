"""Arrays of a device are copied in its stream's order, and judged when they have arrived; nothing waits for them."""

import os
import threading

import pytest
import torch

import shadowgraph as sg
import shadowgraph.torch
from shadowgraph import _copies

BATCH = {"keys": [[8, 9, 10], [4]], "q_lens": [1, 1], "page_size": 2, "pool_pages": 8}


class Device(torch.Tensor):
    """A tensor that says of itself that it lies on a device."""

    is_cpu = False


def on_device(values):
    return torch.tensor(values, dtype=torch.int32).as_subclass(Device)


class Event:
    """Reached when the test says so."""

    reached = threading.Event()

    def __init__(self, blocking):
        assert blocking  # no spinning

    def record(self, stream):
        assert stream == "current"

    def synchronize(self):
        assert Event.reached.wait(10)


@pytest.fixture
def device(monkeypatch):
    Event.reached = threading.Event()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
    monkeypatch.setattr(_copies, "_pinned", lambda size: torch.empty(size, dtype=torch.uint8))
    return Event.reached


def test_a_step_is_judged_when_its_copy_has_arrived_by_what_lay_there_then(tmp_path, device):
    batch = sg.Batch.from_slots("decode", **BATCH)
    lens, table = on_device([3, 2]), on_device([[4, 5], [2, 0]])
    with sg.record(tmp_path / "steps.jsonl", every=1) as rec:
        assert "on a device" in rec.step(batch, kv_lens=lens, page_table=table, max_seqlen_k=3).not_judged
        lens[1] = 1  # the next step's, already
        assert rec.step(batch, kv_lens=lens, page_table=table.t().contiguous().t()).ok
        assert rec.steps == 0
        device.set()
        rec.wait()
        assert (rec.steps, rec.failed, rec.skipped.get("step0")) == (2, 1, None)
    assert [(f.id, f.field) for f in rec.report.findings] == [("len.kv_extent", "kv_lens")]
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 2
    assert "shadowgraph copies" not in [thread.name for thread in threading.enumerate()]


def test_a_step_that_finds_all_memory_taken_is_passed_over(tmp_path, device, monkeypatch):
    monkeypatch.setattr(_copies, "_SLOTS", 2)
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        for _ in range(3):
            rec.step(batch, kv_lens=on_device([3, 1]))
        device.set()
        rec.wait()
        rec.step(batch, kv_lens=on_device([3, 1]), page_table=on_device([[4, 5], [2, 0]]))  # memory is used again, and grows
    assert rec.steps == 3 and "waiting for their copies" in rec.skipped["step2"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12, of any thread
def test_a_forked_process_has_a_thread_of_its_own(tmp_path, device):
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        rec.step(batch, kv_lens=on_device([3, 1]))  # under way when the process forks
        child = os.fork()
        if child == 0:
            device.set()
            rec.step(batch, kv_lens=on_device([3, 1]))
            rec.wait()
            os._exit(rec.steps)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        device.set()
    assert rec.steps == 1


def test_a_copy_that_does_not_arrive_is_said_and_the_next_one_does(tmp_path, device, monkeypatch):
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "steps.jsonl") as rec, monkeypatch.context() as broken:
        broken.setattr(Event, "synchronize", lambda event: 1 / 0)
        rec.step(batch, kv_lens=on_device([3, 1]))
        rec.wait()
        broken.undo(), device.set()
        rec.step(batch, kv_lens=on_device([3, 1]))
    assert rec.steps == 1 and "division" in rec.skipped["a copy"]


def test_what_cannot_be_judged_is_said_by_the_thread_too(tmp_path, device):
    device.set()
    with sg.record(tmp_path / "no" / "steps.jsonl") as rec:
        rec.step(sg.Batch.from_slots("decode", **BATCH), kv_lens=on_device([3, 1]))
    assert rec.steps == 0 and "No such file" in rec.skipped["step0"]


def test_of_a_device_every_sixteenth_step_is_recorded_and_under_pytest_all(tmp_path, device, monkeypatch):
    device.set()
    batch = sg.Batch.from_slots("decode", **BATCH)

    def steps():
        with sg.record(tmp_path / "steps.jsonl") as rec:
            for _ in range(17):
                rec.step(batch, kv_lens=on_device([3, 1]))
                rec.wait()
        return rec.steps

    assert steps() == 17
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert steps() == 2


def test_nothing_is_copied_while_a_graph_is_captured(tmp_path, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        rec.step(sg.Batch.from_slots("decode", **BATCH), kv_lens=on_device([3, 1]))
    assert rec.steps == 0


def test_a_capture_begins_when_no_copy_is_under_way_and_none_is_taken_during_it(tmp_path, device, monkeypatch):
    batch, lens = sg.Batch.from_slots("decode", **BATCH), on_device([3, 1])
    with shadowgraph.torch.cpu_graphs(), sg.record(tmp_path / "steps.jsonl") as rec:
        monkeypatch.setattr(torch.cuda, "Event", Event)  # cpu_graphs has events of its own
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
        rec.step(batch, kv_lens=lens)
        begins = threading.Thread(target=rec.capture_begins)
        begins.start(), begins.join(0.2)
        assert begins.is_alive()  # it waits
        device.set()
        begins.join(), rec.capture_ends()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        assert rec.steps == 1
        other = threading.Thread(target=rec.step, args=(batch,), kwargs={"kv_lens": lens})
        other.start(), other.join()
        with pytest.raises(RuntimeError, match="underway"):
            torch.cuda.CUDAGraph().capture_begin()
        graph.capture_end()
        rec.wait()
        assert rec.steps == 1
        rec.step(batch, kv_lens=lens)
    assert rec.steps == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_capture_is_not_broken_by_copies(tmp_path):
    batch = sg.Batch.from_slots("decode", **BATCH)
    lens, busy = torch.tensor([3, 1], dtype=torch.int32, device="cuda"), torch.randn(4096, 4096, device="cuda")
    with sg.record(tmp_path / "steps.jsonl") as rec:
        for _ in range(5):
            for _ in range(50):
                busy @ busy
            rec.step(batch, kv_lens=lens)
            graph, moved = torch.cuda.CUDAGraph(), torch.zeros_like(lens)
            with torch.cuda.graph(graph):
                moved.copy_(lens)
                rec.step(batch, kv_lens=lens)
            graph.replay()
    assert (rec.steps, rec.failed) == (5, 0) and moved.tolist() == [3, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_copy_holds_what_lay_there_in_the_streams_order(tmp_path):
    batch = sg.Batch.from_slots("decode", **BATCH)
    lens = torch.tensor([3, 1], dtype=torch.int32, device="cuda")
    graph, moved = torch.cuda.CUDAGraph(), torch.zeros_like(lens)
    with torch.cuda.graph(graph):
        moved.copy_(lens)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        for n in (3, 2, 3):
            lens[0] = n
            graph.replay()
            rec.step(batch, "replay", kv_lens=moved)
    assert (rec.steps, rec.failed) == (3, 1), rec.summary()
