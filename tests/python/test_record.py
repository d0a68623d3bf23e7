"""A recorder's lines are judged alike in its process and by the program; an engine that slips is found."""

import json
import os
import subprocess
import sys
import types

import engine
import pytest
import torch

import shadowgraph as sg

BATCH = {"keys": [[8, 9, 10], [4]], "q_lens": [1, 1], "page_size": 2, "pool_pages": 8}
RIGHT = {"kv_lens": [3, 1], "page_table": [[4, 5], [2, 0]], "slots": [10, 4], "last_page_len": [1, 1]}


def checked(path):
    """The exit code and the ids of `shadowgraph check`."""
    command = [sys.executable, "-m", "shadowgraph", "check", str(path), "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.returncode, [f["id"] for f in json.loads(run.stdout)["findings"]]


# SGLang's older method is not told the slots, so it cannot keep those of padding.
SLIPS = [(p, older) for older in (False, True) for p in (None, *engine.PLANTS) if not (older and p == "old_padding_slots")]


@pytest.mark.parametrize(("plant", "older"), SLIPS)
def test_slips_of_an_engine_are_found_and_a_right_one_is_silent(plant, older, tmp_path, monkeypatch):
    engine.imported(monkeypatch)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        engine.Engine(plant, older).serve()
    found = {f.id for f in rec.report.findings}
    assert rec.steps == 4, rec.summary()
    assert engine.PLANTS[plant] in found if plant else not found, rec.report
    code, ids = checked(tmp_path / "steps.jsonl")
    assert code == bool(plant) and set(ids) == found
    assert "init_forward_metadata" in engine.PagedBackend.__dict__ and not hasattr(
        engine.PagedBackend.init_forward_metadata, "__wrapped__"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("plant", [None, *engine.PLANTS])
def test_on_a_gpu_a_replay_is_judged_by_what_its_graph_read(plant, tmp_path, monkeypatch):
    engine.imported(monkeypatch)
    with torch.device("cuda"), sg.record(tmp_path / "steps.jsonl") as rec:
        whole = engine.Engine(plant)
        read, graph = whole.backend.buffers.cache_seqlens_int32, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            read + 1
        whole.add(), whole.add(), whole.add()
        for step in range(4):
            whole.step(graph=True)
            graph.replay()
            read.fill_(77)  # what comes next is not seen
            if step == 1:
                whole.lens.pop(0)
                whole.pool.req_to_token.copy_(whole.pool.req_to_token.roll(-1, 0))
        whole.step()
    found = {f.id for f in rec.report.findings}
    assert rec.steps == 5, rec.summary()
    assert engine.PLANTS[plant] in found if plant else not found, rec.report


def test_own_steps_are_judged_and_written(tmp_path):
    path = tmp_path / "steps-%p.jsonl"
    with sg.record(path) as rec:
        batch = sg.Batch.from_slots("decode", **BATCH)
        assert rec.step(batch, **RIGHT).ok
        arrays = RIGHT | {"kv_lens": torch.tensor([3, 2]), "page_table": [[8, 9, 10], [4, 0, 0]]}
        report = rec.step(batch, units={"page_table": 1}, names={"kv_lens": "seqlens"}, id="wrong", **arrays)
    assert [(f.id, f.field) for f in report.findings] == [("len.kv_extent", "seqlens")]
    assert (rec.steps, rec.failed) == (2, 1) and [f.id for f in rec.report.findings] == ["len.kv_extent"]
    assert "wrong" in rec.report.to("text")
    written = tmp_path / f"steps-{os.getpid()}.jsonl"
    assert len(written.read_text().splitlines()) == 2
    assert checked(written) == (1, ["len.kv_extent"])


def test_large_arrays_are_written_as_bytes(tmp_path):
    slots = list(range(2, 302))
    with sg.record(tmp_path / "steps.jsonl") as rec:
        batch = sg.Batch.from_slots("decode", [slots], [1], page_size=2)
        assert rec.step(batch, kv_lens=[300], page_table=[[s // 2 for s in slots[::2]]]).ok, rec.summary()
    assert '"b64":"' in (tmp_path / "steps.jsonl").read_text()
    assert checked(tmp_path / "steps.jsonl") == (0, [])


def test_nothing_is_raised_and_what_is_not_recorded_is_said(tmp_path):
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "no" / "folder" / "steps.jsonl") as rec:
        unwritten = rec.step(batch, **RIGHT)
        odd = rec.step(batch, kv_lens=object(), id="odd")
    assert [f.id for f in unwritten.findings + odd.findings] == ["skip.bad_input"] * 2 and "No such file" in str(unwritten)
    assert rec.steps == 0 and "No such file" in rec.skipped["step0"] and "kv_lens" in rec.skipped["odd"]
    assert "not recorded: odd" in rec.summary() and "vllm" in rec.skipped


def test_every_third_step(tmp_path):
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "steps.jsonl", every=3) as rec:
        assert [not rec.step(batch, **RIGHT).not_judged for _ in range(7)] == [True, False, False, True, False, False, True]
    with pytest.raises(ValueError, match="every is 0"):
        sg.record(tmp_path / "steps.jsonl", every=0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12, of any thread
def test_a_forked_process_has_a_file_of_its_own(tmp_path):
    batch = sg.Batch.from_slots("decode", **BATCH)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        rec.step(batch, **RIGHT)
        child = os.fork()
        if child == 0:
            rec.step(batch, **RIGHT)
            os._exit(0)
        os.waitpid(child, 0)
    assert {p.name for p in tmp_path.iterdir()} == {"steps.jsonl", f"steps.jsonl.{child}"}
    assert all(len(p.read_text().splitlines()) == 1 for p in tmp_path.iterdir())


def test_vllms_builders_are_recorded(tmp_path, monkeypatch):
    class AttentionMetadataBuilder:
        kv_cache_spec = types.SimpleNamespace(block_size=2)

        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
            raise NotImplementedError

    class Builder(AttentionMetadataBuilder):
        off = 0

        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
            c = common_attn_metadata
            return types.SimpleNamespace(
                seq_lens=c.seq_lens + self.off, block_table=c.block_table_tensor, slot_mapping=c.slot_mapping,
                query_start_loc=c.query_start_loc, max_query_len=1,
            )

    module = types.ModuleType("vllm.v1.attention.backend")
    module.AttentionMetadataBuilder = AttentionMetadataBuilder
    monkeypatch.setitem(sys.modules, module.__name__, module)
    common = types.SimpleNamespace(
        query_start_loc=torch.tensor([0, 1, 2]), seq_lens=torch.tensor([3, 1]),
        block_table_tensor=torch.tensor([[4, 5], [2, 0]]), slot_mapping=torch.tensor([10, 4]),
    )
    with sg.record(tmp_path / "steps.jsonl") as rec:
        Builder().build(0, common)
        assert rec.steps == 1 and rec.report.ok, rec.summary()
        Builder.off = -1
        Builder().build(0, common)
    assert [f.id for f in rec.report.findings] == ["len.kv_extent"]
    assert "sglang" in rec.skipped


def test_the_entry_point_records_where_it_is_asked_to(tmp_path):
    code = "from shadowgraph.plugin import start; import sys; start(); print('shadowgraph.recorder' in sys.modules)"
    for environment, loaded in (({}, "False"), ({"SHADOWGRAPH_RECORD": str(tmp_path / "new")}, "True")):
        run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == loaded
    assert "0 steps recorded and judged" in run.stderr


def test_the_doctor_says_what_is_there():
    run = subprocess.run([sys.executable, "-m", "shadowgraph", "doctor"], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["flashinfer: not installed", "sglang: not installed", "vllm: not installed"]


def test_the_help_of_the_wheel_has_the_doctor():
    run = subprocess.run([sys.executable, "-m", "shadowgraph", "--help"], capture_output=True, text=True, check=True)
    assert "Subcommands:" in run.stdout and "  doctor  " in run.stdout


def test_a_backend_of_others_is_seen_as_those_and_what_nobody_knows_is_passed_over(tmp_path, monkeypatch):
    engine.imported(monkeypatch)
    whole = engine.Engine()

    class Hybrid(engine.AttentionBackend):
        def init_forward_metadata(self, forward_batch):
            whole.backend.init_forward_metadata(forward_batch)

    batches = []
    monkeypatch.setattr(engine.PagedBackend, "build", lambda self, b, build=engine.PagedBackend.build: batches.append(b) or build(self, b))
    with sg.record(tmp_path / "steps.jsonl") as rec:
        whole.add()
        whole.step()
        Hybrid().init_forward_metadata(batches[0])
        assert rec.steps == 2 and rec.report.ok
        assert "no attribute 'forward_metadata'" in rec.skipped["Hybrid.init_forward_metadata"]
        batches[0].spec_info = object()
        whole.backend.init_forward_metadata(batches[0])
        whole.backend.init_forward_metadata_out_graph(batches[0], in_capture=True)
    assert rec.steps == 2 and "lengths count" in rec.skipped["sglang draft_decode"]


def test_a_step_is_called_by_any_id(tmp_path):
    with sg.record(tmp_path / "steps.jsonl") as rec:
        batch = sg.Batch.from_slots("decode", **BATCH)
        for id in (0, "", None, (1, 2)):
            rec.step(batch, id=id, kv_lens=[3, 2])
        assert "TypeError" in rec.step(batch, id=5, kv_lens=[object()]).findings[0].text
    told = [str(f).partition(":")[2].split(":")[0].strip() for f in rec.report.findings]
    assert told == ["0", "step1", "step2", "(1, 2)"]
    assert list(rec.skipped)[-1] == "5"


def test_a_plan_that_nobody_saw_is_told_and_our_own_wrappers_are_seen(tmp_path):
    import shadowgraph.flashinfer as flashinfer

    wrapper, lists = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None), [torch.tensor(n) for n in ([0, 2, 3], [4, 5, 2], [1, 1])]
    with sg.record(tmp_path / "steps.jsonl") as rec:
        assert rec.planned(wrapper) == rec.planned("x") == rec.planned({}) == {}
        wrapper.plan(*lists, 1, 1, 4, 2)
        assert rec.planned(wrapper).keys() == {"kv_indptr", "kv_indices", "last_page_len"}
    told = {name for name, why in rec.skipped.items() if "no plan of it was seen" in why}
    assert told == {"planned(BatchDecodeWithPagedKVCacheWrapper)", "planned(str)", "planned(dict)"}
