"""opcheck: the twin and a kernel of plain torch pass; each slip is found by the check that is meant for it."""

import ctypes

import numpy
import pytest
import torch
from problems import paged, ragged

import shadowgraph as sg

CHECKS = ["shape", "bound", "memory", "batch", "padding", "graph"]
OF_TORCH = ["shape", "bound", "memory", "graph"]  # whose sums may depend on the batch


def tensors(numbers):
    return tuple(map(tensors, numbers)) if isinstance(numbers, tuple) else torch.from_numpy(numbers) if hasattr(numbers, "dtype") else numbers


def decode(make=tensors):
    """Three requests of 3, 4 and 2 keys, over pages of 2."""
    given = paged()
    table, lens = numpy.array([[0, 1], [2, 3], [4, 5]], numpy.int32), numpy.array([3, 4, 2], numpy.int32)
    return sg.paged(*map(make, (given["q"][:3], given["cache"], (table, lens))))


def samples(make=tensors):
    extend = {name: make(value) for name, value in paged(causal=True, window_left=2).items()}
    q, cache, pages = decode().arguments["q"], decode().arguments["cache"], ([0, 2, 4, 5], [0, 1, 2, 3, 4], [1, 2, 2])
    lists = sg.paged(q, cache, tuple(torch.tensor(part, dtype=torch.int32) for part in pages), lse_base2=True)
    return [decode(make), sg.paged(extend.pop("q"), extend.pop("cache"), **extend), lists]


def plain(q, cache, page_table, cache_seqlens, sm_scale, *, window=None, bake=False, noise=0):
    """A decode of plain torch."""
    if bake:
        page_table = page_table[:, : -(-int(cache_seqlens.max()) // cache[0].shape[1])]
    k, v = (c[page_table.long()].flatten(1, 2).repeat_interleave(q.shape[1] // c.shape[2], 2) for c in cache)
    scores = torch.einsum("bhd,bthd->bht", q, k) * sm_scale
    behind = torch.arange(k.shape[1])[None, None] >= cache_seqlens[:, None, None]
    scores = scores.masked_fill(behind, -float("inf"))
    return torch.einsum("bht,bthd->bhd", scores.softmax(-1), v) + noise, scores.logsumexp(-1)


def test_the_twin_passes():
    done = sg.opcheck(lambda **call: sg.paged_attention(**call, lse=True), samples(), checks=CHECKS[:-1])
    assert done == dict.fromkeys(CHECKS[:-1], "passed")
    packed = [sg.ragged(**{name: tensors(value) for name, value in ragged(causal=True).items()})]
    assert sg.opcheck(sg.ragged_attention, packed, checks=CHECKS[:-1], arithmetic="ours_portable") == done
    done = sg.opcheck(sg.paged_attention, [decode(lambda numbers: numbers)])
    assert done == dict.fromkeys(CHECKS[:-1], "passed") | {"graph": "left out: graphs are torch's"}


def test_a_kernel_of_plain_torch_passes_graphs_too():
    assert sg.opcheck(plain, [decode()], checks=OF_TORCH) == dict.fromkeys(OF_TORCH, "passed")


def test_drop_ins_pass_graphs_too():
    import shadowgraph.flash_attn as flash_attn

    def kernel(q, cache, page_table, cache_seqlens, sm_scale):
        more = {"cache_seqlens": cache_seqlens, "block_table": page_table, "softmax_scale": sm_scale, "return_softmax_lse": True}
        out, lse = flash_attn.flash_attn_with_kvcache(q[:, None], *cache, **more)
        return out[:, 0], lse[:, :, 0]

    assert sg.opcheck(kernel, [decode()]) == dict.fromkeys(CHECKS, "passed")


def test_outputs_may_be_the_callers():
    def kernel(q, cache, page_table, cache_seqlens, sm_scale, out, lse):
        out[:], lse[:] = plain(q, cache, page_table, cache_seqlens, sm_scale)

    assert sg.opcheck(kernel, [decode()], checks=OF_TORCH) == dict.fromkeys(OF_TORCH, "passed")


def behind(tensor):
    """The address of the element behind the last, as a kernel's pointer reaches it."""
    return tensor.data_ptr() + tensor.numel() * tensor.element_size()


def overrun(q, cache, page_table, cache_seqlens, sm_scale, out, lse):
    out[:], lse[:] = plain(q, cache, page_table, cache_seqlens, sm_scale)
    ctypes.memset(behind(out), 0, 4)


def overread(q, cache, page_table, cache_seqlens, sm_scale):
    """A key more than the pool has, which weighs nothing: 0 times NaN."""
    out, lse = plain(q, cache, page_table, cache_seqlens, sm_scale)
    return out + 0 * ctypes.c_float.from_address(behind(cache[0])).value, lse


def in_place(q, **call):
    result = plain(q, **call)
    q.mul_(2)
    return result


def double(**call):
    out, lse = plain(**call)
    return out.double(), lse


SLIPS = {
    "another type": (double, "shape", "input.dtype: sample 0 shape: out is torch.float64, expected torch.float32"),
    "transposed": (lambda **c: (plain(**c)[0], plain(**c)[1].t()), "shape", "input.shape: sample 0 shape: lse is [4, 3]"),
    "a scale": (lambda **c: plain(**{**c, "sm_scale": 0.5}), "bound", "num.bound: sample 0 bound: out["),
    "a write behind": (overrun, "memory", "mem.red_zone: sample 0 memory: out is a write of element 96"),
    "a read behind": (overread, "memory", "What is read holds no number: nobody has written it, or it is outside"),
    "an input": (in_place, "memory", "num.write_set: sample 0 memory: q is other bits"),
    "the batch": (lambda **c: plain(**c, noise=len(c["q"]) * 2e-8), "batch", "num.bits: sample 0 batch: out[0] is others"),
    "padding": (lambda **c: plain(**c, noise=len(c["q"]) * 2e-8), "padding", "num.bits: sample 0 padding: out[0] is others"),
    "a length": (lambda **c: plain(**c, bake=True), "graph", "device.replay: sample 0 graph: "),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_found_by_its_check(slip):
    kernel, check, text = SLIPS[slip]
    call = decode()
    if slip == "a length":  # a page more than at the capture, for the longest request
        call = call.changed(cache_seqlens=torch.tensor([3, 3, 2], dtype=torch.int32))
    with pytest.raises(sg.ShadowgraphError) as caught:
        sg.opcheck(kernel, [call], checks=[check])
    assert text in str(caught.value)
    if slip in ("the batch", "padding", "a length"):  # which the other checks do not see
        sg.opcheck(kernel, [call], checks=["shape", "bound", "memory"])


def rows(q, cache, page_table, cache_seqlens, sm_scale, cu_seqlens_q=None, *, pages=False, lens=False):
    """A kernel of loops, whose slip is a number of the host: the ids of pages, or the lengths."""
    table = torch.tensor(page_table.tolist()) if pages else page_table.long()
    k, v = (c[table].flatten(1, 2).repeat_interleave(q.shape[1] // c.shape[2], 2) for c in cache)
    offsets = range(len(q) + 1) if cu_seqlens_q is None else cu_seqlens_q.tolist()
    out = torch.zeros(*q.shape[:2], v.shape[-1])
    for b, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        length = int(cache_seqlens[b]) if lens else cache_seqlens[b]
        scores = torch.einsum("qhd,thd->qht", q[begin:end], k[b]) * sm_scale
        scores = scores.masked_fill(torch.arange(len(k[b])) >= length, -float("inf"))
        out[begin:end] = torch.einsum("qht,thd->qhd", scores.softmax(-1), v[b])
    return out


@pytest.mark.parametrize("queries", [None, [0, 1, 3, 4]], ids=["decode", "prefill"])
@pytest.mark.parametrize("slip", ["pages", "lens"])
def test_a_number_of_the_host_is_found_in_a_graph(queries, slip):
    call = decode()
    if queries:
        q = torch.randn(4, *call.arguments["q"].shape[1:], generator=torch.manual_seed(1))
        call = call.changed(q=q, cu_seqlens_q=torch.tensor(queries, dtype=torch.int32))
    assert sg.opcheck(rows, [call], checks=["bound", "graph"]) == {"bound": "passed", "graph": "passed"}
    with pytest.raises(sg.ShadowgraphError, match="device.replay: sample 0 graph: "):
        sg.opcheck(lambda **given: rows(**given, **{slip: True}), [call], checks=["graph"])


def test_a_graph_whose_requests_cannot_be_longer_is_left_out():
    short = decode().changed(cache_seqlens=torch.tensor([1, 1, 1], dtype=torch.int32))
    assert sg.opcheck(rows, [short], checks=["graph"]) == {"graph": "left out: no request can have a key less at the capture"}
    with pytest.raises(sg.ShadowgraphError, match="device.replay"):
        sg.opcheck(lambda **given: rows(**given, pages=True), [short], checks=["graph"])


def test_what_bound_finds_memory_does_not_repeat():
    with pytest.raises(sg.ShadowgraphError) as caught:
        sg.opcheck(lambda **c: plain(**{**c, "sm_scale": 0.5}), [decode()], checks=["bound", "memory"])
    assert not [f for f in caught.value.findings if "sample 0 memory" in f.text]


def test_requests_with_something_of_their_own_are_left_whole():
    call = decode().changed(seqused_k=None, k_scales=torch.ones(3, 2))
    done = sg.opcheck(sg.paged_attention, [call], checks=["bound", "batch", "padding"])
    assert done == {"bound": "passed", "batch": "left out: k_scales: of each request", "padding": "left out: k_scales: of each request"}
    assert sg.opcheck(plain, [], checks=["bound"]) == {"bound": "left out: no samples"}
    with pytest.raises(ValueError, match=r"checks has \['bounds'\]"):
        sg.opcheck(plain, [], checks=["bounds"])
    with pytest.raises(TypeError, match="samples is a single call, expected a list"):
        sg.opcheck(plain, decode())
