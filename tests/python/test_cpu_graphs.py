"""torch.cuda.CUDAGraph over CPU tensors, with drop-ins as its kernels."""

import subprocess
import sys

import problems
import pytest
import torch
from pools import DIM, HEADS, KV_HEADS, PAGE, Pool, drawn

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer
from shadowgraph import store_kv
from shadowgraph._cpu_graphs import cpu_graphs


@pytest.fixture(autouse=True)
def graphs():
    with cpu_graphs():
        yield


def captured(body):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle(), stream=torch.cuda.Stream()):
        assert torch.cuda.is_current_stream_capturing()
        made = body()
    assert not torch.cuda.is_current_stream_capturing()
    return graph, made


def test_a_capture_computes_nothing_and_a_replay_reads_what_lies_there():
    x, y = torch.ones(3), torch.zeros(3)

    def body():
        y.copy_((x + 1) * 2)
        return y

    graph, _ = captured(body)
    assert not y.any()
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert (y == (value + 1) * 2).all()


def test_addresses_are_those_of_the_capture():
    x = torch.ones(3)
    graph, y = captured(lambda: x * 2)
    before = y.data_ptr()
    x.fill_(4)
    graph.replay()
    assert (y == 8).all() and y.data_ptr() == before
    x = torch.zeros(3)  # another tensor: the graph does not see it
    graph.replay()
    assert (y == 8).all()


def test_views_and_writes_into_new_tensors_are_replayed_in_order():
    x = torch.arange(6.0)

    def body():
        fresh = torch.zeros(6)
        part = fresh.view(2, 3)[1]
        part += x[:3]
        fresh[0] = x.sum()
        low, index = torch.max(fresh.view(2, 3), dim=1)
        return fresh, torch.add(x, 1, out=torch.empty(6)), low, index

    graph, (fresh, out, low, index) = captured(body)
    for _ in range(2):  # zeros are made again
        graph.replay()
        assert fresh.tolist() == [15, 0, 0, 0, 1, 2] and out.tolist() == [1, 2, 3, 4, 5, 6]
        assert low.tolist() == [15, 2] and index.tolist() == [0, 2]


def test_tensors_of_inference_mode_are_captured_too():
    with torch.inference_mode():
        x, y = torch.ones(4), torch.zeros(4)

        def body():
            low, high = x.view(2, 2).chunk(2)
            y[:2] = (low * 2).view(-1)
            y[2:].add_(high.view(-1))

        graph, _ = captured(body)
        assert not y.any()
    graph.replay()
    assert y.tolist() == [2, 2, 1, 1]


def test_an_engine_whose_inference_mode_is_replaced_is_captured_too(monkeypatch):
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # what runs it where torch cannot trace inference tensors
    x = torch.ones(3)
    graph, y = captured(lambda: x + 1)
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5, 5, 5]


def test_a_drop_in_is_a_node():
    lens = [7, 3, 4, 9]
    pool, q = Pool(lens), drawn(4, HEADS, DIM)
    eager = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    buffers = torch.zeros(5).int(), torch.zeros(12).int(), torch.zeros(4).int()
    wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *buffers)
    one = Pool([1] * 4)
    wrapper._int_workspace_buffer = eager._int_workspace_buffer  # engines share it
    wrapper.plan(*one.lists, HEADS, KV_HEADS, DIM, PAGE)
    k, v = drawn(4, KV_HEADS, DIM, seed=7), drawn(4, KV_HEADS, DIM, seed=8)

    def body():
        rows, places = flashinfer.get_batch_indices_positions(torch.arange(5).int(), pool.seq_lens, 4)
        flashinfer.append_paged_kv_cache(k * 2, v, rows, places, pool.kv, *buffers[1::-1], buffers[2])
        return wrapper.run(q + 1, pool.kv, return_lse=True)

    before = pool.k.clone()
    graph, (out, lse) = captured(body)
    assert torch.equal(pool.k.nan_to_num(), before.nan_to_num())
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    graph.replay()
    assert torch.equal(pool.k[pool.indices[1], 2], k[0] * 2)
    eager.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    want = eager.run(q + 1, pool.kv, return_lse=True)
    assert torch.equal(out, want[0]) and torch.equal(lse, want[1])
    pool.indices[0] = 99  # and a replay refuses what is wrong then
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    with pytest.raises(sg.ShadowgraphError, match="table.page_id: indices"):
        graph.replay()


def of_torch(call):
    tensor = lambda x: torch.from_numpy(x.copy()) if hasattr(x, "dtype") else x
    return {name: tuple(map(tensor, x)) if isinstance(x, tuple) else tensor(x) for name, x in call.items()}


@pytest.mark.parametrize("lse", [True, False])
@pytest.mark.parametrize("call", [problems.paged, problems.ragged])
def test_calls_of_the_engine_are_nodes(call, lse):
    given = of_torch(call())
    attend = sg.paged_attention if "cache" in given else sg.ragged_attention
    want, right = attend(**given, lse=True), given["cu_seqlens_q"].clone()
    given["cu_seqlens_q"].fill_(-1)  # which is read at a replay
    rest = {name: value for name, value in given.items() if name != "q"}
    graph, made = captured(lambda: attend(given["q"], **rest, lse=lse))
    out = made[0] if lse else made
    with pytest.raises(sg.ShadowgraphError, match="cu_seqlens_q"):
        graph.replay()
    given["cu_seqlens_q"].copy_(right)
    for sign in (1, -1):
        given["q"].mul_(sign)
        graph.replay()
        assert torch.equal(out, want[0]) == (sign == 1) and (not lse or torch.equal(made[1], want[1]) == (sign == 1))


def test_stores_copies_and_merges_are_nodes_wherever_a_module_names_them():
    cache, other = (torch.zeros(2, 2, 1, 4), torch.zeros(2, 2, 1, 4)), (torch.zeros(2, 2, 1, 4), torch.zeros(2, 2, 1, 4))
    k, s, slots = torch.ones(1, 1, 4), torch.zeros(1, 2, 1), torch.tensor([3])

    def body():
        assert store_kv(k, k, slots, cache) is None and sg.copy_kv(cache, other) is None
        return sg.merge_states(k[:, None].expand(1, 2, 1, 4), s, lse=True)

    graph, (out, lse) = captured(body)
    assert not cache[0].any() and not other[0].any()
    k.fill_(2)
    graph.replay()
    assert cache[0][1, 1].tolist() == [[2] * 4] and torch.equal(other[1], cache[1])
    assert out.tolist() == [[[2] * 4]] and torch.equal(lse, torch.full((1, 1), 2.0).log())
    assert sg.opcheck(lambda **call: sg.paged_attention(**call, lse=True), [decode()], checks=["graph"]) == {"graph": "passed"}


def decode():
    given = of_torch(problems.paged())
    return sg.paged(given["q"][:2], given["cache"], (given["page_table"], given["cache_seqlens"]))


def test_a_graph_is_captured_once_and_replayed_when_it_is_there():
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="nothing is captured"):
        graph.replay()
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(graph):
        1 / 0
    assert sg.launcher.get()(lambda: 3) == 3
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="underway already"):
            torch.cuda.CUDAGraph().capture_begin()
        with pytest.raises(RuntimeError, match="nothing is captured"):
            graph.replay()
    with pytest.raises(RuntimeError, match="holds a graph already"):
        graph.capture_begin()
    graph.reset()
    graph.capture_begin(pool=graph.pool())
    graph.capture_end()
    graph.replay()
    with pytest.raises(RuntimeError, match="no capture of it"):
        graph.capture_end()


def test_a_shape_that_follows_values_is_refused_where_it_changes():
    x = torch.tensor([1.0, 0.0, 2.0])
    graph, _ = captured(lambda: x.nonzero())
    graph.replay()
    x.fill_(1.0)
    with pytest.raises(RuntimeError, match=r"nonzero: shape \[3, 1\] at a replay, \[2, 1\] at the capture"):
        graph.replay()


def test_streams_and_events_do_nothing():
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        event.record(stream)
    stream.wait_stream(torch.cuda.current_stream())
    stream.wait_event(event)
    torch.cuda.synchronize()
    assert stream.query() and event.query() and stream.record_event().elapsed_time(event) == 0


def test_torch_and_the_engine_are_themselves_again():
    inside = torch.cuda.CUDAGraph, sg.store_kv, store_kv
    with cpu_graphs():
        pass
    assert inside == (torch.cuda.CUDAGraph, sg.store_kv, store_kv)
    code = "import shadowgraph as sg, shadowgraph.torch as t; a = sg.copy_kv; b = t.cpu_graphs()\nwith b: assert sg.copy_kv is not a\nassert sg.copy_kv is a"
    subprocess.run([sys.executable, "-c", code], check=True)
