"""shadowgraph.flashinfer refuses options by name, and names wrong input by FlashInfer's arguments."""

import inspect

import pytest
import torch
from pools import DIM, F32, HEADS, KV_HEADS, PAGE, Pool, drawn, qo_indptr

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer

LENS, CKV, KPE = [7, 3, 4, 9], 16, 8


class Calls:
    """Each call of the module, right: a function and its arguments. Outputs are the caller's where it has any."""

    def __init__(self):
        self.pool, self.q = Pool(LENS), drawn(4, HEADS, DIM)
        self.rows = qo_indptr([1] * 4)
        self.latent = Pool(LENS, kv_heads=1, dim=CKV + KPE)
        self.latents = self.latent.k[:, :, 0]
        self.query = drawn(4, HEADS, CKV + KPE)
        self.out, self.lse = torch.full((4, HEADS, DIM), 7.0), torch.full((4, HEADS), 7.0)
        self.outputs = {"out": self.out, "lse": self.lse, "return_lse": True}

    def __getitem__(self, name):
        return getattr(self, name.replace(".", "_"))()

    def BatchDecodeWithPagedKVCacheWrapper_plan(self):
        wrapper, (indptr, indices, last) = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None), self.pool.lists
        lists = {"indptr": indptr, "indices": indices, "last_page_len": last, "page_size": PAGE}
        return wrapper.plan, lists | {"num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM}

    def BatchDecodeWithPagedKVCacheWrapper_run(self):
        plan, arguments = self.BatchDecodeWithPagedKVCacheWrapper_plan()
        plan(**arguments)
        wrapper = plan.__self__
        return wrapper.run, {"q": self.q, "paged_kv_cache": self.pool.kv} | self.outputs

    def BatchDecodeWithPagedKVCacheWrapper_forward(self):
        run, arguments = self.BatchDecodeWithPagedKVCacheWrapper_run()
        return run.__self__.forward, {n: arguments[n] for n in ("q", "paged_kv_cache")}

    def fast_decode_plan(self):
        plan, arguments = self.BatchDecodeWithPagedKVCacheWrapper_plan()
        return flashinfer.fast_decode_plan, {"self": plan.__self__} | arguments

    def single_decode_with_kv_cache(self):
        return flashinfer.single_decode_with_kv_cache, {"q": self.q[0], "k": self.pool.keys[0], "v": self.pool.values[0]}

    def BatchPrefillWithPagedKVCacheWrapper_plan(self):
        wrapper, (indptr, indices, last) = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None), self.pool.lists
        lists = {"paged_kv_indptr": indptr, "paged_kv_indices": indices, "paged_kv_last_page_len": last, "qo_indptr": self.rows}
        return wrapper.plan, lists | {"num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim_qk": DIM, "page_size": PAGE}

    def BatchPrefillWithPagedKVCacheWrapper_run(self):
        plan, arguments = self.BatchPrefillWithPagedKVCacheWrapper_plan()
        plan(**arguments)
        return plan.__self__.run, {"q": self.q, "paged_kv_cache": self.pool.kv} | self.outputs

    def BatchPrefillWithPagedKVCacheWrapper_forward(self):
        run, arguments = self.BatchPrefillWithPagedKVCacheWrapper_run()
        return run.__self__.forward, {n: arguments[n] for n in ("q", "paged_kv_cache")}

    def BatchPrefillWithRaggedKVCacheWrapper_plan(self):
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
        arguments = {"qo_indptr": self.rows, "kv_indptr": qo_indptr(LENS), "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS}
        return wrapper.plan, arguments | {"head_dim_qk": DIM}

    def BatchPrefillWithRaggedKVCacheWrapper_run(self):
        plan, arguments = self.BatchPrefillWithRaggedKVCacheWrapper_plan()
        plan(**arguments)
        keys, values = torch.cat(self.pool.keys), torch.cat(self.pool.values)
        return plan.__self__.run, {"q": self.q, "k": keys, "v": values} | self.outputs

    def BatchPrefillWithRaggedKVCacheWrapper_forward(self):
        run, arguments = self.BatchPrefillWithRaggedKVCacheWrapper_run()
        return run.__self__.forward, {n: arguments[n] for n in "qkv"}

    def single_prefill_with_kv_cache(self):
        return flashinfer.single_prefill_with_kv_cache, {"q": self.q, "k": self.pool.keys[0], "v": self.pool.values[0]}

    def trtllm_batch_decode_with_kv_cache(self):
        tables = {"workspace_buffer": None, "block_tables": self.pool.table, "seq_lens": self.pool.seq_lens, "max_seq_len": 9}
        arguments = {"query": self.q, "kv_cache": self.pool.kv, "kv_layout": "NHD", **tables, **self.outputs}
        return flashinfer.trtllm_batch_decode_with_kv_cache, arguments

    def trtllm_batch_context_with_kv_cache(self):
        arguments = self.trtllm_batch_decode_with_kv_cache()[1]
        del arguments["max_seq_len"]
        more = {"max_q_len": 1, "max_kv_len": 9, "bmm1_scale": 1.0, "bmm2_scale": 1.0, "batch_size": 4, "cum_seq_lens_kv": None}
        return flashinfer.trtllm_batch_context_with_kv_cache, arguments | more | {"cum_seq_lens_q": self.rows}

    def trtllm_batch_decode_with_kv_cache_mla(self):
        arguments = self.trtllm_batch_decode_with_kv_cache()[1] | {"query": self.query[:, None], "kv_cache": self.latents}
        arguments |= {"qk_nope_head_dim": CKV, "kv_lora_rank": CKV, "qk_rope_head_dim": KPE, "block_tables": self.latent.table}
        arguments["out"] = self.out[:, None, :, :CKV].contiguous()
        del arguments["kv_layout"]
        return flashinfer.trtllm_batch_decode_with_kv_cache_mla, arguments

    def BatchMLAPagedAttentionWrapper_run(self):
        wrapper, pool = flashinfer.BatchMLAPagedAttentionWrapper(None), self.latent
        wrapper.plan(self.rows, pool.indptr, pool.indices, pool.seq_lens, HEADS, CKV, KPE, PAGE, False, 1.0, F32, F32)
        q_nope, q_pe = self.query[..., :CKV], self.query[..., CKV:]
        arguments = {"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": self.latents[..., :CKV], "kpe_cache": self.latents[..., CKV:]}
        return wrapper.run, arguments | self.outputs | {"out": self.out[..., :CKV]}

    def merge_state(self):
        return flashinfer.merge_state, {"v_a": self.q, "s_a": self.lse, "v_b": self.q, "s_b": self.lse}

    def merge_state_in_place(self):
        v, s = self.out, self.lse
        return flashinfer.merge_state_in_place, {"v": v, "s": s, "v_other": self.q, "s_other": self.lse.clone()}

    def merge_states(self):
        return flashinfer.merge_states, {"v": self.q[:, None], "s": self.lse[:, None]}

    def get_batch_indices_positions(self):
        return flashinfer.get_batch_indices_positions, {"append_indptr": self.rows, "seq_lens": self.pool.seq_lens, "nnz": 4}

    def append_paged_kv_cache(self):
        (indptr, indices, last), token = self.pool.lists, torch.tensor([0])
        lists = {"kv_indices": indices, "kv_indptr": indptr, "kv_last_page_len": last, "paged_kv_cache": self.pool.kv}
        new = {"append_key": self.pool.keys[0][:1], "append_value": self.pool.values[0][:1]}
        return flashinfer.append_paged_kv_cache, {**new, "batch_indices": token, "positions": token, **lists}


SKIP = {"skip_softmax_threshold_scale_factor": 1.0}
SCALES = torch.ones(1, dtype=torch.uint8)
QUANTISED = {"o_sf_scale": 1.0, "o_sf_vec_size": 16, "kv_cache_sf": SCALES} | SKIP
REFUSED = {
    "BatchDecodeWithPagedKVCacheWrapper.run": SKIP | {"kv_cache_sf": SCALES, "q_scale": torch.ones(HEADS)},
    "BatchPrefillWithPagedKVCacheWrapper.run": SKIP | {"kv_cache_sf": SCALES, "uses_spcompress": True},
    "BatchPrefillWithRaggedKVCacheWrapper.plan": {"v_indptr": SCALES, "o_indptr": SCALES},
    "BatchPrefillWithRaggedKVCacheWrapper.run": {"o_scale": 0.5, "kv_cache_sf": SCALES},
    "single_prefill_with_kv_cache": {"kv_cache_sf": SCALES},
    "trtllm_batch_decode_with_kv_cache": QUANTISED
    | {"o_scale": 2.0, "mask": torch.ones(4, 1, 2) * 0, "enable_block_sparse_attention": True}
    | {"bf16q_fp8kv_transform_mode": 1, "out_dtype": "nvfp4"},
    "trtllm_batch_context_with_kv_cache": QUANTISED | {"uses_spcompress": True, "out_dtype": "nvfp4"},
    "trtllm_batch_decode_with_kv_cache_mla": SKIP
    | {"sparse_mla_top_k_lens": SCALES, "enable_dcp": True, "cp_world": 2, "cp_rank": 1}
    | {"causal_seqlens_kv_global": SCALES},
    "BatchMLAPagedAttentionWrapper.run": {"kv_len": SCALES, "page_table": SCALES, "o_scale": 0.5}
    | {"ckv_scale": 0.5, "ckv_scale_arr": SCALES, "kpe_scale": 0.5},
}


@pytest.mark.parametrize(("call", "option"), [(call, option) for call, options in REFUSED.items() for option in options])
def test_an_option_is_refused_by_name(call, option):
    function, arguments = Calls()[call]
    function(**arguments)
    calls = Calls()
    function, arguments = calls[call]
    with pytest.raises(NotImplementedError) as refused:
        function(**arguments | {option: REFUSED[call][option]})
    assert str(refused.value) == f"{call}({option}=…)"
    assert (calls.out == 7).all() and (calls.lse == 7).all()


def test_positional_arguments_of_other_kernels_and_jit_are_refused():
    for name in ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper"):
        function, arguments = Calls()[name + ".run"]
        order = [n for n, p in inspect.signature(function).parameters.items() if p.default is p.empty and n != "args"]
        with pytest.raises(NotImplementedError, match=rf"^{name}.run\(args=…\)$"):
            function(*(arguments[n] for n in order), 0.5)
        with pytest.raises(NotImplementedError, match=rf"^{name}\(jit_args=…\)$"):
            getattr(flashinfer, name)(None, jit_args=["mine"])
    plan, arguments = Calls()["BatchDecodeWithPagedKVCacheWrapper.plan"]
    with pytest.raises(NotImplementedError, match=r"plan\(window_right=…\)"):
        plan(**arguments, q_len_per_req=2, window_right=1)


FAR = torch.tensor([99] * 9, dtype=torch.int32)
TABLE = torch.full((4, 3), 99, dtype=torch.int32)
LONG = torch.tensor([7, 3, 4, 13], dtype=torch.int32)
# Wrong input of each call, and the arguments that findings name, or the text of another error.
DECODE = {"num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "page_size": PAGE}
WRONG = [
    ("trtllm_batch_decode_with_kv_cache", {"block_tables": TABLE}, "block_tables", "table.page_id: block_tables"),
    ("trtllm_batch_decode_with_kv_cache", {"seq_lens": LONG}, "seq_lens", "the columns of block_tables"),
    ("trtllm_batch_decode_with_kv_cache", {"query": drawn(3, HEADS, DIM)}, "query", "q_len_per_req 1"),
    ("trtllm_batch_decode_with_kv_cache", {"query": drawn(4, 3, DIM)}, "query", "query"),
    ("trtllm_batch_decode_with_kv_cache", {"out": torch.full((4, HEADS, 1), 7.0)}, "out", "out"),
    ("trtllm_batch_decode_with_kv_cache", {"sinks": torch.ones(3)}, "sinks", "sinks"),
    ("trtllm_batch_decode_with_kv_cache", {"uses_shared_paged_kv_idx": False}, "block_tables", r"\[4, 2, pages\]"),
    (
        "trtllm_batch_decode_with_kv_cache",
        {"uses_shared_paged_kv_idx": False, "block_tables": torch.stack([TABLE, TABLE], 1)},
        "block_tables",
        "is 99",
    ),
    (
        "trtllm_batch_decode_with_kv_cache",
        {"uses_shared_paged_kv_idx": False, "seq_lens": torch.tensor([7, -3, 4, 9]), "block_tables": torch.stack([TABLE, TABLE], 1)},
        "seq_lens",
        r"len.negative: seq_lens\[1\] is -3",
    ),
    ("trtllm_batch_context_with_kv_cache", {"cum_seq_lens_q": qo_indptr([1, 1, 1, 2])}, "cum_seq_lens_q", "cum_seq_lens_q"),
    ("trtllm_batch_context_with_kv_cache", {"batch_size": 3}, "seq_lens", "seq_lens is 4, expected 3 entries, by batch_size"),
    ("trtllm_batch_context_with_kv_cache", {"cum_seq_lens_q": qo_indptr([1] * 3)}, "cum_seq_lens_q", "expected 5 entries"),
    ("trtllm_batch_decode_with_kv_cache_mla", {"qk_rope_head_dim": 0}, "query", r"kv_lora_rank \+ qk_rope_head_dim 16"),
    ("trtllm_batch_decode_with_kv_cache_mla", {"block_tables": TABLE}, "block_tables", "block_tables"),
    ("trtllm_batch_decode_with_kv_cache_mla", {"sparse_mla_top_k": 3, "block_tables": TABLE * 9}, "block_tables", "is 891"),
    ("trtllm_batch_decode_with_kv_cache_mla", {"sparse_mla_top_k": 2, "block_tables": TABLE}, "block_tables", r"\[4, 1, 2\]"),
    ("BatchDecodeWithPagedKVCacheWrapper.run", {"q": drawn(4, 3, DIM)}, "q", r"\[num_qo_heads, head_dim\] \[4, 32\], as planned"),
    ("BatchDecodeWithPagedKVCacheWrapper.run", {"paged_kv_cache": (torch.ones(4, 2, 2, DIM),) * 2}, "paged_kv_cache", "page_size"),
    ("BatchDecodeWithPagedKVCacheWrapper.run", {"lse": torch.full((4, 3), 7.0)}, "lse", "lse"),
    ("BatchPrefillWithPagedKVCacheWrapper.run", {"q": drawn(3, HEADS, DIM), "out": None, "lse": None}, "qo_indptr", "3"),
    ("BatchPrefillWithRaggedKVCacheWrapper.run", {"k": drawn(22, KV_HEADS, DIM), "v": drawn(22, KV_HEADS, DIM)}, "kv_indptr", "22"),
    ("BatchMLAPagedAttentionWrapper.run", {"q_nope": drawn(4, HEADS, 5)}, "q_nope", "as planned"),
    ("BatchMLAPagedAttentionWrapper.run", {"q_pe": drawn(3, HEADS, KPE)}, "q_pe", r"\[4, 4, 8\]"),
    ("BatchMLAPagedAttentionWrapper.run", {"kpe_cache": drawn(1, PAGE, KPE)}, "kpe_cache", "kpe_cache"),
    ("BatchPrefillWithPagedKVCacheWrapper.plan", {"custom_mask": torch.ones(22)}, "custom_mask", "23 pairs of queries and keys"),
    ("BatchPrefillWithRaggedKVCacheWrapper.plan", {"packed_custom_mask": SCALES}, "packed_custom_mask", "5 bytes"),
    ("single_prefill_with_kv_cache", {"custom_mask": torch.ones(4, 6)}, "custom_mask", "28 pairs"),
    ("merge_state", {"s_a": torch.ones(3, HEADS), "v_b": drawn(4, HEADS, 8)}, "v_b", r"s_a is \[3, 4\].*\n.*\n?.*v_b is"),
    ("merge_state_in_place", {"s_other": torch.ones(3, HEADS)}, "s_other", "s_other"),
    ("merge_state_in_place", {"mask": torch.ones(3)}, "mask", "mask"),
    ("merge_states", {"s": torch.ones(4, 3, HEADS)}, "s", "s.shape"),
    ("get_batch_indices_positions", {"seq_lens": torch.ones(3)}, "seq_lens", "seq_lens"),
    ("single_prefill_with_kv_cache", {"v": drawn(7, KV_HEADS, DIM).half()}, "v", "v is float16, expected float32, as k"),
    ("single_decode_with_kv_cache", {"v": drawn(7, KV_HEADS, DIM).half()}, "v", "v is float16, expected float32, as k"),
    ("merge_state", {"v_b": drawn(4, HEADS, DIM).half()}, "v_b", "expected float32, as v_a"),
    ("merge_state_in_place", {"v_other": drawn(4, HEADS, DIM).half()}, "v_other", "expected float32, as v"),
    ("append_paged_kv_cache", {"append_key": drawn(1, KV_HEADS, DIM).half()}, "append_key", "expected float32, as paged_kv_cache"),
    ("append_paged_kv_cache", {"append_value": drawn(1, KV_HEADS, DIM).half()}, "append_value", "is float16"),
    ("trtllm_batch_decode_with_kv_cache", {"kv_cache": (torch.ones(9, 4, 2, 32), torch.ones(9, 4, 2, 32).half())}, "kv_cache", "as keys"),
    ("trtllm_batch_decode_with_kv_cache", {"q_len_per_req": None}, "max_q_len", "the most queries"),
    ("append_paged_kv_cache", {"kv_last_page_len": LONG[:3]}, "kv_indptr", "kv_indptr is 5, expected 4 entries"),
    ("append_paged_kv_cache", {"positions": torch.tensor([1, 2])}, "positions", "positions"),
    ("append_paged_kv_cache", {"batch_indices": torch.tensor([4])}, "batch_indices", r"batch_indices\[0\] is 4, expected < 4"),
    ("append_paged_kv_cache", {"positions": torch.tensor([8])}, "positions", "expected 0 <= position < 8"),
    ("append_paged_kv_cache", {"kv_indices": FAR}, "kv_indices", "slot.range"),
    ("append_paged_kv_cache", {"append_key": drawn(1, 3, DIM)}, "append_key", "append_key"),
]


@pytest.mark.parametrize(("call", "changed", "field", "text"), WRONG, ids=[f"{c}-{'-'.join(d)}-{i}" for i, (c, d, *_) in enumerate(WRONG)])
def test_what_is_wrong_is_named_and_nothing_is_written(call, changed, field, text):
    calls = Calls()
    function, arguments = calls[call]
    before = [x.clone() for x in calls.pool.kv]
    with pytest.raises(sg.ShadowgraphError, match=text) as caught:
        function(**arguments | changed)
    assert field in {f.field for f in caught.value.findings}
    written = [a for n, a in (arguments | changed).items() if n in ("out", "lse") and a is not None]
    assert all((w == 7).all() for w in (*written, calls.out, calls.lse)) and all(map(torch.equal, map(torch.nan_to_num, calls.pool.kv), map(torch.nan_to_num, before)))


PLANNED = [
    ("BatchDecodeWithPagedKVCacheWrapper", {"indices": FAR}, "indices"),
    ("BatchDecodeWithPagedKVCacheWrapper", {"last_page_len": torch.tensor([5, 1, 1, 1])}, "last_page_len"),
    ("BatchDecodeWithPagedKVCacheWrapper", {"indptr": torch.tensor([0, 2, 1, 4, 7])}, "indptr"),
    ("BatchPrefillWithPagedKVCacheWrapper", {"paged_kv_indices": FAR}, "paged_kv_indices"),
    ("BatchPrefillWithPagedKVCacheWrapper", {"paged_kv_last_page_len": torch.tensor([5, 1, 1, 1])}, "paged_kv_last_page_len"),
    ("BatchPrefillWithPagedKVCacheWrapper", {"qo_indptr": qo_indptr([1, 1, 1, 2])}, "qo_indptr"),
    ("BatchPrefillWithPagedKVCacheWrapper", {"paged_kv_indptr": torch.tensor([0, 2, 1, 4, 7])}, "paged_kv_indptr"),
    ("BatchPrefillWithRaggedKVCacheWrapper", {"qo_indptr": qo_indptr([1, 1, 1, 2])}, "qo_indptr"),
    ("BatchPrefillWithRaggedKVCacheWrapper", {"kv_indptr": torch.tensor([0, 2, 1, 4, 23])}, "kv_indptr"),
]


@pytest.mark.parametrize(("wrapper", "changed", "field"), PLANNED, ids=[f"{w}-{f}" for w, _, f in PLANNED])
def test_a_run_names_what_was_planned_wrong(wrapper, changed, field):
    calls = Calls()
    run, arguments = calls[wrapper + ".run"]
    plan = calls[wrapper + ".plan"][1]
    run.__self__.plan(**plan | changed)
    with pytest.raises(sg.ShadowgraphError, match=field) as caught:
        run(**arguments)
    assert field in {f.field for f in caught.value.findings} and (calls.out == 7).all() and (calls.lse == 7).all()


def test_latents_that_were_planned_wrong_are_named():
    pool, calls = Pool(LENS, kv_heads=1, dim=CKV + KPE), Calls()
    run, arguments = calls["BatchMLAPagedAttentionWrapper.run"]
    lists = {"qo_indptr": calls.rows, "kv_indptr": pool.indptr, "kv_indices": pool.indices, "kv_len_arr": pool.seq_lens}
    sizes = HEADS, CKV, KPE, PAGE, False, 1.0, F32, F32
    for name, value in {"kv_indices": FAR, "kv_len_arr": LONG, "kv_indptr": pool.indptr[:4], "qo_indptr": qo_indptr([1, 1, 1, 2])}.items():
        run.__self__.plan(*(lists | {name: value}).values(), *sizes)
        with pytest.raises(sg.ShadowgraphError, match=name) as caught:
            run(**arguments)
        assert caught.value.findings and (calls.out == 7).all() and (calls.lse == 7).all()
