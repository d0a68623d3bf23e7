"""Wrappers and single calls of shadowgraph.flashinfer against the oracle."""

import functools

import numpy
import oracle
import pytest
import torch
from pools import BF16, DIM, F16, F32, HEADS, KV_HEADS, LENS, PAGE, Q_LENS, SCALE, Pool, clean, drawn, every, qo_indptr

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer


def decode_wrapper(kv_layout="NHD", **options):
    return flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(1, dtype=torch.uint8), kv_layout, **options)


def decode_plan(wrapper, pool, **options):
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE, **options)
    return wrapper


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
def test_decode(kv_layout, dtype):
    pool, q = Pool(kv_layout=kv_layout, dtype=dtype), drawn(4, HEADS, DIM, dtype=dtype)
    wrapper = decode_plan(decode_wrapper(kv_layout), pool, q_data_type=dtype)
    out, lse = wrapper.run(q, pool.kv, return_lse=True)
    assert out.dtype == dtype and out.shape == q.shape and lse.dtype == F32 and lse.shape == (4, HEADS)
    assert not out[1].any() and (lse[1] == -torch.inf).all()
    clean(pool, every([1] * 4, LENS), q, (out, lse))
    stacked = torch.stack(pool.kv, 1)
    for again in (wrapper.run(q, pool.kv), wrapper.run(q, stacked), wrapper.run_return_lse(q, pool.kv)[0]):
        assert torch.equal(again, out)
    assert torch.equal(wrapper.forward_return_lse(q, pool.kv)[1], lse) and torch.equal(wrapper.forward(q, pool.kv), out)
    mine = torch.empty_like(out), torch.empty_like(lse)
    got = wrapper.run(q, pool.kv, out=mine[0], lse=mine[1], return_lse=True)
    assert got[0] is mine[0] and got[1] is mine[1] and torch.equal(mine[0], out) and torch.equal(mine[1], lse)


def test_decode_of_numpy():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    want = decode_plan(decode_wrapper(), pool).run(q, pool.kv, return_lse=True)
    wrapper = decode_wrapper()
    wrapper.plan(*(x.numpy() for x in pool.lists), HEADS, KV_HEADS, DIM, PAGE)
    out, lse = wrapper.run(q.numpy(), tuple(x.numpy() for x in pool.kv), return_lse=True)
    assert type(out) is numpy.ndarray and numpy.array_equal(out, want[0].numpy()) and numpy.array_equal(lse, want[1].numpy())


def test_decode_takes_lists_of_any_width():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    want = decode_plan(decode_wrapper(), pool).run(q, pool.kv)
    wrapper = decode_wrapper()
    wrapper.plan(*(x.long() for x in pool.lists), HEADS, KV_HEADS, DIM, PAGE)
    assert torch.equal(wrapper.run(q, pool.kv), want)


def test_decode_options_change_what_they_say():
    pool, q = Pool(dtype=F16), drawn(4, HEADS, DIM, dtype=F16)
    plan = functools.partial(decode_plan, decode_wrapper(), pool)
    all_keys, window = every([1] * 4, LENS), every([1] * 4, LENS, window_left=2)
    clean(pool, window, q, plan(window_left=2).run(q, pool.kv, return_lse=True))
    clean(pool, window, q, plan().run(q, pool.kv, window_left=2, return_lse=True))
    clean(pool, all_keys, q, plan(logits_soft_cap=2.0).run(q, pool.kv, return_lse=True), softcap=2.0)
    clean(pool, all_keys, q, plan(sm_scale=0.5).run(q, pool.kv, return_lse=True), sm_scale=0.5)
    clean(pool, window, q, plan(sm_scale=9.0).forward_return_lse(q, pool.kv, sm_scale=0.5, window_left=2), sm_scale=0.5)
    scaled = plan(sm_scale=0.5).run(q, pool.kv, q_scale=2.0, k_scale=0.25, v_scale=torch.tensor(3.0), return_lse=True)
    clean(pool, all_keys, q, scaled, sm_scale=0.25, out_scale=3.0)
    sinks = drawn(HEADS)
    out = plan().run(q, pool.kv, sinks=sinks)
    rows = oracle.rows_of(pool.keys, all_keys), oracle.rows_of(pool.values, all_keys)
    assert not oracle.findings(q, *rows, out, sm_scale=SCALE, sinks=sinks) and oracle.findings(q, *rows, out, sm_scale=SCALE)
    assert plan(o_data_type=F32).run(q, pool.kv).dtype == plan(o_data_type="float32").run(q, pool.kv).dtype == F32


def test_decode_of_several_queries_is_causal():
    lens = [7, 3, 9]
    pool, q = Pool(lens), drawn(9, HEADS, DIM)
    wrapper = decode_plan(decode_wrapper(), pool, q_len_per_req=3)
    clean(pool, every([3] * 3, lens, causal=True), q, wrapper.run(q, pool.kv, return_lse=True))
    for call in (
        lambda: wrapper.run(q[:8], pool.kv),
        lambda: wrapper.run(q, pool.kv, q_len_per_req=2),
        lambda: decode_plan(wrapper, pool, q_len_per_req=0),
        lambda: decode_plan(wrapper, pool, q_len_per_req=4),
    ):
        with pytest.raises(ValueError, match="q_len_per_req"):
            call()


def test_plan_takes_its_options_by_position_deprecated():
    pool, q, wrapper = Pool(), drawn(4, HEADS, DIM), decode_wrapper()
    want = decode_plan(wrapper, pool, window_left=2, logits_soft_cap=1.5).run(q, pool.kv)
    base = (*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    with pytest.warns(DeprecationWarning, match="pos_encoding_mode, window_left, logits_soft_cap"):
        wrapper.plan(*base, "NONE", 2, 1.5)
    assert torch.equal(wrapper.run(q, pool.kv), want)
    with pytest.warns(DeprecationWarning):
        wrapper.begin_forward(*base, "NONE", 2, logits_soft_cap=1.5)
    assert torch.equal(wrapper.run(q, pool.kv), want)
    with pytest.raises(TypeError, match="multiple values for argument 'window_left'"):
        wrapper.plan(*base, "NONE", 2, window_left=2)
    with pytest.raises(TypeError, match="24 arguments by position, but 25"):
        wrapper.plan(*base, *["NONE"] * 17)


def graph_decode(pool, room=2):
    buffers = torch.zeros_like(pool.indptr), torch.zeros(len(pool.indices) + room, dtype=torch.int32), torch.zeros_like(pool.last)
    wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(torch.empty(0), *buffers)
    assert wrapper.is_cuda_graph_enabled and not decode_wrapper().is_cuda_graph_enabled
    return wrapper, buffers


def test_a_graph_wrapper_reads_the_callers_buffers():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    want = decode_plan(decode_wrapper(), pool).run(q, pool.kv)
    wrapper, (indptr, indices, last) = graph_decode(pool)
    decode_plan(wrapper, pool)
    assert torch.equal(indptr, pool.indptr) and torch.equal(indices[:-2], pool.indices) and torch.equal(last, pool.last)
    assert torch.equal(wrapper.run(q, pool.kv), want)
    other = Pool([3, 0, 4, 9])
    stale = wrapper.run(q, other.kv)  # lists of the old plan
    assert not torch.equal(stale, decode_plan(decode_wrapper(), other).run(q, other.kv))
    for changed in ({"last_page_len": pool.last[:3], "indptr": pool.indptr[:4]}, {"indices": torch.zeros(99, dtype=torch.int32)}):
        lists = dict(zip(("indptr", "indices", "last_page_len"), pool.lists)) | changed
        before = [b.clone() for b in (indptr, indices, last)]
        with pytest.raises(ValueError, match="batch size should be fixed|99 entries"):
            wrapper.plan(**lists, num_qo_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, page_size=PAGE)
        assert all(map(torch.equal, before, (indptr, indices, last)))
    with pytest.raises(ValueError, match="q_len_per_req"):
        decode_plan(wrapper, pool, q_len_per_req=2)
    with pytest.raises(ValueError, match="tensor in CUDA graph mode"):
        decode_wrapper(use_cuda_graph=True)


def test_fast_decode_plan_fills_all_but_the_indices():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    want = decode_plan(decode_wrapper(), pool).run(q, pool.kv)
    wrapper, (indptr, indices, last) = graph_decode(pool)
    wrapper.vllm_first_call = True
    wrapper.begin_forward = functools.partial(flashinfer.fast_decode_plan, wrapper)
    indices[: len(pool.indices)] = pool.indices
    wrapper.begin_forward(pool.indptr, torch.zeros(0), pool.last, HEADS, KV_HEADS, DIM, PAGE, q_data_type=F32)
    assert wrapper.begin_forward.func is flashinfer.fast_decode_plan
    assert torch.equal(indptr, pool.indptr) and torch.equal(last, pool.last) and torch.equal(wrapper.run(q, pool.kv), want)
    eager = decode_wrapper()
    flashinfer.fast_decode_plan(eager, *pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    assert torch.equal(eager.run(q, pool.kv), want)


def test_single_decode():
    k, v, q = drawn(7, KV_HEADS, DIM), drawn(7, KV_HEADS, DIM, seed=2), drawn(HEADS, DIM)
    out, lse = flashinfer.single_decode_with_kv_cache(q, k, v, window_left=3, logits_soft_cap=1.0, return_lse=True)
    assert out.shape == (HEADS, DIM) and lse.shape == (HEADS,)
    assert not oracle.findings(q[None], [k[3:]], [v[3:]], out[None], lse[None], base2=True, sm_scale=SCALE, softcap=1.0)
    hnd = [x.transpose(0, 1).contiguous() for x in (k, v)]
    assert torch.equal(flashinfer.single_decode_with_kv_cache(q, *hnd, "HND", window_left=3, logits_soft_cap=1.0), out)


def prefill_plan(pool, kv_layout="NHD", wrapper=None, **options):
    wrapper = wrapper or flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(8, dtype=torch.int8), kv_layout)
    wrapper.plan(qo_indptr(), *pool.lists, HEADS, KV_HEADS, DIM, PAGE, **options)
    return wrapper


def ragged_plan(lens=LENS, wrapper=None, **options):
    wrapper = wrapper or flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(8, dtype=torch.int8))
    wrapper.plan(qo_indptr(), torch.tensor([0, *numpy.cumsum(lens)]), HEADS, KV_HEADS, DIM, **options)
    return wrapper


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
@pytest.mark.parametrize("causal", [False, True])
def test_prefill(causal, kv_layout, dtype):
    pool, q = Pool(kv_layout=kv_layout, dtype=dtype), drawn(sum(Q_LENS), HEADS, DIM, dtype=dtype)
    wrapper = prefill_plan(pool, kv_layout, causal=causal, q_data_type=dtype)
    result, masks = wrapper.run(q, pool.kv, return_lse=True), every(Q_LENS, LENS, causal=causal)
    clean(pool, masks, q, result)
    k, v = torch.cat(pool.keys), torch.cat(pool.values)
    ragged = ragged_plan(causal=causal, q_data_type=dtype)
    clean(pool, masks, q, ragged.run(q, k, v, return_lse=True))
    for form in (wrapper.forward(q, pool.kv, causal=causal), wrapper.run_return_lse(q, pool.kv)[0], ragged.run(q, k, v)):
        assert torch.equal(form, result[0])
    assert torch.equal(ragged.forward_return_lse(q, k, v, causal=causal)[1], result[1])


def test_prefill_is_not_causal_by_default_nor_forward():
    pool, q = Pool(), drawn(sum(Q_LENS), HEADS, DIM)
    free = every(Q_LENS, LENS)
    clean(pool, free, q, prefill_plan(pool).run(q, pool.kv, return_lse=True))
    clean(pool, free, q, prefill_plan(pool, causal=True).forward_return_lse(q, pool.kv))
    clean(pool, free, q, ragged_plan().run(q, torch.cat(pool.keys), torch.cat(pool.values), return_lse=True))


def test_prefill_options_change_what_they_say():
    pool, q = Pool(dtype=F16, head_dim_vo=16), drawn(sum(Q_LENS), HEADS, DIM, dtype=F16)
    k, v = torch.cat(pool.keys), torch.cat(pool.values)
    masks = every(Q_LENS, LENS, causal=True, window_left=1)
    options = {"causal": True, "window_left": 1, "logits_soft_cap": 2.0, "sm_scale": 0.5, "head_dim_vo": 16}
    for wrapper, tensors in ((prefill_plan(pool, **options), (pool.kv,)), (ragged_plan(**options), (k, v))):
        result = wrapper.run(q, *tensors, k_scale=0.5, v_scale=2.0, return_lse=True)
        assert result[0].shape == (sum(Q_LENS), HEADS, 16)
        for part in result:
            assert part.isfinite().all() or part is result[1]
        more = {"sm_scale": 0.25, "softcap": 2.0, "out_scale": 2.0}
        rows = oracle.rows_of(pool.keys, masks), oracle.rows_of(pool.values, masks)
        assert not oracle.findings(q, *rows, *result, base2=True, **more)
    clean(Pool(), every(Q_LENS, LENS, window_left=0), (p := drawn(sum(Q_LENS), HEADS, DIM)),
          prefill_plan(Pool()).run(p, Pool().kv, window_left=0, return_lse=True))  # fmt: skip


def custom_masks(seed=3):
    draw = numpy.random.default_rng(seed)
    return [draw.random((q_len, n)) < 0.6 for q_len, n in zip(Q_LENS, LENS)]


def packed(masks):
    return torch.from_numpy(numpy.concatenate([numpy.packbits(m.reshape(-1), bitorder="little") for m in masks]))


def test_a_custom_mask_takes_causality_away():
    pool, q, masks = Pool(), drawn(sum(Q_LENS), HEADS, DIM), custom_masks()
    flat = torch.from_numpy(numpy.concatenate([m.reshape(-1) for m in masks]))
    k, v = torch.cat(pool.keys), torch.cat(pool.values)
    result = prefill_plan(pool, custom_mask=flat, causal=True).run(q, pool.kv, return_lse=True)
    clean(pool, masks, q, result)
    for other in (
        prefill_plan(pool, packed_custom_mask=packed(masks)).run(q, pool.kv),
        ragged_plan(custom_mask=flat, causal=True).run(q, k, v),
        ragged_plan(packed_custom_mask=packed(masks)).run(q, k, v),
    ):
        assert torch.equal(other, result[0])
    wrapper = prefill_plan(pool, custom_mask=flat)
    clean(pool, every(Q_LENS, LENS), q, prefill_plan(pool, wrapper=wrapper).run(q, pool.kv, return_lse=True))


def test_a_graph_wrapper_has_masks_in_the_callers_buffers():
    pool, q, masks = Pool(), drawn(sum(Q_LENS), HEADS, DIM), custom_masks()
    flat = torch.from_numpy(numpy.concatenate([m.reshape(-1) for m in masks]))
    sizes = 5, 5, len(pool.indices) + 3, 4
    buffers = [torch.zeros(n, dtype=torch.int32) for n in sizes]
    bits, starts = torch.full((64,), 255, dtype=torch.uint8), torch.zeros(5, dtype=torch.int32)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(0), "NHD", True, *buffers, bits, starts)
    prefill_plan(pool, wrapper=wrapper, custom_mask=flat)
    assert torch.equal(bits[: int(starts[-1])], packed(masks)) and torch.equal(buffers[0], qo_indptr())
    clean(pool, masks, q, wrapper.run(q, pool.kv, return_lse=True))
    bits[: int(starts[-1])] = packed(custom_masks(seed=4))
    clean(pool, custom_masks(seed=4), q, wrapper.run(q, pool.kv, return_lse=True))
    bare = flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(0), "NHD", True, *buffers)
    with pytest.raises(ValueError, match="custom_mask_buf"):
        prefill_plan(pool, wrapper=bare, custom_mask=flat)


def test_single_prefill():
    k, v, q = drawn(7, KV_HEADS, DIM, dtype=F16), drawn(7, KV_HEADS, DIM, dtype=F16, seed=2), drawn(3, HEADS, DIM, dtype=F16)
    mask = custom_masks()[0]
    call = functools.partial(flashinfer.single_prefill_with_kv_cache, q, k, v)

    def judged(result, shown, **more):
        rows = oracle.rows_of([k], [shown]), oracle.rows_of([v], [shown])
        return oracle.findings(q, *rows, *result, **{"base2": True, "sm_scale": SCALE} | more)

    assert not judged(call(return_lse=True), oracle.seen(3, 7))
    assert not judged(call(causal=True, return_lse=True), oracle.seen(3, 7, causal=True))
    assert judged(call(causal=True, return_lse=True), oracle.seen(3, 7))
    masked = call(custom_mask=torch.from_numpy(mask), causal=True, return_lse=True)
    assert not judged(masked, mask)
    assert torch.equal(call(packed_custom_mask=packed([mask])), masked[0])
    scaled = call(scale_q=2.0, k_scale=0.5, scale_v=3.0, v_scale=0.5, return_lse=True, window_left=1, logits_soft_cap=3.0)
    assert not judged(scaled, oracle.seen(3, 7, window_left=1), softcap=3.0, out_scale=1.5)
    by_head = torch.tensor([0.5, 2.0])
    assert not judged(call(scale_k=by_head, scale_v=by_head, return_lse=True), oracle.seen(3, 7), k_scale=by_head, v_scale=by_head)
    hnd = [x.transpose(0, 1).contiguous() for x in (k, v)]
    assert torch.equal(flashinfer.single_prefill_with_kv_cache(q, *hnd, kv_layout="HND"), call())
    assert call(o_dtype=F32).dtype == F32
    assert torch.equal(flashinfer.single_prefill_with_kv_cache_return_lse(q, k, v)[1], call(return_lse=True)[1])


def rotated(x, first):
    """x [n, heads, dim] at positions first, first + 1, ... of RoPE, as f32: pairs are complex numbers."""
    half = x.shape[-1] // 2
    angles = torch.arange(first, first + len(x))[:, None].double() / 2 * 100.0 ** (-torch.arange(half).double() / half)
    pairs = torch.complex(*x.double().split(half, -1)) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([pairs.real, pairs.imag], -1).float()


@pytest.mark.parametrize("dtype", [F16, F32])
def test_positions_are_rotated_where_a_layer_says_so(dtype):
    options = {"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 100.0}
    pool, q = Pool(dtype=dtype, kv_layout="HND"), drawn(sum(Q_LENS), HEADS, DIM, dtype=dtype)
    k, v = torch.cat(pool.keys), torch.cat(pool.values)
    turned, bounds = Pool(dtype=dtype), qo_indptr().tolist()
    turned.keys, turned.values = [rotated(x, 0) for x in pool.keys], [x.float() for x in pool.values]
    parts = [rotated(q[a:b], n - (b - a)) for a, b, n in zip(bounds, bounds[1:], LENS)]
    masks = every(Q_LENS, LENS, causal=True)
    paged = prefill_plan(pool, "HND", causal=True, **options).run(q, pool.kv, return_lse=True)
    assert paged[0].dtype == dtype
    clean(turned, masks, torch.cat(parts), paged)
    ragged = ragged_plan(causal=True, **options).forward_return_lse(q, k, v, causal=True, **options)
    assert all(map(torch.equal, ragged, paged))
    one = torch.cat([rotated(q[i : i + 1], n - 1) for i, n in enumerate(LENS)])
    result = decode_plan(decode_wrapper("HND"), pool, **options).run(q[:4], pool.kv, return_lse=True)
    clean(turned, every([1] * 4, LENS), one, result)
    single = flashinfer.single_decode_with_kv_cache(q[0], pool.keys[0], pool.values[0], **options)
    assert torch.equal(single, result[0][0])
    single = flashinfer.single_prefill_with_kv_cache(q[:3], pool.keys[0], pool.values[0], causal=True, **options)
    assert torch.equal(single, paged[0][:3])
    plain = decode_plan(decode_wrapper("HND"), pool).run(q[:4], pool.kv)
    assert not torch.equal(plain, result[0])
    for name, wrong in (("indices", pool.indices + 99), ("last_page_len", pool.last + 4)):
        lists = dict(zip(("indptr", "indices", "last_page_len"), pool.lists)) | {name: wrong}
        wrapper = decode_wrapper("HND")
        wrapper.plan(**lists, num_qo_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, page_size=PAGE, **options)
        with pytest.raises(sg.ShadowgraphError, match=name):
            wrapper.run(q[:4], pool.kv)


def test_planes_may_have_strides_of_their_own():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    want = decode_plan(decode_wrapper(), pool).run(q, pool.kv)
    wide = torch.zeros(*pool.v.shape[:3], 2 * DIM)
    wide[..., DIM:] = pool.v
    assert torch.equal(decode_plan(decode_wrapper(), pool).run(q, (pool.k, wide[..., DIM:])), want)
