"""Upstream's own tests ask this of the drop-ins around flash-attention."""

import functools
import math

import numpy
import pytest
import torch
from flash_calls import DIM, HEADS, KV_HEADS, TABLE, cached, drawn, int32
from reference import attention, far, same, seen

import shadowgraph as sg
from shadowgraph import flash_attn, flash_attn_3, sgl_kernel, vllm
from shadowgraph.sgl_kernel import flash_mla
from shadowgraph.torch import cpu_graphs, scaled_dot_product_attention

INF = math.inf


# Paged caches.


@pytest.mark.parametrize(("call", "table"), [
    (flash_attn.flash_attn_with_kvcache, "block_table"), (flash_attn_3.flash_attn_with_kvcache, "page_table"),
    (sgl_kernel.flash_attn.flash_attn_with_kvcache, "page_table"),
])
def test_keys_need_no_more_pages_than_the_table_has(call, table):
    full = cached(**{table: int32([[1, 3], [0, 5]])})
    call(**full | {"cache_seqlens": int32([4, 4])})
    with pytest.raises(RuntimeError, match=rf"len.capacity: cache_seqlens\[1\] is 5.*{table}"):
        call(**full | {"cache_seqlens": int32([4, 5])})
    new = {"k": drawn(2, 1, KV_HEADS, DIM), "v": drawn(2, 1, KV_HEADS, DIM)}
    before = full["k_cache"].clone()
    with pytest.raises(RuntimeError, match=rf"cache_seqlens\[1\] is 5.*{table}"):
        call(**full, **new)
    assert torch.equal(full["k_cache"], before)
    call(**full | {"cache_seqlens": int32([3, 3])}, **new)
    assert torch.equal(full["k_cache"][5, 1], new["k"][1, 0]) and torch.equal(full["k_cache"][3, 1], new["k"][0, 0])


@pytest.mark.parametrize("call", [flash_attn_3.flash_attn_with_kvcache, sgl_kernel.flash_attn.flash_attn_with_kvcache])
def test_cache_batch_idx_picks_the_row_of_page_table(call):
    table = int32([[1, 3], [0, 5], [2, 4]])
    want = call(**cached(page_table=table[[2, 0]]))
    assert torch.equal(call(**cached(page_table=table, cache_batch_idx=int32([2, 0]))), want)
    with pytest.raises(sg.ShadowgraphError, match=r"cache_batch_idx\[1\] is 3"):
        call(**cached(page_table=table, cache_batch_idx=int32([2, 3])))


def test_cache_batch_idx_picks_the_row_of_a_cache():
    call = flash_attn.flash_attn_with_kvcache
    want = call(**cached(k_cache=drawn(6, 2, KV_HEADS, DIM, seed=2)[[4, 1]], v_cache=drawn(6, 2, KV_HEADS, DIM, seed=3)[[4, 1]], cache_seqlens=2))
    assert torch.equal(call(**cached(cache_batch_idx=int32([4, 1]), cache_seqlens=2)), want)
    with pytest.raises(sg.ShadowgraphError, match="table.page_id: cache_batch_idx"):
        call(**cached(cache_batch_idx=int32([4, 6]), cache_seqlens=2))


def test_new_keys_may_be_packed():
    call, table = flash_attn_3.flash_attn_with_kvcache, int32([[1, 3], [0, 5]])
    k, v = drawn(3, KV_HEADS, DIM, seed=8), drawn(3, KV_HEADS, DIM, seed=9)
    given = cached(cache_seqlens=int32([1, 2]), page_table=table, k=k, v=v, cu_seqlens_k_new=int32([0, 2, 3]))
    out = call(**given)
    assert torch.equal(given["k_cache"].view(12, KV_HEADS, DIM)[[3, 6, 10]], k)
    assert torch.equal(given["v_cache"].view(12, KV_HEADS, DIM)[[3, 6, 10]], v)
    assert torch.equal(out, call(**cached(k_cache=given["k_cache"], v_cache=given["v_cache"], cache_seqlens=int32([3, 3]), page_table=table)))
    for wrong in ([0, 2, 4], [0, 4, 3], [1, 2, 3], [0, 3]):
        before = given["k_cache"].clone()
        with pytest.raises(sg.ShadowgraphError, match="cu_seqlens_k_new"):
            call(**given | {"cu_seqlens_k_new": int32(wrong), "k": k + 1})
        assert torch.equal(given["k_cache"], before)


def test_a_length_may_be_one_number_or_all_keys():
    call = flash_attn.flash_attn_with_kvcache
    rows = cached(q=drawn(6, 1, HEADS, DIM), cache_seqlens=None)
    assert torch.equal(call(**rows), call(**rows | {"cache_seqlens": 2}))
    assert not torch.equal(call(**rows), call(**rows | {"cache_seqlens": 1}))


def in_f64(x, position, cos, sin, interleaved):
    """Rotary embedding of [tokens, heads, dim], and by how much the size of a result's terms exceeds it."""
    half, x = cos.shape[1], x.numpy().astype(numpy.float64)
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    result, size = x.copy(), abs(x)
    for i, (a, b) in enumerate(pairs):
        c, s = (t.numpy().astype(numpy.float64)[position, i][:, None] for t in (cos, sin))
        result[..., a], result[..., b] = x[..., a] * c - x[..., b] * s, x[..., a] * s + x[..., b] * c
        size[..., a] = size[..., b] = abs(x[..., a] * c) + abs(x[..., b] * s) + abs(x[..., a] * s) + abs(x[..., b] * c)
    return result, size


@pytest.mark.parametrize("moves", [{"causal": True}, {"window_size": (2, 1)}, {}])
@pytest.mark.parametrize("half", [2, 4])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("call", ["fa2", "fa3", "sgl"])
def test_rotary_turns_new_keys_and_queries_by_their_positions(call, interleaved, half, moves):
    function = {"fa2": flash_attn, "fa3": flash_attn_3, "sgl": sgl_kernel.flash_attn}[call].flash_attn_with_kvcache
    cos, sin, lens, firsts = drawn(9, half, seed=11), drawn(9, half, seed=12), [1, 2], [1, 2]
    k, v, q = drawn(2, 2, KV_HEADS, DIM, seed=8), drawn(2, 2, KV_HEADS, DIM, seed=9), drawn(2, 2, HEADS, DIM, seed=10)
    given = cached(q=q, cache_seqlens=int32(lens), k=k, v=v, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved, **moves)
    given["block_table" if call == "fa2" else "page_table"] = TABLE
    leftpad = [0, 1] if half == 4 and call != "fa2" else [0, 0]
    if call != "fa2":
        given["cache_leftpad"] = int32(leftpad)
    if call == "fa3":
        given["rotary_seqlens"] = int32(firsts := [4, 0])
    out, lse = function(**given, return_softmax_lse=True)
    for r in range(2):
        slots = [TABLE[r, i // 2].item() * 2 + i % 2 for i in range(lens[r] + 2)]
        keys, values_ = (given[n].view(12, KV_HEADS, DIM)[slots] for n in ("k_cache", "v_cache"))
        at = firsts[r] + numpy.arange(2)
        new, size = in_f64(k[r], at, cos, sin, interleaved)
        assert (abs(keys[-2:].numpy() - new) <= 3 * 2.0**-24 * size).all() and torch.equal(values_[-2:], v[r])
        queries, size = in_f64(q[r], at if moves else at[:1].repeat(2), cos, sin, interleaved)
        more = 3 * (size / numpy.where(queries == 0, 1, abs(queries))).max()
        see = seen(2, lens[r] + 2, moves.get("causal", False), moves.get("window_size", (-1, -1)), leftpad=leftpad[r])
        same(out[r], lse[r].t(), attention(queries, keys, values_, see, DIM**-0.5, more=more))
    plain = function(**given | {"rotary_cos": None, "rotary_sin": None})  # nobody reads rotary_seqlens then
    assert not torch.equal(plain, out)


def test_rotary_that_does_not_fit_is_refused_and_stores_nothing():
    rotary = {"rotary_cos": drawn(9, 4), "rotary_sin": drawn(9, 4), "block_table": TABLE}
    new = {"k": drawn(2, 1, KV_HEADS, DIM), "v": drawn(2, 1, KV_HEADS, DIM)}
    call = flash_attn.flash_attn_with_kvcache
    with pytest.raises(ValueError, match="rotary_cos needs k and v"):
        call(**cached(**rotary))
    for wrong in ({"rotary_cos": drawn(9, 5), "rotary_sin": drawn(9, 5)}, {"rotary_cos": drawn(3, 4), "rotary_sin": drawn(3, 4)}, {"rotary_sin": drawn(9, 3)}):
        given = cached(**rotary | wrong, **new, cache_seqlens=int32([2, 3]))
        before = given["k_cache"].clone()
        with pytest.raises(sg.ShadowgraphError, match="rotary_"):
            call(**given)
        assert torch.equal(given["k_cache"], before)


# Masks and scores.


def test_chunks_count_from_floor_where_queries_outnumber_keys():
    q, k, v = drawn(1, 7, HEADS, DIM), drawn(1, 3, KV_HEADS, DIM, seed=2), drawn(1, 3, KV_HEADS, DIM, seed=3)
    out, lse = flash_attn_3.flash_attn_func(q, k, v, attention_chunk=3, return_attn_probs=True)
    want = attention(q[0], k[0], v[0], seen(7, 3, chunk=3), DIM**-0.5)
    assert numpy.isneginf(want.lse[3]).all() and numpy.isfinite(want.lse[4]).all()
    same(out[0], lse[0].t(), want)


def test_qv_of_a_latent_cache_needs_no_copy():
    latent = drawn(6, 2, 1, 24)
    rope, values_ = latent[..., 16:], latent[..., :16]
    from shadowgraph._tensors import beside

    assert beside(values_, rope).data_ptr() == latent.data_ptr() and torch.equal(beside(values_, rope), latent)
    array = latent.numpy()
    joined = beside(array[..., :16], array[..., 16:])
    assert numpy.shares_memory(joined, array) and numpy.array_equal(joined, array)
    for a, b in ((rope, values_), (values_, rope.clone()), (values_[..., :8], rope), (latent[:, :1, :, :16], latent[:, 1:, :, :16])):
        assert torch.equal(beside(a, b), torch.cat((a, b), -1))
        assert numpy.array_equal(beside(a.numpy(), b.numpy()), numpy.concatenate((a, b), -1))


def test_tensors_are_read_by_their_strides():
    packed = drawn(2, 5, 3, HEADS, DIM)
    q, k, v = packed.unbind(2)
    want = flash_attn.flash_attn_func(q.contiguous(), k.contiguous(), v.contiguous(), causal=True)
    assert torch.equal(flash_attn.flash_attn_func(q, k, v, causal=True), want)
    turned = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in (q, k, v)]
    assert torch.equal(flash_attn.flash_attn_func(*turned, causal=True), want)


def test_packed_calls_are_the_others():
    qkv, cu = drawn(2, 5, 3, HEADS, DIM), int32([0, 5, 10])
    want, flat = flash_attn.flash_attn_func(*qkv.unbind(2), causal=True), qkv.reshape(10, 3, HEADS, DIM)
    assert torch.equal(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True), want)
    assert torch.equal(flash_attn.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True), want)
    assert torch.equal(flash_attn.flash_attn_varlen_qkvpacked_func(flat, cu, 5, causal=True), want.view(10, HEADS, DIM))
    packed = flash_attn.flash_attn_varlen_kvpacked_func(flat[:, 0], flat[:, 1:], cu, cu, 5, 5, causal=True)
    assert torch.equal(packed, want.view(10, HEADS, DIM))
    with pytest.raises(sg.ShadowgraphError, match="input.shape: kv"):
        flash_attn.flash_attn_kvpacked_func(qkv[:, :, 0], qkv)


def test_a_longest_length_that_is_too_small_is_named_and_nothing_is_written():
    q, k, v = drawn(5, HEADS, DIM), drawn(5, KV_HEADS, DIM), drawn(5, KV_HEADS, DIM)
    out, cu = torch.full_like(q, 7.0), int32([0, 2, 5])
    for bounds, bad in (((2, 3), {"max_seqlen_q"}), ((3, 2), {"max_seqlen_k"}), ((0, 2), {"max_seqlen_q", "max_seqlen_k"})):
        with pytest.raises(sg.ShadowgraphError, match="len.bound: max_seqlen") as caught:
            sgl_kernel.flash_attn.flash_attn_varlen_func(q, k, v, cu, cu, *bounds, out=out)
        assert {f.field for f in caught.value.findings} == bad and (out == 7).all()
    used = {"seqused_q": int32([2, 2]), "seqused_k": int32([2, 1])}  # the longest of those that are used
    sgl_kernel.flash_attn.flash_attn_varlen_func(q, k, v, cu, cu, 2, 2, **used, out=out)
    assert (out[:4] != 7).all()


def test_the_inner_calls_of_flash_attn_are_those_that_others_import():
    from shadowgraph.flash_attn import _flash_attn_forward, _flash_attn_varlen_forward

    q, k, v = drawn(2, 3, HEADS, DIM), drawn(2, 5, KV_HEADS, DIM), drawn(2, 5, KV_HEADS, DIM, seed=2)
    options = (0.0, 0.3, False, -1, 0, 0.0, None)
    out, lse, _, _ = _flash_attn_forward(q, k, v, *options, False)
    want = flash_attn.flash_attn_func(q, k, v, softmax_scale=0.3, causal=True, return_attn_probs=True)
    assert torch.equal(out, want[0]) and torch.equal(lse, want[1])
    starts, used, packed = int32([0, 3, 6]), [5, 4], (t.flatten(0, 1) for t in (q, k, v))
    out, lse, _, _ = _flash_attn_varlen_forward(*packed, starts, int32([0, 5, 10]), 3, 5, *options, seqused_k=int32(used), leftpad_k=int32([0, 1]))
    for r in range(2):
        see = seen(3, used[r], True, leftpad=r)
        same(out[3 * r : 3 * r + 3], lse[:, 3 * r : 3 * r + 3].t(), attention(q[r], k[r, : used[r]], v[r, : used[r]], see, 0.3), INF)
    paged = functools.partial(_flash_attn_varlen_forward, q[0], k, v, int32([0, 3]), int32([0, 10]), 3, 10, *options, block_table=int32([[1, 0]]))
    same(paged()[0], paged()[1].t(), attention(q[0], k[[1, 0]].flatten(0, 1), v[[1, 0]].flatten(0, 1), seen(3, 10, True), 0.3), INF)
    assert torch.equal(paged(seqused_k=int32([10]))[0], paged()[0])
    for refused in ({"num_splits": 2}, {"leftpad_k": int32([1])}):
        with pytest.raises(RuntimeError, match="is not supported for varlen paged KV"):
            paged(**refused)


# Latents.


def latents(lens, dim=24, table=((1, 3, 0), (2, 4, 5))):
    cache = drawn(6, 2, dim)
    keys = [torch.stack([cache[row[i // 2], i % 2] for i in range(n)] or [cache[0, 0]])[:n, None] for row, n in zip(table, lens)]
    return cache, keys, int32(table)


@pytest.mark.parametrize("causal", [False, True])
def test_dense_mla_reads_nothing_behind_a_length(causal):
    lens = [3, 1]
    cache, keys, table = latents(lens)
    cache[3, 1], cache[2, 1], table[0, 2], table[1, 1:] = math.nan, math.nan, 2147480000, 2147480000
    q = drawn(2, 2, HEADS, 24, seed=4)
    schedule = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache[:, :, None], table, int32(lens), 16, *schedule, causal=causal)
    for r in range(2):
        see = seen(2, lens[r], causal)
        same(out[r], lse[r].t(), attention(q[r], keys[r], keys[r][..., :16], see, 24**-0.5), INF)
    assert causal == bool((lse[1, :, 0] == INF).all())


def test_metadata_of_mla():
    schedule, splits = flash_mla.get_mla_metadata(int32([3, 1]), HEADS, 1)
    assert schedule.dtype == splits.dtype == torch.int32 and splits.shape == (3,) and schedule.shape[1] == 8
    assert sgl_kernel.cutlass_mla_get_workspace_size(100, 2) == 0
    for call in (flash_attn_3, vllm.flash_attn):
        assert call.get_scheduler_metadata(2, 1, 8, 4, 2, 8, int32([3, 4])).dtype == torch.int32


def test_a_sink_of_mla_is_in_out_alone():
    lens, sinks = [3, 4], [0.5, 2.0, -1.0, 0.25]
    cache, keys, table = latents(lens)
    q = drawn(2, 1, HEADS, 24, seed=4)
    call = functools.partial(flash_mla.flash_mla_with_kvcache, q, cache[:, :, None], table, int32(lens), 16, None)
    out, lse = call(attn_sink=torch.tensor(sinks))
    for r in range(2):
        same(out[r], lse[r].t(), attention(q[r], keys[r], keys[r][..., :16], seen(1, lens[r]), 24**-0.5, sinks=sinks))
    assert torch.equal(lse, call()[1])


@pytest.mark.parametrize(("of_q", "of_k"), [([2.0], [0.5]), ([2.0, 0.5], [0.25, 3.0])])
def test_descales_of_latents(of_q, of_k):
    cache, keys, table = latents([3, 4])
    q = drawn(2, 1, HEADS, 24, seed=4)
    scales = {"descale_q": torch.tensor(of_q), "descale_k": torch.tensor(of_k)}
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache[:, :, None], table, int32([3, 4]), 16, None, **scales)
    for r in range(2):
        k = keys[r] * of_k[-1 if r else 0]
        same(out[r], lse[r].t(), attention(q[r] * of_q[-1 if r else 0], k, k[..., :16], seen(1, 3 + r), 24**-0.5))


def test_cutlass_mla_decode():
    lens = [3, 4]
    cache, keys, table = latents(lens)
    nope, rope = drawn(2, HEADS, 16, seed=4), drawn(2, HEADS, 8, seed=5)
    out = sgl_kernel.cutlass_mla_decode(nope, rope, cache, int32(lens), table, torch.empty(0), 0.3)
    for r in range(2):
        want = attention(torch.cat([nope, rope], -1)[r, None], keys[r], keys[r][..., :16], seen(1, lens[r]), 0.3)
        same(out[r, None], None, want)
    with pytest.raises(sg.ShadowgraphError, match=r"len.capacity: seq_lens\[0\] is 9.*page_table"):
        sgl_kernel.cutlass_mla_decode(nope, rope, cache, int32([9, 4]), table, torch.empty(0), 0.3)


# Merges.


def parts(tokens=3):
    """Halves of the keys, and the whole."""
    q, k, v = drawn(tokens, HEADS, DIM), drawn(8, KV_HEADS, DIM, seed=2), drawn(8, KV_HEADS, DIM, seed=3)
    halves = [flash_attn_3.flash_attn_func(q[None], k[None, a:b], v[None, a:b], return_attn_probs=True) for a, b in ((0, 5), (5, 8))]
    (v_a, s_a), (v_b, s_b) = ((out[0], lse[0]) for out, lse in halves)
    want = attention(q, k, v, seen(tokens, 8), DIM**-0.5)
    want.out_error, want.lse_error = 3 * want.out_error, 3 * want.lse_error  # two states' errors, and the merge's own sums
    return v_a, s_a, v_b, s_b, want


def test_merged_states_are_the_whole():
    v_a, s_a, v_b, s_b, want = parts()
    out, lse = sgl_kernel.merge_state_v2(v_a, s_a.t().contiguous(), v_b, s_b.t().contiguous())
    same(out, lse, want)
    assert far(v_a, want.out, want.out_error) > 100
    out, lse = torch.empty(3, HEADS, DIM), torch.empty(HEADS, 3)
    assert vllm.merge_attn_states(out, v_a, s_a, v_b, s_b, lse) is None
    same(out, lse.t(), want)
    out, lse = flash_attn_3.flash_attn_combine(torch.stack([v_a, v_b]), torch.stack([s_a.t(), s_b.t()]))
    same(out, lse, want)
    batched = flash_attn_3.flash_attn_combine(torch.stack([v_a, v_b])[:, None], torch.stack([s_a.t(), s_b.t()])[:, None], out_dtype=torch.bfloat16)
    assert batched[0].shape == (1, 3, HEADS, DIM) and batched[0].dtype == torch.bfloat16
    where = torch.empty(3, HEADS, DIM), torch.empty(3, HEADS)
    merged = sgl_kernel.merge_state_v2(v_a, s_a.t(), v_b, s_b.t(), *where)
    assert merged[0] is where[0] and merged[1] is where[1]


@pytest.mark.parametrize("empty", [INF, -INF])
def test_a_state_without_keys_has_no_weight(empty):
    v_a, s_a, v_b, s_b, _ = parts()
    s_a, s_b = s_a.t().clone(), s_b.t().clone()
    s_a[0], s_a[1], s_b[1] = empty, empty, empty
    out, lse = sgl_kernel.merge_state_v2(v_a, s_a, v_b, s_b)
    assert torch.equal(out[0], v_b[0]) and torch.equal(lse[0], s_b[0])
    assert out[1].isfinite().all() and (lse[1] == -INF).all()


def test_tokens_without_context_have_the_suffix():
    v_a, s_a, v_b, s_b, want = parts()
    out, lse = torch.empty(3, HEADS, DIM), torch.empty(HEADS, 3)
    s_b[0, 2] = INF  # taken as it is, too
    vllm.merge_attn_states(out, v_a, s_a, v_b, s_b, lse, 1)
    assert torch.equal(out[1:], v_b[1:]) and torch.equal(lse[:, 1:], s_b[:, 1:])
    in_place = v_b.clone()
    vllm.merge_attn_states(in_place, v_a, s_a, in_place, s_b, None, 1)
    assert torch.equal(in_place, out)
    assert far(out[:1], want.out[:1], want.out_error[:1]) <= 1


# Caches of vLLM.


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_slot_below_zero_drops_its_token(dtype):
    key, value = drawn(4, KV_HEADS, DIM), drawn(4, KV_HEADS, DIM, seed=2)  # the last one is padding
    caches = torch.zeros(2, 6, 2, KV_HEADS, DIM).unbind(0)
    vllm.reshape_and_cache_flash(key, value, *caches, torch.tensor([11, -1, 4], dtype=dtype), "auto", torch.tensor(2.0), torch.tensor(2.0))
    for cache, new in zip(caches, (key, value)):
        flat = cache.view(12, KV_HEADS, DIM)
        assert torch.equal(flat[[11, 4]], new[[0, 2]]) and flat.count_nonzero() == 2 * KV_HEADS * DIM


def test_fp8_caches_hold_values_by_their_scales():
    key, value = torch.full((1, 1, DIM), 4.0), torch.full((1, 1, DIM), 6.0)
    caches = torch.zeros(2, 2, 2, 1, DIM, dtype=torch.uint8).unbind(0)
    scales = torch.tensor(2.0), torch.tensor([4.0])
    vllm.reshape_and_cache_flash(key, value, *caches, torch.tensor([3]), "fp8", *scales)
    assert (caches[0][1, 1] == 0x40).all() and (caches[1][1, 1] == 0x3C).all()  # e4m3: 2 and 1.5
    with pytest.raises(NotImplementedError, match=r"^reshape_and_cache_flash\(kv_cache_dtype=…\)$"):
        vllm.reshape_and_cache_flash(key, value, *caches, torch.tensor([3]), "nvfp4", *scales)


def test_fp8_scales_of_heads_and_pages_of_another_order():
    key, value = torch.full((1, 2, DIM), 4.0), torch.tensor([6.0, 3.0])[None, :, None].expand(1, 2, DIM)
    caches = torch.zeros(2, 2, 2, 2, DIM, dtype=torch.uint8).transpose(2, 3).unbind(0)  # heads before the slots of a page
    vllm.reshape_and_cache_flash(key, value, *caches, torch.tensor([3]), "fp8", torch.tensor([2.0, 8.0]), torch.tensor([4.0, 1.5]))
    assert (caches[0][1, 1, 0] == 0x40).all() and (caches[0][1, 1, 1] == 0x30).all()  # e4m3: 2 and 0.5
    assert (caches[1][1, 1, 0] == 0x3C).all() and (caches[1][1, 1, 1] == 0x40).all()  # 1.5 and 2
    with pytest.raises(sg.ShadowgraphError, match="input.shape: k_scale"):
        vllm.reshape_and_cache_flash(key, value, *caches, torch.tensor([3]), "fp8", torch.ones(3), torch.ones(2))


def test_latents_are_stored_side_by_side():
    latent, rope, cache = drawn(3, 16), drawn(3, 8, seed=2), torch.zeros(6, 2, 24)
    vllm.concat_and_cache_mla(latent, rope, cache, torch.tensor([7, -1, 0]), "auto", torch.tensor(1.0))
    assert torch.equal(cache.view(12, 24)[[7, 0]], torch.cat([latent, rope], 1)[[0, 2]])
    assert cache.count_nonzero() == 2 * 24


# torch.


@pytest.mark.parametrize("mask", [None, "causal", (3, 5), (2, 1, 3, 5), (2, HEADS, 3, 5), (HEADS, 3, 5)])
@pytest.mark.parametrize("kind", ["seen", "added"])
def test_scaled_dot_product_attention(mask, kind):
    q, k, v = drawn(2, HEADS, 3, DIM), drawn(2, HEADS, 5, DIM, seed=2), drawn(2, HEADS, 5, 6, seed=3)
    given, see, bias = {}, numpy.ones((2, HEADS, 3, 5), bool), numpy.zeros((2, HEADS, 3, 5))
    if mask == "causal":
        given, see = {"is_causal": True}, numpy.broadcast_to(numpy.tri(3, 5, dtype=bool), see.shape)
    elif mask:
        given = {"attn_mask": drawn(*mask, seed=4)}
        if kind == "seen":
            given["attn_mask"] = given["attn_mask"] > -0.5
            see = numpy.broadcast_to(given["attn_mask"].numpy(), see.shape)
        else:
            bias = numpy.broadcast_to(given["attn_mask"].numpy(), see.shape)
    out = scaled_dot_product_attention(q, k, v, **given)
    assert out.shape == (2, HEADS, 3, 6)
    for r in range(2):
        same(out[r].transpose(0, 1), None, attention(*(x[r].transpose(0, 1) for x in (q, k, v)), see[r], DIM**-0.5, bias=bias[r]))


def test_scaled_dot_product_attention_takes_fewer_axes_and_groups():
    q, k, v = drawn(2, HEADS, 5, DIM), drawn(2, KV_HEADS, 5, DIM, seed=2), drawn(2, KV_HEADS, 5, DIM, seed=3)
    want = scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True, scale=0.3)
    assert torch.equal(scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True), want)
    assert torch.equal(scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True, scale=0.3, enable_gqa=True), want[0])
    assert torch.equal(scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0], is_causal=True, scale=0.3), want[0, 0])
    with pytest.raises(RuntimeError, match="enable_gqa"):
        scaled_dot_product_attention(q, k, v)
    with pytest.raises(RuntimeError, match="attn_mask and is_causal"):
        scaled_dot_product_attention(q, k, v, torch.ones(5, 5, dtype=torch.bool), is_causal=True)


# Launches.


def test_a_call_computes_when_it_is_launched_and_reads_its_tensors_then():
    lens = int32([1, 1])
    given = cached(cache_seqlens=lens, page_table=TABLE, k=drawn(2, 1, KV_HEADS, DIM), v=drawn(2, 1, KV_HEADS, DIM), q=drawn(2, 1, HEADS, DIM))
    kept, before = [], given["k_cache"].clone()
    token = sg.launcher.set(kept.append)
    try:
        out = sgl_kernel.flash_attn.flash_attn_with_kvcache(**given)
    finally:
        sg.launcher.reset(token)
    assert torch.equal(given["k_cache"], before) and len(kept) == 1
    lens += 2
    kept[0]()
    assert torch.equal(given["k_cache"][5, 1], given["k"][1, 0]) and not torch.equal(given["k_cache"], before)
    rest = {name: given[name] for name in ("q", "k_cache", "v_cache", "page_table")}
    assert torch.equal(out, sgl_kernel.flash_attn.flash_attn_with_kvcache(**rest, cache_seqlens=lens + 1))


GRAPHED = {
    "fa2": lambda g: flash_attn.flash_attn_with_kvcache(g["q"], g["k_cache"], g["v_cache"], cache_seqlens=g["lens"], block_table=TABLE),
    "fa3, new keys": lambda g: flash_attn_3.flash_attn_with_kvcache(
        g["q"], g["k_cache"], g["v_cache"], g["k"], g["v"], cache_seqlens=g["lens"], page_table=TABLE),
    "qv": lambda g: sgl_kernel.flash_attn.flash_attn_with_kvcache(
        g["q"], g["k_cache"], g["v_cache"], qv=g["q"], cache_seqlens=g["lens"], page_table=TABLE, causal=True),
    "sdpa": lambda g: scaled_dot_product_attention(g["q"].transpose(1, 2), *(g[n][:2].transpose(1, 2) for n in ("k_cache", "v_cache")), enable_gqa=True),
    "mla": lambda g: sgl_kernel.cutlass_mla_decode(
        g["q"][:, 0, :, :5], g["q"][:, 0, :, 5:], g["k_cache"][:, :, 0], g["lens"], TABLE, None, 0.5),
}


@pytest.mark.parametrize("name", GRAPHED)
def test_a_graph_of_a_call_reads_its_tensors_at_replay(name):
    call = GRAPHED[name]
    given = cached(k=drawn(2, 1, KV_HEADS, DIM, seed=8), v=drawn(2, 1, KV_HEADS, DIM, seed=9), lens=int32([1, 1]))
    before = given["k_cache"].clone()
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call(given)
        assert torch.equal(given["k_cache"], before)
        given["lens"] += 2
        given["q"] *= 2
        graph.replay()
    again = given | {"k_cache": before, "v_cache": given["v_cache"].clone()}
    assert torch.equal(out, call(again)) and torch.equal(again["k_cache"], given["k_cache"])
