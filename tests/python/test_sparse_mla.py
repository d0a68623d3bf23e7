"""Attention over slots that each query names, of sgl_kernel.flash_mla, against the reference."""

import math

import numpy
import pytest
import torch
from flash_calls import HEADS, drawn, int32
from reference import attention, far, same

import shadowgraph as sg
from shadowgraph.sgl_kernel import flash_mla
from shadowgraph.torch import cpu_graphs

INF = math.inf
SINKS = [0.5, INF, -INF, 1.0]


def expected(q, keys, dim_v, sinks=None):
    """One query [heads, dim] over keys [n, dim]; a sink of inf takes all weight."""
    sinks = None if sinks is None else [-INF if s == INF else s for s in sinks]
    keys = keys[:, None]
    return attention(q[None], keys, keys[..., :dim_v], numpy.ones((1, len(keys)), bool), 0.3, sinks=sinks)


def check(out, lse, want, sinks=None):
    heads = [h for h in range(HEADS) if sinks is None or sinks[h] != INF]
    assert far(out[None, heads], want.out[:, heads], want.out_error[:, heads]) <= 1
    assert (out[[h for h in range(HEADS) if h not in heads]] == 0).all()
    same(out[None] * 0 + torch.from_numpy(want.out).to(out.dtype), lse[None], want, INF)


@pytest.mark.parametrize("sinks", [None, SINKS])
@pytest.mark.parametrize("convert", [torch.Tensor.float, torch.Tensor.bfloat16])
def test_each_query_sees_the_slots_that_it_names(convert, sinks):
    q, kv = convert(drawn(4, HEADS, 24)), convert(drawn(6, 1, 24, seed=2))
    kv[5] = math.nan
    named = [[2, 0, 4], [3, 3, -1], [-1, 6, 1], [5, 2, 1]]  # 5 is behind the length of its query
    lens = int32([3, 3, 3, 0])
    sink = None if sinks is None else torch.tensor(sinks)
    out, largest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, int32(named)[:, None], 0.3, 16, sink, lens)
    for i, slots in enumerate([[2, 0, 4], [3, 3], [1], []]):
        want = expected(q[i], kv[slots, 0], 16, sinks)
        check(out[i], lse[i], want, sinks)
        logits = 0.3 * numpy.einsum("hd,nd->hn", q[i].double(), kv[slots, 0].double())
        assert far(largest[i], logits.max(1, initial=-INF), want.lse_error[0] + 2.0**-22) <= 1


def packed(nope, rope, scales, dim):
    """Bytes [pages, page, 1, bytes] of e4m3 values [pages, page, dims], by their codes."""
    tail = rope.view(torch.int16).numpy().view(numpy.uint8)
    if dim == 576:
        parts = [nope, numpy.ascontiguousarray(scales).view(numpy.uint8), tail]
        return torch.from_numpy(numpy.concatenate(parts, -1))[:, :, None]
    pages, page = nope.shape[:2]
    exponents = (numpy.log2(scales) + 127).astype(numpy.uint8)
    exponents = numpy.concatenate([exponents, numpy.zeros((pages, page, 1), numpy.uint8)], -1)
    tokens = numpy.concatenate([nope, tail], -1)
    flat = numpy.concatenate([tokens.reshape(pages, -1), exponents.reshape(pages, -1), numpy.full((pages, 24), 7, numpy.uint8)], -1)
    return torch.from_numpy(flat)[:, : page * 584].view(pages, page, 1, 584)  # pages lie apart


def latents(dim, pages, page, seed):
    """A cache, and its keys f32 [slots, dim]."""
    fp8, groups = (512, 4) if dim == 576 else (448, 7)
    random = numpy.random.default_rng(seed)
    codes = random.integers(0, 256, (pages, page, fp8), numpy.uint8)
    codes[codes & 127 == 127] = 0  # NaN
    scales = 2.0 ** random.integers(-9, -5, (pages, page, groups))
    rope = torch.from_numpy(random.standard_normal((pages, page, 64), numpy.float32)).bfloat16()
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = numpy.where(exponent == 0, fraction / 512, (1 + fraction / 8) * 2.0 ** (exponent.astype(float) - 7))
    wide = numpy.where(codes < 128, size, -size) * numpy.repeat(scales, fp8 // groups, -1)
    keys = numpy.concatenate([wide, rope.float().numpy()], -1).reshape(pages * page, dim).astype(numpy.float32)
    return packed(codes, rope, scales.astype(numpy.float32), dim), torch.from_numpy(keys)


@pytest.mark.parametrize("sinks", [None, SINKS])
@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("dim", [576, 512])
def test_decode_of_fp8_latents(dim, extra, sinks):
    cache, keys = latents(dim, 3, 2, 1)
    q, named, lens = drawn(2, 2, HEADS, dim) / 16, [[[5, 0, 2], [1, -1, 4]], [[3, 4, 0], [6, -1, 5]]], [3, 2]
    sink = None if sinks is None else torch.tensor(sinks)
    rest, seen = {}, [[[5, 0, 2], [1, 4]], [[3, 4], []]]
    if extra:
        more, more_keys = latents(dim, 2, 3, 2)
        rest = {"extra_k_cache": more, "extra_indices_in_kvcache": int32([[[5, 5], [-1, 0]], [[1, 2], [1, -1]]]), "extra_topk_length": int32([2, 1])}
        keys, seen = torch.cat([keys, more_keys]), [[[5, 0, 2, 11, 11], [1, 4, 6]], [[3, 4, 7], [7]]]
    call = lambda: flash_mla.flash_mla_with_kvcache(  # noqa: E731
        q, cache, None, None, 512, flash_mla.get_mla_metadata()[0], None, 0.3, False, is_fp8_kvcache=True, indices=int32(named),
        attn_sink=sink, topk_length=int32(lens), **rest)
    out, lse = call()
    for r in range(2):
        for i in range(2):
            check(out[r, i], lse[r, :, i], expected(q[r, i], keys[seen[r][i]], 512, sinks), sinks)


def test_a_graph_reads_indices_at_replay():
    q, kv, indices = drawn(1, HEADS, 24), drawn(6, 1, 24, seed=2), int32([[[2, 0, 4]]])
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, _, _ = flash_mla.flash_mla_sparse_fwd(q, kv, indices, 0.3, 16)
        indices[0, 0] = int32([1, 3, -1])
        graph.replay()
    assert torch.equal(out, flash_mla.flash_mla_sparse_fwd(q, kv, indices, 0.3, 16)[0])


FP8 = {"q": drawn(1, 1, HEADS, 576), "k_cache": torch.zeros(2, 2, 1, 656, dtype=torch.uint8), "block_table": None, "cache_seqlens": None}
FP8 |= {"head_dim_v": 512, "tile_scheduler_metadata": None, "is_fp8_kvcache": True, "indices": int32([[[1, 2]]])}
SPARSE = {"q": drawn(2, HEADS, 24), "kv": drawn(6, 1, 24), "indices": int32([[[1]], [[2]]]), "sm_scale": 1.0, "d_v": 16}


@pytest.mark.parametrize(("call", "given", "wrong"), [
    (flash_mla.flash_mla_with_kvcache, FP8, {"k_cache": torch.zeros(2, 2, 1, 655, dtype=torch.uint8)}),
    (flash_mla.flash_mla_with_kvcache, FP8, {"indices": int32([[1, 2]])}),
    (flash_mla.flash_mla_with_kvcache, FP8, {"topk_length": int32([1, 2])}),
    (flash_mla.flash_mla_with_kvcache, FP8, {"q": drawn(1, 1, HEADS, 24)}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"kv": drawn(6, 1, 25)}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"kv": drawn(6, 1, 24).half()}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"indices": int32([[[1]]])}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"topk_length": int32([1])}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"attn_sink": drawn(3)}),
    (flash_mla.flash_mla_sparse_fwd, SPARSE, {"d_v": 25}),
], ids=lambda x: "".join(x) if isinstance(x, dict) and len(x) == 1 else None)
def test_wrong_input_is_named(call, given, wrong):
    call(**given)
    with pytest.raises(sg.ShadowgraphError) as caught:
        call(**given | wrong)
    assert {f.field for f in caught.value.findings} == set(wrong)


def test_indices_are_of_a_sparse_decode():
    with pytest.raises(ValueError, match="indices need is_fp8_kvcache=True"):
        flash_mla.flash_mla_with_kvcache(**FP8 | {"is_fp8_kvcache": False})
    with pytest.raises(ValueError, match="extra_k_cache is missing"):
        flash_mla.flash_mla_with_kvcache(**FP8 | {"extra_indices_in_kvcache": int32([[[1]]])})
