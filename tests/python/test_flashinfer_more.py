"""Latents, trtllm calls, merges, cascades and pages of shadowgraph.flashinfer against the oracle."""

import functools

import numpy
import oracle
import pytest
import torch
from pools import BF16, DIM, F16, F32, HEADS, KV_HEADS, LENS, PAGE, Q_LENS, Pool, clean, drawn, every, qo_indptr

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer

CKV, KPE = 16, 8


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("causal", [False, True])
def test_mla(causal, dtype, apart):
    pool = Pool(dtype=dtype, kv_heads=1, dim=CKV + KPE)
    pool.values = [k[..., :CKV] for k in pool.keys]
    latents = pool.k[:, :, 0]
    ckv, kpe = (x.contiguous() if apart else x for x in (latents[..., :CKV], latents[..., CKV:]))
    q = drawn(sum(Q_LENS), HEADS, CKV + KPE, dtype=dtype)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(torch.empty(0))
    wrapper.plan(qo_indptr(), pool.indptr, pool.indices, pool.seq_lens, HEADS, CKV, KPE, PAGE, causal, 0.3, dtype, dtype)
    out, lse = wrapper.run(q[..., :CKV], q[..., CKV:], ckv, kpe, return_lse=True)
    assert out.shape == (sum(Q_LENS), HEADS, CKV) and lse.shape == (sum(Q_LENS), HEADS)
    masks = every(Q_LENS, LENS, causal=causal)
    clean(pool, masks, q, (out, lse), sm_scale=0.3)
    natural = wrapper.run(q[..., :CKV], q[..., CKV:], ckv, kpe, None, None, True, return_lse_base_on_e=True)
    clean(pool, masks, q, natural, sm_scale=0.3, base2=False)


def test_mla_without_a_rotary_part_and_with_graph_buffers():
    pool = Pool(kv_heads=1, dim=CKV)
    pool.values, q = pool.keys, drawn(4, HEADS, CKV)
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (5, 5, len(pool.indices) + 1, 4)]
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(torch.empty(0), True, *buffers)
    wrapper.plan(qo_indptr([1] * 4), pool.indptr, pool.indices, pool.seq_lens, HEADS, CKV, 0, PAGE, False, 0.3, F32, F32)
    assert torch.equal(buffers[3], pool.seq_lens)
    empty = torch.empty(4, HEADS, 0), torch.empty(*pool.k.shape[:2], 0)
    clean(pool, every([1] * 4, LENS), q, wrapper.run(q, empty[0], pool.k[:, :, 0], empty[1], return_lse=True), sm_scale=0.3)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
def test_trtllm_decode_and_context(kv_layout, shared):
    lens = [7, 3, 4, 9]
    pool, sinks = Pool(lens, kv_layout, dtype=BF16), drawn(HEADS)
    kv, table = pool.kv, pool.table
    if not shared:  # K of page p lies at 2 p of one pool, its V at 2 p + 1
        both = torch.stack(pool.kv, 1).reshape(-1, *pool.kv[0].shape[1:])
        kv, table = (both, both), torch.stack([table * 2, table * 2 + 1], 1)
    q = drawn(8, HEADS, DIM, dtype=BF16)
    options = {"kv_layout": kv_layout, "uses_shared_paged_kv_idx": shared, "return_lse": True}
    result = flashinfer.trtllm_batch_decode_with_kv_cache(
        q, kv, None, table, pool.seq_lens, 9, torch.tensor(0.3), 2.0, window_left=2, q_len_per_req=2, **options
    )
    clean(pool, every([2] * 4, lens, causal=True, window_left=2), q, result, sm_scale=0.3, out_scale=2.0)
    rows = drawn(sum(Q_LENS), HEADS, DIM, dtype=BF16)
    for causal in (True, False):
        given = (rows, kv, None, table, pool.seq_lens, 4, 9, 0.3, 1.0, 4, qo_indptr(), None)
        result = flashinfer.trtllm_batch_context_with_kv_cache(*given, causal=causal, out_dtype=F32, **options)
        assert result[0].dtype == F32
        clean(pool, every(Q_LENS, lens, causal=causal), rows, result, sm_scale=0.3)
    one = drawn(4, HEADS, DIM, dtype=BF16)
    out = flashinfer.trtllm_batch_decode_with_kv_cache(
        one, kv, None, table, pool.seq_lens, 9, 0.3, sinks=sinks, **options | {"return_lse": False}
    )
    shown = every([1] * 4, lens)
    assert not oracle.findings(one, oracle.rows_of(pool.keys, shown), oracle.rows_of(pool.values, shown), out, sm_scale=0.3, sinks=sinks)
    stacked = torch.stack(pool.kv, 1)
    assert torch.equal(
        flashinfer.trtllm_batch_decode_with_kv_cache(
            one, stacked, None, pool.table, pool.seq_lens, 9, 0.3, sinks=sinks, kv_layout=kv_layout
        ),
        out,
    )


def test_trtllm_mla():
    lens = [7, 3, 4, 9]
    pool = Pool(lens, kv_heads=1, dim=CKV + KPE)
    pool.values, q = [k[..., :CKV] for k in pool.keys], drawn(4, 2, HEADS, CKV + KPE)
    call = functools.partial(flashinfer.trtllm_batch_decode_with_kv_cache_mla, q, pool.k[:, :, 0], None, CKV, CKV, KPE)
    out, lse = call(pool.table, pool.seq_lens, 9, bmm1_scale=0.3, return_lse=True)
    assert out.shape == (4, 2, HEADS, CKV)
    clean(pool, every([2] * 4, lens, causal=True), q.flatten(0, 1), (out.flatten(0, 1), lse), sm_scale=0.3)
    two = torch.stack([pool.table, pool.table], 1)
    mine = torch.empty_like(out)
    assert call(two, pool.seq_lens, 9, bmm1_scale=0.3, uses_shared_paged_kv_idx=False, out=mine) is mine
    assert torch.equal(mine, out)


def test_merges():
    v, s = drawn(5, 3, HEADS, DIM, dtype=F16), drawn(5, 3, HEADS, seed=2)
    s[1, 0], s[2, 1] = -torch.inf, torch.inf
    known = s.clone()
    known[2, 1] = -torch.inf  # no mass either
    out, lse = flashinfer.merge_states(v, s)
    assert out.shape == (5, HEADS, DIM) and lse.shape == (5, HEADS) and not oracle.merge_findings(v, known, out, lse)
    off = out.clone()
    off[0, 0, 0] += 0.0625
    assert oracle.merge_findings(v, known, off, lse)
    two, two_s = flashinfer.merge_state(v[:, 0], s[:, 0], v[:, 1], s[:, 1])
    assert not oracle.merge_findings(v[:, :2], known[:, :2], two, two_s)
    mine, mine_s = v[:, 0].clone(), s[:, 0].clone()
    mask = torch.tensor([True, False, True, True, False])
    assert flashinfer.merge_state_in_place(mine, mine_s, v[:, 1], s[:, 1], mask) is None
    assert torch.equal(mine[mask], two[mask]) and torch.equal(mine_s[mask], two_s[mask])
    assert torch.equal(mine[~mask], v[:, 0][~mask]) and torch.equal(mine_s[~mask], s[:, 0][~mask])
    flashinfer.merge_state_in_place(mine, mine_s, v[:, 1], s[:, 1])
    s[:] = -torch.inf
    out, lse = flashinfer.merge_states(v, s)
    assert out.isfinite().all() and (lse == -torch.inf).all()
    numpy_out = flashinfer.merge_state(*(x.numpy() for x in (v[:, 0], known[:, 0], v[:, 1], known[:, 1])))[0]
    assert numpy.array_equal(numpy_out, two.numpy())


def test_cascade_is_attention_to_all_levels():
    # 8 keys that all share, and each request's own
    shared, own = Pool([8]), Pool([5, 3])
    q_lens, lens = [2, 3], [13, 11]
    k, v = (torch.cat([a, b]) for a, b in zip(shared.kv, own.kv))
    q, first = drawn(5, HEADS, DIM, dtype=F16), len(shared.k)
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, torch.empty(0))
    wrapper.plan(
        [torch.tensor([0, 5]).int(), qo_indptr(q_lens)], [shared.indptr, own.indptr], [shared.indices, own.indices + first],
        [shared.last, own.last], HEADS, KV_HEADS, DIM, PAGE, causal=True,
    )  # fmt: skip
    out = wrapper.run(q, (k, v))
    whole = Pool([1])
    whole.keys, whole.values = ([torch.cat([getattr(shared, n)[0], x]) for x in getattr(own, n)] for n in ("keys", "values"))
    masks = every(q_lens, lens, causal=True)
    assert out.dtype == F16
    clean(whole, masks, q, out, arithmetic="ours_merged", splits=2)


@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
@pytest.mark.parametrize("library", [lambda x: x, lambda x: x.numpy()], ids=["torch", "numpy"])
def test_appended_keys_are_where_the_lists_say(library, kv_layout):
    pool = Pool([7, 2, 4, 9], kv_layout)
    new = [3, 0, 1, 2]
    lens = flashinfer.get_seq_lens(library(pool.indptr), library(pool.last), PAGE)
    assert lens.tolist() == pool.lens
    indptr = library(torch.tensor([0, *numpy.cumsum(new)], dtype=torch.int32))
    rows, places = flashinfer.get_batch_indices_positions(indptr, lens, 8)
    assert rows.tolist() == [0, 0, 0, 2, 3, 3, -1, -1] and places.tolist()[:6] == [4, 5, 6, 3, 7, 8]
    k, v = drawn(8, KV_HEADS, DIM, seed=3), drawn(8, KV_HEADS, DIM, seed=4)
    cache = tuple(library(x.clone()) for x in pool.kv)
    lists = [library(x) for x in (pool.indices, pool.indptr, pool.last)]
    flashinfer.append_paged_kv_cache(library(k), library(v), rows, places, cache, *lists, kv_layout)
    for plane, old, added in zip(cache, pool.kv, (k, v)):
        want = old.clone() if kv_layout == "NHD" else old.transpose(1, 2).clone()
        for i in range(6):
            page = pool.indices[pool.indptr[rows[i]] + places[i] // PAGE]
            want[page, places[i] % PAGE] = added[i]
        want = want if kv_layout == "NHD" else want.transpose(1, 2)
        assert numpy.array_equal(numpy.asarray(plane), want.numpy(), equal_nan=True)
    places[2] = 99
    with pytest.raises(sg.ShadowgraphError, match=r"slot.range: positions\[2\] is 99, expected 0 <= position < 8"):
        flashinfer.append_paged_kv_cache(library(k), library(v), rows, places, cache, *lists, kv_layout)


def test_appended_latents():
    pool = Pool(kv_heads=1, dim=CKV + KPE)
    ckv, kpe = pool.k[:, :, 0, :CKV].clone(), pool.k[:, :, 0, CKV:].clone()
    new, rotary = drawn(2, CKV), drawn(2, KPE)
    flashinfer.append_paged_mla_kv_cache(
        new, rotary, torch.tensor([3, 0]), torch.tensor([8, 6]), ckv, kpe, pool.indices, pool.indptr, pool.last
    )
    for row, (request, place) in enumerate(((3, 8), (0, 6))):
        page = pool.table[request, place // PAGE]
        assert torch.equal(ckv[page, place % PAGE], new[row]) and torch.equal(kpe[page, place % PAGE], rotary[row])
