"""flash-attention 2 and 3 and their descendants: each call and option against the reference."""

import functools
import math

import numpy
import pytest
import torch
from problems import values
from reference import attention, f64, far, same, seen

import shadowgraph as sg
from shadowgraph import flash_attn, flash_attn_3, sgl_kernel, vllm
from shadowgraph._tensors import flat
from shadowgraph.torch import AuxRequest, varlen_attn

HEADS, KV_HEADS, DIM, PAGE, PAGES = 4, 2, 8, 2, 9
INF = math.inf


class Problem:
    """Two requests: their queries and keys, and the layouts in which calls take them."""

    def __init__(self, q_lens, kv_lens, convert=numpy.asarray):
        self.q_lens, self.kv_lens, self.convert = q_lens, kv_lens, convert
        rounded = lambda array: array if convert is numpy.asarray else convert(array)  # noqa: E731
        self.q = [rounded(values(n, HEADS, DIM, seed=r)) for r, n in enumerate(q_lens)]
        self.qv = [rounded(values(n, HEADS, DIM, seed=r + 2)) for r, n in enumerate(q_lens)]
        self.k = [rounded(values(n, KV_HEADS, DIM, seed=r + 4)) for r, n in enumerate(kv_lens)]
        self.v = [rounded(values(n, KV_HEADS, DIM, seed=r + 6)) for r, n in enumerate(kv_lens)]
        self.table = self.array([[7, 2, 5, 0], [1, 8, 3, 6]], "int32")

    def array(self, values, dtype="float32"):
        values = numpy.array(values, dtype)
        return values if self.convert is numpy.asarray else torch.from_numpy(values)

    def stacked(self, parts):
        return numpy.stack(parts) if self.convert is numpy.asarray else torch.stack(parts)

    def packed(self, parts):
        return numpy.concatenate(parts) if self.convert is numpy.asarray else torch.cat(parts)

    def cu(self, lens):
        return self.array([0, *numpy.cumsum(lens)], "int32")

    def pages(self, parts, keep=None):
        """[pages, page, heads, dim]; of a request only the first `keep` keys."""
        pool = self.packed([self.packed(parts)[:1] * 0] * PAGES * PAGE).reshape(PAGES, PAGE, KV_HEADS, DIM)
        for row, part in zip(self.table.tolist(), parts):
            for i in range(len(part) if keep is None else keep):
                pool[row[i // PAGE], i % PAGE] = part[i]
        return pool

    def rows(self, parts, length=8):
        """[3, length, heads, dim]: request 0 in row 2, request 1 in row 0."""
        pool = self.packed([self.packed(parts)[:1] * 0] * 3 * length).reshape(3, length, KV_HEADS, DIM)
        for row, part in zip((2, 0), parts):
            pool[row, : len(part)] = part
        return pool


def of_dense(call, p, names):
    out, lse, *_ = call(p.stacked(p.q), p.stacked(p.k), p.stacked(p.v), **names, return_attn_probs=True)
    return list(out), [x.swapaxes(0, 1) for x in lse]


def split(p, out, lse):
    ends = numpy.cumsum(p.q_lens)
    starts = ends - p.q_lens
    return [out[a:b] for a, b in zip(starts, ends)], [lse[:, a:b].swapaxes(0, 1) for a, b in zip(starts, ends)]


def of_packed(call, p, names, lse="return_attn_probs"):
    lens = p.cu(p.q_lens), p.cu(p.kv_lens), max(p.q_lens), max(p.kv_lens)
    out, found, *_ = call(p.packed(p.q), p.packed(p.k), p.packed(p.v), *lens, **names, **{lse: True})
    return split(p, out, found)


def of_packed_pages(call, p, names, lse, table):
    lens = p.cu(p.q_lens), p.cu(p.kv_lens), max(p.q_lens), max(p.kv_lens)
    out, found, *_ = call(p.packed(p.q), p.pages(p.k), p.pages(p.v), *lens, **names, **{table: p.table, lse: True})
    return split(p, out, found)


def of_rows(call, p, names):
    rows = {"cache_seqlens": p.array(p.kv_lens, "int32"), "cache_batch_idx": p.array([2, 0], "int32")}
    out, lse = call(p.stacked(p.q), p.rows(p.k), p.rows(p.v), **rows, **names, return_softmax_lse=True)
    return list(out), [x.swapaxes(0, 1) for x in lse]


def of_pages(call, p, names, table):
    rows = {"cache_seqlens": p.array(p.kv_lens, "int32"), table: p.table}
    out, lse = call(p.stacked(p.q), p.pages(p.k), p.pages(p.v), **rows, **names, return_softmax_lse=True)
    return list(out), [x.swapaxes(0, 1) for x in lse]


def of_pages_of_packed(call, p, names):
    rows = {"cache_seqlens": p.array(p.kv_lens, "int32"), "page_table": p.table, "cu_seqlens_q": p.cu(p.q_lens), "max_seqlen_q": 3}
    out, lse = call(p.packed(p.q), p.pages(p.k), p.pages(p.v), **rows, **names, return_softmax_lse=True)
    return split(p, out, lse)


def of_new(call, p, names, table):
    """The last two keys of each request are new."""
    new, old = 2, [n - 2 for n in p.kv_lens]
    caches = [p.pages([x[:n] for x, n in zip(parts, old)]) for parts in (p.k, p.v)]
    keys = [p.stacked([x[-new:] for x in parts]) for parts in (p.k, p.v)]
    rows = {"cache_seqlens": p.array(old, "int32"), table: p.table}
    out, lse = call(p.stacked(p.q), *caches, *keys, **rows, **names, return_softmax_lse=True)
    for cache, parts in zip(caches, (p.k, p.v)):
        assert (cache == p.pages(parts)).all()
    return list(out), [x.swapaxes(0, 1) for x in lse]


def of_vllm(p, names, version, paged):
    if paged:
        keys = {"k": p.pages(p.k), "v": p.pages(p.v), "block_table": p.table, "seqused_k": p.array(p.kv_lens, "int32")}
    else:
        keys = {"k": p.packed(p.k), "v": p.packed(p.v), "cu_seqlens_k": p.cu(p.kv_lens)}
    keys |= {"q": p.packed(p.q), "max_seqlen_q": 3, "cu_seqlens_q": p.cu(p.q_lens), "max_seqlen_k": 7, "fa_version": version}
    return split(p, *vllm.flash_attn.flash_attn_varlen_func(**keys, **names, return_softmax_lse=True))


def of_unified(p, names):
    q = p.packed(p.q)
    out = q * 0
    base = {"softmax_scale": DIM**-0.5, "causal": False, "window_size": (-1, -1), "softcap": 0, "q_descale": None}
    base |= {"k_descale": None, "v_descale": None}
    where = {"q": q, "k": p.pages(p.k), "v": p.pages(p.v), "out": out, "cu_seqlens_q": p.cu(p.q_lens), "max_seqlen_q": 3}
    where |= {"seqused_k": p.array(p.kv_lens, "int32"), "max_seqlen_k": 7, "block_table": p.table}
    assert vllm.unified_attention(**where | base | names) is None
    return split(p, out, out[..., 0].swapaxes(0, 1))[0], [None, None]


def of_varlen_attn(p, names, paged):
    q, cu, rest = p.packed(p.q), p.cu(p.q_lens), {"return_aux": AuxRequest(lse=True), "enable_gqa": True}
    if paged:
        rest |= {"block_table": p.table, "seqused_k": p.array(p.kv_lens, "int32")}
        return split(p, *varlen_attn(q, p.pages(p.k), p.pages(p.v), cu, None, 3, 7, **rest, **names))
    return split(p, *varlen_attn(q, p.packed(p.k), p.packed(p.v), cu, p.cu(p.kv_lens), 3, 7, **rest, **names))


fa2, fa3, sgl = flash_attn, flash_attn_3, sgl_kernel.flash_attn
PLAIN = ["scale", "window"]
COMMON = [*PLAIN, "causal", "softcap"]
ALIBI = ["alibi", "alibi of each request"]
PADDED = ["leftpad", "chunk behind leftpad"]
FA3 = [*COMMON, "chunk", "chunk, causal", "qv", "descales"]
# Each way to call: the function, the lens of queries and keys, the options that it has, and the lse of a row without keys.
DENSE, EVEN, UNEVEN = ([3, 3], [7, 7]), ([3, 3], [7, 5]), ([1, 3], [7, 5])
WAYS = {
    "fa2 func": (functools.partial(of_dense, fa2.flash_attn_func), DENSE, COMMON + ALIBI, INF),
    "fa2 varlen": (functools.partial(of_packed, fa2.flash_attn_varlen_func), UNEVEN, COMMON + ALIBI, INF),
    "fa2 varlen, pages": (
        functools.partial(of_packed_pages, fa2.flash_attn_varlen_func, lse="return_attn_probs", table="block_table"), UNEVEN, COMMON + ALIBI, INF),
    "fa2 kvcache, rows": (functools.partial(of_rows, fa2.flash_attn_with_kvcache), EVEN, [*COMMON, *ALIBI, "leftpad"], INF),
    "fa2 kvcache, pages": (functools.partial(of_pages, fa2.flash_attn_with_kvcache, table="block_table"), EVEN, COMMON + ALIBI, INF),
    "fa2 kvcache, new keys": (functools.partial(of_new, fa2.flash_attn_with_kvcache, table="block_table"), EVEN, COMMON + ALIBI, INF),
    "fa3 func": (functools.partial(of_dense, fa3.flash_attn_func), DENSE, FA3, -INF),
    "fa3 varlen": (functools.partial(of_packed, fa3.flash_attn_varlen_func), UNEVEN, FA3, -INF),
    "fa3 kvcache, rows": (functools.partial(of_rows, fa3.flash_attn_with_kvcache), EVEN, [*FA3, *PADDED], -INF),
    "fa3 kvcache, pages": (functools.partial(of_pages_of_packed, fa3.flash_attn_with_kvcache), UNEVEN, [*FA3, *PADDED], -INF),
    "fa3 kvcache, new keys": (functools.partial(of_new, fa3.flash_attn_with_kvcache, table="page_table"), EVEN, FA3, -INF),
    "sgl varlen": (functools.partial(of_packed, sgl.flash_attn_varlen_func, lse="return_softmax_lse"), UNEVEN, [*FA3, "sinks", "qv alone, of both widths"], -INF),
    "sgl varlen, pages": (
        functools.partial(of_packed_pages, sgl.flash_attn_varlen_func, lse="return_softmax_lse", table="page_table"), UNEVEN, FA3, -INF),
    "sgl kvcache, pages": (
        functools.partial(of_pages_of_packed, sgl.flash_attn_with_kvcache), UNEVEN, [*FA3, *PADDED, "sinks", "qv alone"], -INF),
    "vllm varlen": (functools.partial(of_vllm, version=2, paged=False), UNEVEN, COMMON + ALIBI, INF),
    "vllm varlen, pages": (functools.partial(of_vllm, version=3, paged=True), UNEVEN, [*COMMON, "descales", "s_aux", "q_v"], -INF),
    "vllm unified": (of_unified, UNEVEN, ["scale", "window of both sides", "causal", "softcap", "sinks alone", "linear alibi", "qq_bias", "kv descales", "ranges", "int8"], None),
    "varlen_attn": (functools.partial(of_varlen_attn, paged=False), UNEVEN, ["varlen scale", "window"], -INF),
    "varlen_attn, pages": (functools.partial(of_varlen_attn, paged=True), UNEVEN, ["varlen scale", "window"], -INF),
}
SLOPES = [0.5, 0.25, 0.75, 1.0], [0.1, 0.3, 0.2, 0.6]
SINKS, SCALES = [0.5, 1.0, -1.0, 2.0], numpy.array([[0.5, 2.0], [1.5, 0.25]])


def distance(p, r, slopes):
    queries, keys = p.q_lens[r], p.kv_lens[r]
    apart = numpy.arange(keys)[None] - (numpy.arange(queries)[:, None] + keys - queries)
    return -numpy.array(slopes).reshape(-1, 1, 1) * abs(apart)


def linear(p, r):
    return numpy.array(SLOPES[0]).reshape(-1, 1, 1) * (numpy.arange(p.kv_lens[r]) - p.kv_lens[r] + p.q_lens[r])[None, None]


def qq(p, r):
    queries, keys = p.q_lens[r], p.kv_lens[r]
    bias = numpy.zeros((1, queries, keys))
    bias[0, :, keys - queries :] = values(3, 3)[:queries, :queries]
    return bias


def qk_scales(p, r):
    return {"k": p.k[r] * p.array(SCALES[r] * SCALES[1 - r]).reshape(1, KV_HEADS, 1), "v": p.v[r] * p.array(SCALES[r]).reshape(1, KV_HEADS, 1)}


def kv_scales(p, r):
    return {"k": p.k[r] * p.array(SCALES[r]).reshape(1, KV_HEADS, 1), "v": p.v[r] * p.array(SCALES[r]).reshape(1, KV_HEADS, 1)}


def widened(p, r):
    return {"qv": p.qv[r], "scale": (2 * DIM) ** -0.5}


def ranges_seen(p, r):
    see = seen(p.q_lens[r], p.kv_lens[r], True)
    row = numpy.arange(p.q_lens[r])[:, None] + p.kv_lens[r] - p.q_lens[r]
    first, last = [(4, 5), (1, 3)][r]
    key = numpy.arange(p.kv_lens[r])[None]
    return {"see": see | ((first <= row) & (row <= last) & (first <= key) & (key <= last))}


def queries_of_values(p):
    return p.stacked(p.qv) if p.q_lens == EVEN[0] else p.packed(p.qv)


def int8_caches(p):
    """Of another pool: whole numbers, which the reference's keys are then times the scales of their slots."""
    random = numpy.random.default_rng(1)
    pools = [random.integers(-127, 128, (PAGES, PAGE, KV_HEADS, DIM)).astype("int8") for _ in range(2)]
    scales = [abs(values(PAGES, PAGE, KV_HEADS, seed=seed)) / 64 for seed in (8, 9)]
    return [p.array(x, x.dtype) for x in pools], [p.array(x) for x in scales]


def int8_arguments(p):
    (k, v), (k_scales, v_scales) = int8_caches(p)
    return {"k": k, "v": v, "kv_quant_mode": vllm.KVQuantMode.INT8_PER_TOKEN_HEAD, "k_scale_cache": k_scales, "v_scale_cache": v_scales}


def int8_keys(p, r):
    pools, scales = int8_caches(p)
    slots = [(page, i) for page in p.table[r].tolist() for i in range(PAGE)][: p.kv_lens[r]]
    wide = [numpy.stack([f64(pool[at]) * f64(scale[at])[:, None] for at in slots]) for pool, scale in zip(pools, scales)]
    return dict(zip("kv", wide))


# Each option: arguments of the call, and of the reference for request r.
OPTIONS = {
    "none": (lambda p: {}, lambda p, r: {}),
    "scale": (lambda p: {"softmax_scale": 0.7}, lambda p, r: {"scale": 0.7}),
    "varlen scale": (lambda p: {"scale": 0.7}, lambda p, r: {"scale": 0.7}),
    "causal": (lambda p: {"causal": True}, lambda p, r: {"see": {"causal": True}}),
    "window": (lambda p: {"window_size": (2, 1)}, lambda p, r: {"see": {"window": (2, 1)}}),
    "window of both sides": (lambda p: {"window_size": (2, 0)}, lambda p, r: {"see": {"window": (2, 2)}}),
    "softcap": (lambda p: {"softcap": 1.5}, lambda p, r: {"cap": 1.5}),
    "alibi": (lambda p: {"alibi_slopes": p.array(SLOPES[0])}, lambda p, r: {"bias": distance(p, r, SLOPES[0])}),
    "alibi of each request": (lambda p: {"alibi_slopes": p.array(SLOPES)}, lambda p, r: {"bias": distance(p, r, SLOPES[r])}),
    "linear alibi": (
        lambda p: {"causal": True, "alibi_slopes": p.array(SLOPES[0])}, lambda p, r: {"see": {"causal": True}, "bias": linear(p, r)}),
    "leftpad": (lambda p: {"cache_leftpad": p.array([2, 1], "int32")}, lambda p, r: {"see": {"leftpad": (2, 1)[r]}}),
    "chunk": (lambda p: {"attention_chunk": 2}, lambda p, r: {"see": {"chunk": 2}}),
    "chunk, causal": (
        lambda p: {"attention_chunk": 3, "causal": True}, lambda p, r: {"see": {"chunk": 3, "causal": True}}),
    "chunk behind leftpad": (
        lambda p: {"attention_chunk": 3, "cache_leftpad": p.array([2, 1], "int32")}, lambda p, r: {"see": {"chunk": 3, "leftpad": (2, 1)[r]}}),
    "qv": (lambda p: {"qv": queries_of_values(p)}, widened),
    "q_v": (lambda p: {"q_v": queries_of_values(p)}, widened),
    "qv alone": (lambda p: {"qv": queries_of_values(p), "only_qv": True}, lambda p, r: {"q": p.qv[r], "k": p.v[r]}),
    "qv alone, of both widths": (
        lambda p: {"qv": queries_of_values(p), "only_qv": True}, lambda p, r: {"q": p.qv[r], "k": p.v[r], "scale": (2 * DIM) ** -0.5}),
    "descales": (
        lambda p: {"q_descale": p.array(SCALES[::-1]), "k_descale": p.array(SCALES), "v_descale": p.array(SCALES)}, qk_scales),
    "kv descales": (lambda p: {"k_descale": p.array(SCALES), "v_descale": p.array(SCALES)}, kv_scales),
    "sinks": (lambda p: {"sinks": p.array(SINKS)}, lambda p, r: {"sinks": SINKS, "lse_sinks": True}),
    "sinks alone": (lambda p: {"sinks": p.array(SINKS)}, lambda p, r: {"sinks": SINKS}),
    "s_aux": (lambda p: {"s_aux": p.array(SINKS)}, lambda p, r: {"sinks": SINKS, "lse_sinks": True}),
    "int8": (int8_arguments, int8_keys),
    "qq_bias": (lambda p: {"qq_bias": p.array(values(3, 3))}, lambda p, r: {"bias": qq(p, r)}),
    "ranges": (lambda p: {"causal": True, "mm_prefix_range": p.array([[[0, 0], [4, 5]], [[1, 3], [0, 0]]], "int32")}, ranges_seen),
}
LIBRARIES = {
    "numpy": numpy.asarray, "torch": torch.from_numpy, "bf16": lambda a: torch.from_numpy(a).bfloat16(), "f16": lambda a: torch.from_numpy(a).half(),
}


def reference(p, r, changed):
    base = {"q": p.q[r], "k": p.k[r], "v": p.v[r], "scale": DIM**-0.5, "see": {}} | changed
    if isinstance(base["see"], dict):
        base["see"] = seen(p.q_lens[r], p.kv_lens[r], **base["see"])
    return attention(**base)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("way", "option"), [(way, option) for way in WAYS for option in ["none", *WAYS[way][2]]])
def test_each_way_and_option_is_the_reference(way, option, library):
    call, lens, _, no_keys = WAYS[way]
    given, changed = OPTIONS[option]
    p = Problem(*lens, LIBRARIES[library])
    out, lse = call(p=p, names=given(p))
    for r in range(2):
        assert type(out[r]) is type(p.q[r])
        same(out[r], lse[r], reference(p, r, changed(p, r)), no_keys)


@pytest.mark.parametrize("library", ["bf16", "f16"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "vllm unified"])
def test_small_types_are_the_references(way, library):
    call, lens, _, no_keys = WAYS[way]
    p = Problem(*lens, LIBRARIES[library])
    out, lse = call(p=p, names={})
    for r in range(2):
        assert out[r].dtype == p.q[r].dtype and lse[r].dtype == torch.float32
        same(out[r], lse[r], reference(p, r, {}), no_keys)


@pytest.mark.parametrize("option", [name for name in OPTIONS if name != "none"])
def test_the_bound_sees_an_option_that_is_ignored(option):
    p = Problem(*UNEVEN)
    changed = [OPTIONS[option][1](p, r) for r in range(2)]
    seen_apart = [far(reference(p, r, {}).out, x.out, x.out_error + 2.0**-24) for r, x in ((r, reference(p, r, c)) for r, c in enumerate(changed))]
    assert max(seen_apart) > 100


@pytest.mark.parametrize("way", [way for way in WAYS if "new" not in way and way not in ("vllm unified", "varlen_attn", "varlen_attn, pages")])
def test_a_row_without_keys(way):
    call, _, options, no_keys = WAYS[way]
    lens = ([3, 3], [2, 2]) if "func" in way else ([3, 3], [2, 0]) if "kvcache, rows" in way or way == "fa2 kvcache, pages" else ([1, 3], [2, 0])
    p = Problem(*lens)
    out, lse = call(p=p, names={"causal": True})
    for r in range(2):
        want = reference(p, r, {"see": {"causal": True}})
        same(out[r], lse[r], want, no_keys)
    assert (out[1][0] == 0).all() and (lse[1][0] == no_keys).all()


def test_an_out_that_must_be_one_axis_of_tokens_is_refused_where_it_is_none():
    with pytest.raises(sg.ShadowgraphError, match="input.stride: out"):
        flat(numpy.empty((2, 3, 2, 8), numpy.float32)[:, :2])
    out = numpy.zeros((2, 3, 2, 8), numpy.float32)
    flat(out)[:] = 1
    assert out.min() == 1
