"""Facts that FlashInfer's own tests ask of shadowgraph.flashinfer, and wrong calls that it refuses."""

import numpy
import oracle
import pytest
import reference
import torch
from pools import BF16, DIM, F16, F32, HEADS, KV_HEADS, LENS, PAGE, Q_LENS, SCALE, Pool, clean, drawn, every, qo_indptr

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer

CKV, KPE = 16, 8


def decode(pool, dtype=F32, **options):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE, q_data_type=dtype, **options)
    return wrapper


def prefill(pool, dtype=F32, **options):
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    wrapper.plan(qo_indptr(), *pool.lists, HEADS, KV_HEADS, DIM, PAGE, q_data_type=dtype, **options)
    return wrapper


def ragged(dtype=F32, **options):
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
    wrapper.plan(qo_indptr(), qo_indptr(LENS), HEADS, KV_HEADS, DIM, q_data_type=dtype, **options)
    return wrapper


def latents(pool, dtype=F32, indptr=None):
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
    indptr = pool.indptr if indptr is None else indptr
    wrapper.plan(qo_indptr(), indptr, pool.indices, pool.seq_lens, HEADS, CKV, KPE, PAGE, False, 0.3, dtype, dtype)
    return wrapper


class Runs:
    """A run of each wrapper, planned for dtype: (name, run, arguments)."""

    def __init__(self, dtype=F32):
        pool, latent = Pool(dtype=dtype), Pool(dtype=dtype, kv_heads=1, dim=CKV + KPE)
        self.q, query = (drawn(sum(Q_LENS), HEADS, n, dtype=dtype) for n in (DIM, CKV + KPE))
        k, v, c = torch.cat(pool.keys), torch.cat(pool.values), latent.k[:, :, 0]
        self.all = {
            "decode": (decode(pool, dtype).run, {"q": self.q[:4], "paged_kv_cache": pool.kv}),
            "prefill": (prefill(pool, dtype).run, {"q": self.q, "paged_kv_cache": pool.kv}),
            "ragged": (ragged(dtype).run, {"q": self.q, "k": k, "v": v}),
            "mla": (
                latents(latent, dtype).run,
                {"q_nope": query[..., :CKV], "q_pe": query[..., CKV:], "ckv_cache": c[..., :CKV], "kpe_cache": c[..., CKV:]},
            ),
        }


WRAPPERS = ["decode", "prefill", "ragged", "mla"]


@pytest.mark.parametrize("name", WRAPPERS)
def test_an_lse_that_is_given_is_written_whatever_is_returned(name):
    run, arguments = Runs().all[name]
    out, lse = run(**arguments, return_lse=True)
    mine = torch.full_like(lse, 7.0)
    assert torch.equal(run(**arguments, lse=mine), out) and torch.equal(mine, lse)


def test_trtllm_decode_writes_an_lse_that_is_given():
    pool, q = Pool([7, 3, 4, 9]), drawn(4, HEADS, DIM)
    call = lambda **more: flashinfer.trtllm_batch_decode_with_kv_cache(  # noqa: E731
        q, pool.kv, None, pool.table, pool.seq_lens, 9, SCALE, kv_layout="NHD", **more
    )
    out, lse = call(return_lse=True)
    mine = torch.full_like(lse, 7.0)
    assert torch.equal(call(lse=mine), out) and torch.equal(mine, lse)
    # as a wrapper, bit for bit
    assert torch.equal(decode(pool).run(q, pool.kv), out)
    log2 = torch.tensor([SCALE * numpy.log2(numpy.e)], dtype=F32)
    result = flashinfer.trtllm_batch_decode_with_kv_cache(
        q, pool.kv, None, pool.table, pool.seq_lens, 9, torch.tensor(9.0), kv_layout="NHD", bmm1_scale_log2=log2, return_lse=True
    )
    clean(pool, every([1] * 4, pool.lens), q, result, sm_scale=float(log2) * numpy.log(2))


def test_a_causal_mask_of_drafts_is_what_a_call_does():
    pool, q = Pool([7, 3, 4, 9]), drawn(8, HEADS, DIM)
    call = lambda mask, **more: flashinfer.trtllm_batch_decode_with_kv_cache(  # noqa: E731
        q, pool.kv, None, pool.table, pool.seq_lens, 9, SCALE, kv_layout="NHD", q_len_per_req=2, mask=mask, **more
    )
    causal = numpy.tile(numpy.array([[1, 0], [3, 0]], numpy.uint16), (4, 1, 1))
    assert torch.equal(call(causal), call(None)) and torch.equal(call(causal * 0, backend="trtllm-gen"), call(None))
    with pytest.raises(NotImplementedError, match=r"mask=…"):
        call(causal * 0 + 3)


@pytest.mark.parametrize("backend", ["trtllm-gen", "cute-dsl"])
def test_runs_of_some_backends_have_a_q_len_of_their_own(backend):
    lens = [7, 3, 4, 9]
    pool, q = Pool(lens), drawn(8, HEADS, DIM)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, backend=backend)
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    result = wrapper.run(q, pool.kv, q_len_per_req=2, return_lse=True)
    clean(pool, every([2] * 4, lens, causal=True), q, result)
    assert torch.equal(wrapper.run(q, pool.kv), result[0])
    clean(pool, every([1] * 4, lens), q[:4], wrapper.run(q[:4], pool.kv, return_lse=True))
    with pytest.raises(ValueError, match="q_len_per_req"):
        wrapper.run(q[:7], pool.kv)


def test_latents_ignore_entries_of_kv_indptr_behind_the_batch():
    pool = Pool(kv_heads=1, dim=CKV + KPE)
    run, arguments = Runs().all["mla"]
    longer = torch.cat([pool.indptr, torch.tensor([99, 3], dtype=torch.int32)])
    assert torch.equal(latents(pool, indptr=longer).run(**arguments), run(**arguments))


def test_latents_with_more_pages_than_keys():
    pool = Pool(kv_heads=1, dim=CKV + KPE)
    run, arguments = Runs().all["mla"]
    want, pages = run(**arguments), numpy.diff(pool.indptr)
    lists = [pool.indices[a:b].tolist() + [0] * 2 for a, b in zip(pool.indptr, pool.indptr[1:])]
    pool.indptr, pool.indices = qo_indptr(pages + 2), torch.tensor(sum(lists, []), dtype=torch.int32)
    assert torch.equal(latents(pool).run(**arguments), want)


def test_cutlass_latents_come_without_a_plan():
    lens = [7, 3, 4, 9]
    pool, q = Pool(lens, dtype=BF16, kv_heads=1, dim=CKV + KPE), drawn(4, HEADS, CKV + KPE, dtype=BF16)
    pool.values, c = [k[..., :CKV] for k in pool.keys], pool.k[:, :, 0]
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None, backend="cutlass")
    parts = q[..., :CKV], q[..., CKV:], c[..., :CKV], c[..., CKV:]
    out = wrapper.run(*parts, kv_len=pool.seq_lens, page_table=pool.table)
    clean(pool, every([1] * 4, lens), q, out, sm_scale=192**-0.5)
    with pytest.raises(sg.ShadowgraphError, match="page_table"):
        wrapper.run(*parts, kv_len=pool.seq_lens, page_table=pool.table * 0 + 99)


def test_trtllm_ragged():
    pool, q = Pool(dtype=BF16, head_dim_vo=16), drawn(sum(Q_LENS), HEADS, DIM, dtype=BF16)
    k, v, lens = torch.cat(pool.keys), torch.cat(pool.values), qo_indptr(LENS)
    sizes = pool.seq_lens, 4, 9
    call = lambda kv=lens, **more: flashinfer.prefill.trtllm_ragged_attention_deepseek(  # noqa: E731
        q, k, v, None, *sizes, torch.tensor(0.3), 2.0, -1.0, 4, 2, qo_indptr(), kv, None, True, True, **more
    )
    out, lse = call()
    masks = every(Q_LENS, LENS, causal=True, window_left=2)
    rows = oracle.rows_of(pool.keys, masks), oracle.rows_of(pool.values, masks)
    judged = lambda out: oracle.findings(q, *rows, out, lse, base2=True, sm_scale=0.3, out_scale=2.0)  # noqa: E731
    assert out.shape == (sum(Q_LENS), HEADS, 16) and not judged(out) and judged(out * 1.0625)
    with pytest.raises(sg.ShadowgraphError, match="cum_seq_lens_kv"):
        call(lens[:4])
    with pytest.raises(NotImplementedError, match=r"trtllm_ragged_attention_deepseek\(sage_attn_sfs=…\)"):
        call(sage_attn_sfs=(q, None, None, None))


@pytest.mark.parametrize("q_len", [1, 2])
def test_sparse_latents_are_tokens_of_the_pool(q_len):
    pool, rows = Pool([7, 5, 4, 9], dtype=BF16, kv_heads=1, dim=CKV + KPE), 4 * q_len
    q, flat = drawn(4, q_len, HEADS, CKV + KPE, dtype=BF16), pool.k.reshape(-1, CKV + KPE)
    token = lambda row, i: int(pool.table[row, i // PAGE]) * PAGE + i % PAGE  # noqa: E731
    seen = [[0, 3], [4], [1, 2, 3], [], [2], [3, 0], [8, 4], [6]][:rows]
    table = torch.full((rows, 3), -1, dtype=torch.int32)
    for row, keys in enumerate(seen):
        table[row, : len(keys)] = torch.tensor([token(row // q_len, i) for i in keys], dtype=torch.int32)
    call = lambda table, **more: flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(  # noqa: E731
        q, pool.k[:, None, :, 0], None, CKV, CKV, KPE, table, pool.seq_lens, 9, 3, bmm1_scale=0.3, return_lse=True, **more
    )
    out, lse = call(table.reshape(4, q_len, 3))
    keys = [flat[ids[ids >= 0].long()][:, None] for ids in table]
    judged = lambda out: oracle.findings(  # noqa: E731
        q.flatten(0, 1), keys, [k[..., :CKV] for k in keys], out.flatten(0, 1), lse, base2=True, sm_scale=0.3
    )
    assert out.shape == (4, q_len, HEADS, CKV) and not judged(out) and judged(out * 1.0625)
    lens = torch.tensor([len(keys) for keys in seen], dtype=torch.int32)
    rest = torch.where(table < 0, torch.full_like(table, 2147480000), table)
    mine = torch.empty(4, q_len, HEADS)
    again = call(rest, sparse_mla_top_k_lens=lens, lse=mine)
    assert torch.equal(again[0], out) and again[1] is mine and torch.equal(mine.flatten(0, 1), lse)


def bias(heads, queries, keys):
    """[heads, queries, keys] of ALiBi: positions count from the first query and the first key."""
    slopes = {4: [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], 3: [2.0**-4, 2.0**-8, 2.0**-2]}[heads]
    return numpy.array(slopes)[:, None, None] * (numpy.arange(keys) - numpy.arange(queries)[:, None])


@pytest.mark.parametrize("heads", [4, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_alibi_counts_from_a_requests_first_query_and_key(causal, heads):
    k, v, q = drawn(7, 1, DIM, seed=1), drawn(7, 1, DIM, seed=2), drawn(3, heads, DIM, seed=3)

    def judged(got, q, queries, causal):
        see = reference.seen(queries, 7, causal)
        want = reference.attention(q, k, v, see, SCALE, bias=bias(heads, queries, 7))
        lse = got[1] / numpy.log2(numpy.e)
        want.lse_error += 2 * reference.EPS * (abs(want.lse) + abs(bias(heads, queries, 7)).max())  # the shift, and this quotient
        assert reference.far(got[0], want.out, want.out_error) <= 1 < reference.far(got[0] * 1.01, want.out, want.out_error)
        assert reference.far(lse, want.lse, want.lse_error) <= 1 < reference.far(lse + 0.01, want.lse, want.lse_error)

    options = {"pos_encoding_mode": "ALIBI", "return_lse": True}
    judged(flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal, **options), q, 3, causal)
    judged([x[None] for x in flashinfer.single_decode_with_kv_cache(q[0], k, v, **options)], q[:1], 1, False)


def test_alibi_of_pages_is_that_of_packed_keys():
    pool, q = Pool(), drawn(sum(Q_LENS), HEADS, DIM)
    mode = {"pos_encoding_mode": "ALIBI"}
    paged = prefill(pool, causal=True, **mode).run(q, pool.kv, return_lse=True)
    packed = ragged(causal=True, **mode).run(q, torch.cat(pool.keys), torch.cat(pool.values), return_lse=True)
    assert all(map(torch.equal, paged, packed))
    single = flashinfer.single_prefill_with_kv_cache(q[:3], pool.keys[0], pool.values[0], causal=True, return_lse=True, **mode)
    assert all(torch.equal(a, b[:3]) for a, b in zip(single, paged))
    out = decode(pool, **mode).run(q[:4], pool.kv, return_lse=True)
    one = flashinfer.single_decode_with_kv_cache(q[2], pool.keys[2], pool.values[2], return_lse=True, **mode)
    assert all(torch.equal(a, b[2]) for a, b in zip(one, out)) and (out[1][1] == -torch.inf).all()
    assert torch.equal(decode(pool).forward(q[:4], pool.kv, **mode), out[0])


def test_alibi_below_a_soft_cap_is_refused():
    for plan in (decode, prefill):
        with pytest.raises(NotImplementedError, match=r"plan\(pos_encoding_mode=…\)"):
            plan(Pool(), pos_encoding_mode="ALIBI", logits_soft_cap=1.0)
    with pytest.raises(KeyError, match="ROPE"):
        decode(Pool(), pos_encoding_mode="ROPE")


def test_a_threshold_below_rounding_skips_nothing():
    run, arguments = Runs().all["decode"]
    assert torch.equal(run(**arguments, skip_softmax_threshold_scale_factor=1e-30), run(**arguments))


@pytest.mark.parametrize("name", WRAPPERS)
def test_types_are_those_of_the_plan(name):
    """As upstream: kernels are of the plan's types."""
    run, arguments = Runs(F16).all[name]
    run(**arguments)
    for argument, value in arguments.items():
        other = tuple(x.bfloat16() for x in value) if isinstance(value, tuple) else value.bfloat16()
        with pytest.raises(ValueError, match=f"{argument}.dtype is bfloat16, and .*_data_type was planned as float16"):
            run(**arguments | {argument: other})
    with pytest.raises(ValueError, match="out.dtype is float32"):
        run(**arguments, out=torch.empty(run(**arguments).shape))


def test_a_default_type_is_float16_and_lets_f32_in():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
    assert wrapper.run(q, pool.kv).dtype == F32 and wrapper.run(q.half(), [x.half() for x in pool.kv]).dtype == F16
    with pytest.raises(ValueError, match="q_data_type was planned as float16"):
        wrapper.run(q.bfloat16(), [x.bfloat16() for x in pool.kv])
    with pytest.raises(ValueError, match="q.dtype is float32"):
        decode(pool, F16).run(q, pool.kv)
    wrapper.plan(*pool.lists, HEADS, KV_HEADS, DIM, PAGE, q_data_type=BF16, data_type=F16)
    assert wrapper.run(q.bfloat16(), [x.half() for x in pool.kv]).dtype == BF16
    with pytest.raises(ValueError, match="kv_data_type was planned as float16"):
        wrapper.run(q.bfloat16(), [x.bfloat16() for x in pool.kv])


def test_a_run_comes_after_a_plan():
    for kind, count in (("BatchDecodeWithPagedKVCacheWrapper", 2), ("BatchPrefillWithPagedKVCacheWrapper", 2)) + (
        ("BatchPrefillWithRaggedKVCacheWrapper", 3), ("BatchMLAPagedAttentionWrapper", 4)
    ):  # fmt: skip
        wrapper = getattr(flashinfer, kind)(None)
        with pytest.raises(RuntimeError, match=f"{kind}.run: plan comes before it"):
            wrapper.run(*[drawn(1, 1, 1)] * count)
    with pytest.raises(ValueError, match="prior plan"):
        flashinfer.fast_decode_plan(
            flashinfer.BatchDecodeWithPagedKVCacheWrapper(None), *Pool().lists, HEADS, KV_HEADS, DIM, PAGE, q_len_per_req=2
        )


def test_packed_keys_have_the_sizes_of_the_plan():
    run, arguments = Runs().all["ragged"]
    for changed in ({"q": drawn(10, 2, DIM)}, {"k": arguments["k"][:, :1]}, {"v": arguments["v"][:, :1]}, {"k": arguments["k"][..., :8]}):
        with pytest.raises(sg.ShadowgraphError, match="as planned") as caught:
            run(**arguments | changed)
        assert caught.value.findings[0].field in changed


def test_engines_find_what_they_read_of_a_plan():
    """mini-SGLang shares workspaces, vLLM asserts the layer of a plan."""
    for plan, causal in ((decode, {}), (prefill, {"causal": True})):
        wrapper = plan(Pool(), window_left=2, sm_scale=0.5, **causal)
        wrapper._int_workspace_buffer = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)._int_workspace_buffer
        assert (wrapper._window_left, wrapper._logits_soft_cap, wrapper._sm_scale) == (2, 0.0, 0.5)
        assert not causal or wrapper._causal


def test_pages_of_one_token_may_lack_their_axis():
    pool, q = Pool(), drawn(4, HEADS, DIM)
    k, v, lists = torch.cat(pool.keys), torch.cat(pool.values), (qo_indptr(LENS), torch.arange(20).int(), torch.tensor([1, 0, 1, 1]))
    for kv_layout in ("NHD", "HND"):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, kv_layout)
        wrapper.plan(*lists, HEADS, KV_HEADS, DIM, 1)
        result = wrapper.run(q, (k, v), return_lse=True)
        clean(pool, every([1] * 4, LENS), q, result)
        assert torch.equal(wrapper.run(q, torch.stack([k, v], 1)), result[0])


def test_sinks_come_by_position_where_a_wrapper_says_so():
    pool, q, sinks = Pool(), drawn(sum(Q_LENS), HEADS, DIM), drawn(HEADS)
    want = prefill(pool, causal=True, sm_scale=0.3).run(q, pool.kv, sinks=sinks)
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(None, q_data_type=F32, kv_data_type=F32)
    wrapper.plan(qo_indptr(), *pool.lists, HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type=F32)
    assert torch.equal(wrapper.run(q, pool.kv, sinks, 0.3), want)
    packed = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, jit_args=[None] * 11 + ["AttentionSink", "declaration"])
    packed.plan(qo_indptr(), qo_indptr(LENS), HEADS, KV_HEADS, DIM, causal=True, q_data_type=F32)
    assert torch.equal(packed.run(q, torch.cat(pool.keys), torch.cat(pool.values), sinks, 0.3), want)
    assert not torch.equal(prefill(pool, causal=True, sm_scale=0.3).run(q, pool.kv), want)


def test_batch_attention_is_a_prefill_by_lengths():
    pool, q = Pool(dtype=BF16), drawn(sum(Q_LENS), HEADS, DIM, dtype=BF16)
    wrapper = flashinfer.BatchAttention()
    lists = qo_indptr(), pool.indptr, pool.indices, pool.seq_lens
    wrapper.plan(*lists, HEADS, KV_HEADS, DIM, DIM, PAGE, causal=True)
    result = wrapper.run(q, pool.kv)
    clean(pool, every(Q_LENS, LENS, causal=True), q, result)
    with pytest.raises(ValueError, match="logits_soft_cap"):
        wrapper.run(q, pool.kv, logits_soft_cap=1.0)
    with pytest.raises(sg.ShadowgraphError, match=r"kv_indptr\[2\] is 1, expected 2 pages of 5 keys"):
        wrapper.plan(*lists[:3], torch.tensor([7, 0, 5, 9]), HEADS, KV_HEADS, DIM, DIM, PAGE)


@pytest.mark.parametrize("stage", ["decode", "prefill"])
def test_a_shared_prefix_stands_before_each_requests_own_keys(stage):
    q_lens, lens = ([1] * 4, [7, 3, 4, 9]) if stage == "decode" else (Q_LENS, [7, 3, 4, 9])
    pool, q, k, v = Pool(lens), drawn(sum(q_lens), HEADS, DIM), drawn(5, KV_HEADS, DIM, seed=31), drawn(5, KV_HEADS, DIM, seed=32)
    if stage == "decode":
        wrapper = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(None)
        wrapper.begin_forward(*pool.lists, HEADS, KV_HEADS, DIM, PAGE)
        got = wrapper.forward(q, k, v, pool.kv)
    else:
        wrapper = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(None)
        wrapper.begin_forward(qo_indptr(), *pool.lists, HEADS, KV_HEADS, DIM, PAGE)
        got = wrapper.forward(q, k, v, pool.kv, causal=True)
    start = 0
    for r, (q_len, n) in enumerate(zip(q_lens, lens)):
        rows, keys, values = q[start : start + q_len], torch.cat([k, pool.keys[r]]), torch.cat([v, pool.values[r]])
        want = reference.attention(rows, keys, values, reference.seen(q_len, n + 5, causal=True), SCALE)
        one = reference.attention(rows, k, v, reference.seen(q_len, 5), SCALE)
        two = reference.attention(rows, pool.keys[r], pool.values[r], reference.seen(q_len, n, causal=True), SCALE)
        # a share of the merge is off by what its logarithms are, and by its own arithmetic
        share = one.lse_error + two.lse_error + 8 * reference.EPS
        error = one.out_error + two.out_error + share[..., None] * (abs(one.out) + abs(two.out))
        part = got[start : start + q_len]
        assert reference.far(part, want.out, error) <= 1 < reference.far(part * 1.01, want.out, error)
        start += q_len


def test_cudnns_offsets_of_elements_are_refused():
    for name in ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper"):
        with pytest.raises(NotImplementedError, match=rf"^{name}\(backend=…\)$"):
            getattr(flashinfer, name)(None, backend="cudnn")


def test_workspaces_are_aligned_and_of_any_size():
    odd = torch.empty(17, dtype=torch.uint8)[1:]
    for kind in ("BatchDecode", "BatchPrefill"):
        wrapper = getattr(flashinfer, kind + "WithPagedKVCacheWrapper")
        with pytest.raises(ValueError, match="float_workspace_buffer must be 16-byte aligned"):
            wrapper(odd)
        sizes = wrapper(odd[:0]).workspace_size(*Pool().lists)
        buffers = [torch.empty(n, dtype=torch.uint8) for n in sizes]
        wrapper(buffers[0]).reset_workspace_buffer(*buffers)
        with pytest.raises(ValueError, match="int_workspace_buffer must be 16-byte aligned"):
            wrapper(None).reset_workspace_buffer(buffers[0], odd)


def test_latents_of_fp8_want_bf16_queries():
    wrapper, pool = flashinfer.BatchMLAPagedAttentionWrapper(None), Pool(kv_heads=1)
    lists = qo_indptr(), pool.indptr, pool.indices, pool.seq_lens
    with pytest.raises(ValueError, match="q_data_type=torch.bfloat16"):
        wrapper.plan(*lists, HEADS, CKV, KPE, PAGE, False, 1.0, F16, "float8_e4m3fn")


def test_items_behind_a_prefix_see_it_and_themselves():
    """a: the prefix, d: a delimiter, the rest two items: a a d x x d y, and a d z."""
    lens, places = [7, 3], numpy.array([0, 1, 2, 0, 1, 0, 1, 0, 0, 0], numpy.uint16)
    pool, q = Pool(lens), drawn(7, HEADS, DIM)
    rows = {4: [0, 1, 3, 4], 3: [0, 1, 3], 2: [0, 1], 5: [0, 1], 6: [0, 1, 6]}  # what the last five tokens of the first prompt see
    masks = [numpy.zeros((5, 7), bool), numpy.zeros((2, 3), bool)]
    for i, keys in rows.items():
        masks[0][i - 2, keys] = True
    masks[1][0, 0] = masks[1][1, [0, 2]] = True
    items = {"prefix_len_ptr": torch.tensor([2, 1]), "token_pos_in_items_ptr": places, "token_pos_in_items_len": 5}
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    wrapper.plan(qo_indptr([5, 2]), *pool.lists, HEADS, KV_HEADS, DIM, PAGE, causal=True, **items)
    result = wrapper.run(q, pool.kv, return_lse=True)
    clean(pool, masks, q, result)
    packed = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
    packed.plan(qo_indptr([5, 2]), qo_indptr(lens), HEADS, KV_HEADS, DIM, causal=True, **items)
    assert torch.equal(packed.run(q, torch.cat(pool.keys), torch.cat(pool.values)), result[0])
    packed.plan(qo_indptr([5]), qo_indptr(lens[:1]), HEADS, KV_HEADS, DIM, **items | {"prefix_len_ptr": torch.tensor(2)})
    assert torch.equal(packed.run(q[:5], pool.keys[0], pool.values[0]), result[0][:5])
    with pytest.raises(sg.ShadowgraphError, match="token_pos_in_items_ptr is 6, expected 7 places"):
        packed.plan(qo_indptr([5, 2]), qo_indptr(lens), HEADS, KV_HEADS, DIM, **items | {"token_pos_in_items_ptr": places[:6]})
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (3, 3, 9, 2)]
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, *buffers)
    with pytest.raises(NotImplementedError, match=r"plan\(prefix_len_ptr=…\)"):
        wrapper.plan(qo_indptr([5, 2]), *pool.lists, HEADS, KV_HEADS, DIM, PAGE, **items)


def test_layouts_have_a_name():
    q, k = drawn(1, HEADS, DIM), drawn(7, KV_HEADS, DIM)
    for call in (
        lambda: flashinfer.single_prefill_with_kv_cache(q, k, k, kv_layout="NDH"),
        lambda: flashinfer.single_decode_with_kv_cache(q[0], k, k, "NDH"),
        lambda: flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, "NDH"),
        lambda: flashinfer.append_paged_kv_cache(k, k, *[None] * 2, (k[None], k[None]), *[None] * 3, "NDH"),
        lambda: flashinfer.trtllm_batch_decode_with_kv_cache(q, (k, k), *[None] * 4, kv_layout="NDH"),
    ):
        with pytest.raises(KeyError, match="Invalid kv_layout NDH"):
            call()


def test_lists_are_integers_and_buffers_of_graphs_int32():
    pool = Pool()
    pool.last = pool.last.float()
    for plan, name in ((decode, "last_page_len"), (prefill, "paged_kv_last_page_len")):
        with pytest.raises(sg.ShadowgraphError, match=f"{name} is float32, expected int32"):
            plan(pool)
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (5, 9, 4)]
    for i in range(3):
        some = [b.long() if i == j else b for j, b in enumerate(buffers)]
        with pytest.raises(ValueError, match="_buffer is int64, and kernels read int32"):
            flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *some)


def test_trtllm_out_is_of_out_dtype():
    pool, q = Pool([7, 3, 4, 9], dtype=F16), drawn(4, HEADS, DIM, dtype=F16)
    with pytest.raises(ValueError, match="out.dtype is float32, and out_dtype float16"):
        flashinfer.trtllm_batch_decode_with_kv_cache(
            q, pool.kv, None, pool.table, pool.seq_lens, 9, SCALE, kv_layout="NHD", out=torch.empty(q.shape), out_dtype=F16
        )


def test_a_graph_has_all_its_buffers_and_no_more_rows_than_at_first():
    ints = lambda n: torch.zeros(n, dtype=torch.int32)  # noqa: E731
    pool = Pool()
    buffers = ints(5), ints(5), ints(len(pool.indices)), ints(4)
    for missing in range(4):
        some = [None if i == missing else b for i, b in enumerate(buffers)]
        with pytest.raises(ValueError, match="should be a tensor in CUDA graph mode"):
            flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, *some)
        if missing:
            with pytest.raises(ValueError, match="should be a tensor in CUDA graph mode"):
                flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *some[1:])
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, *buffers)
    plan = lambda q_lens: wrapper.plan(qo_indptr(q_lens), *pool.lists, HEADS, KV_HEADS, DIM, PAGE)  # noqa: E731
    plan([3, 2, 4, 1])
    plan([2, 2, 4, 1])
    with pytest.raises(ValueError, match="11 rows in all, and the first plan of the CUDA graph 10"):
        plan([3, 2, 4, 2])
