"""The drop-ins around flash-attention refuse options and input by upstream's names."""

import pytest
import torch
from flash_calls import DIM, HEADS, KV_HEADS, TABLE, cached, drawn, int32

import shadowgraph as sg
from shadowgraph import flash_attn, flash_attn_3, sgl_kernel, vllm
from shadowgraph.sgl_kernel import flash_mla
from shadowgraph.torch import scaled_dot_product_attention, varlen_attn

DENSE = {"q": drawn(2, 3, HEADS, DIM), "k": drawn(2, 5, KV_HEADS, DIM), "v": drawn(2, 5, KV_HEADS, DIM)}
CU = int32([0, 3, 6])
PACKED = {"q": drawn(6, HEADS, DIM), "k": drawn(6, KV_HEADS, DIM), "v": drawn(6, KV_HEADS, DIM), "cu_seqlens_q": CU, "cu_seqlens_k": CU}
PACKED |= {"max_seqlen_q": 3, "max_seqlen_k": 3}
LATENT = {"q": drawn(2, 1, HEADS, 24), "k_cache": drawn(6, 2, 1, 24), "block_table": TABLE, "cache_seqlens": int32([3, 4])}
LATENT |= {"head_dim_v": 16, "tile_scheduler_metadata": None}
UNIFIED = {"q": drawn(6, HEADS, DIM), "k": drawn(6, 2, KV_HEADS, DIM), "v": drawn(6, 2, KV_HEADS, DIM), "out": torch.full((6, HEADS, DIM), 7.0)}
UNIFIED |= {"cu_seqlens_q": CU, "max_seqlen_q": 3, "seqused_k": int32([3, 4]), "max_seqlen_k": 4, "softmax_scale": 1.0, "causal": True}
UNIFIED |= {"window_size": (-1, -1), "block_table": TABLE, "softcap": 0, "q_descale": None, "k_descale": None, "v_descale": None}
STATES = {"output": drawn(3, HEADS, DIM), "prefix_output": drawn(3, HEADS, DIM), "prefix_lse": drawn(HEADS, 3)}
STATES |= {"suffix_output": drawn(3, HEADS, DIM), "suffix_lse": drawn(HEADS, 3)}
SDPA = {"query": drawn(2, HEADS, 3, DIM), "key": drawn(2, HEADS, 5, DIM), "value": drawn(2, HEADS, 5, DIM)}
some = drawn(2)
REFUSED = [
    (flash_attn.flash_attn_func, DENSE, {"dropout_p": 0.1}),
    (flash_attn.flash_attn_varlen_func, PACKED, {"dropout_p": 0.1}),
    (sgl_kernel.flash_attn.flash_attn_with_kvcache, cached(page_table=TABLE), {"score_mod": max}),
    (sgl_kernel.flash_attn.flash_attn_varlen_func, PACKED, {"score_mod": max}),
    *((flash_mla.flash_mla_with_kvcache, LATENT, {name: some}) for name in (
        "is_fp8_kvcache", "extra_k_cache", "extra_indices_in_kvcache", "topk_length", "extra_topk_length")),
    *((vllm.unified_attention, UNIFIED, {name: value}) for name, value in {
        "q_descale": some, "output_scale": some, "rswa_prefix_lens": some, "rswa_window": some, "chunk_lookback": 1,
        "kv_quant_mode": vllm.KVQuantMode.FP8_PER_TOKEN_HEAD}.items()),
    *((vllm.flash_attn.flash_attn_varlen_func, PACKED, {name: value}) for name, value in {
        "dropout_p": 0.1, "output_scale": some, "cp_world_size": 2, "mask_mod": max, "block_sparse_tensors": some, "aux_tensors": some,
        "dynamic_causal": some}.items()),
    (vllm.merge_attn_states, STATES, {"output_scale": some}),
    (scaled_dot_product_attention, SDPA, {"dropout_p": 0.1}),
]


@pytest.mark.parametrize(("call", "given", "option"), REFUSED, ids=lambda x: "".join(x) if isinstance(x, dict) and len(x) == 1 else None)
def test_an_option_that_is_not_computed_is_refused_by_name(call, given, option):
    call(**given)
    with pytest.raises(NotImplementedError, match=rf"^{call.__name__}\({''.join(option)}=…\)$"):
        call(**given | option)


ROWS = cached(cache_seqlens=int32([1, 2]), cache_batch_idx=int32([1, 0]))
OFFSETS = {"q": drawn(2, HEADS, DIM), "cu_seqlens_q": int32([0, 1, 2]), "max_seqlen_q": 1}
VLLM = PACKED | {"k": drawn(6, 2, KV_HEADS, DIM), "v": drawn(6, 2, KV_HEADS, DIM), "block_table": TABLE, "seqused_k": int32([3, 4]), "cu_seqlens_k": None}
VLLM |= {"max_seqlen_k": 4}
EXCLUDED = [
    (flash_attn.flash_attn_with_kvcache, ROWS, {"block_table": TABLE}, "block_table and cache_batch_idx exclude"),
    (flash_attn.flash_attn_with_kvcache, cached(block_table=TABLE), {"cache_leftpad": int32([1, 0])}, "block_table and cache_leftpad exclude"),
    (flash_attn_3.flash_attn_with_kvcache, cached(page_table=TABLE) | OFFSETS, {"max_seqlen_q": None}, "max_seqlen_q is missing"),
    (sgl_kernel.flash_attn.flash_attn_varlen_func, PACKED, {"max_seqlen_k": None}, "max_seqlen_k is missing"),
    (flash_mla.flash_mla_with_kvcache, LATENT, {"descale_q": torch.ones(1)}, "descale_q and descale_k need each other"),
    (vllm.unified_attention, UNIFIED, {"softmax_scale": None}, "softmax_scale is missing"),
    (vllm.unified_attention, UNIFIED, {"kv_quant_mode": vllm.KVQuantMode.INT8_PER_TOKEN_HEAD}, "INT8_PER_TOKEN_HEAD needs k_scale_cache"),
    (vllm.flash_attn.flash_attn_varlen_func, VLLM, {"cu_seqlens_k": int32([0, 3, 6])}, "cu_seqlens_k and seqused_k exclude"),
    (vllm.flash_attn.flash_attn_varlen_func, VLLM, {"block_table": None}, "cu_seqlens_k or block_table is missing"),
]


@pytest.mark.parametrize(("call", "given", "more", "told"), EXCLUDED, ids=[told for *_, told in EXCLUDED])
def test_arguments_that_upstream_refuses_beside_each_other(call, given, more, told):
    call(**given)
    with pytest.raises((RuntimeError, ValueError), match=told):
        call(**given | more)


def half(given, *names):
    """Each of these names in another type than the others."""
    return [{name: given[name].half()} for name in names]


BAD = int32([[1, 9], [-1, 5]])
PAGED = PACKED | {"k": drawn(6, 2, KV_HEADS, DIM), "v": drawn(6, 2, KV_HEADS, DIM), "block_table": TABLE}
PARTS = {"out_partial": drawn(2, 3, HEADS, DIM), "lse_partial": drawn(2, 3, HEADS)}
MERGED = {name: drawn(3, HEADS, DIM)[..., 0] if name[0] == "s" else drawn(3, HEADS, DIM) for name in ("v_a", "s_a", "v_b", "s_b")}
CUTLASS = {"q_nope": drawn(2, HEADS, 16), "q_pe": drawn(2, HEADS, 8), "kv_c_and_k_pe_cache": drawn(6, 2, 24), "seq_lens": int32([3, 4])}
CUTLASS |= {"page_table": TABLE, "workspace": None, "sm_scale": 1.0}
SCALED = {"q_descale": drawn(2, KV_HEADS).abs(), "k_descale": drawn(2, KV_HEADS).abs()}
STORED = {"key": drawn(2, KV_HEADS, DIM), "value": drawn(2, KV_HEADS, DIM), "key_cache": drawn(6, 2, KV_HEADS, DIM), "kv_cache_dtype": "auto"}
STORED |= {"value_cache": drawn(6, 2, KV_HEADS, DIM), "slot_mapping": torch.tensor([1, 3]), "k_scale": None, "v_scale": None}
LATENTS = {"kv_c": drawn(2, 16), "k_pe": drawn(2, 8), "kv_cache": drawn(6, 2, 24), "slot_mapping": torch.tensor([1, 3]), "kv_cache_dtype": "auto"}
LATENTS |= {"scale": torch.tensor(1.0)}
VARLEN = {"query": PACKED["q"], "key": PACKED["k"], "value": PACKED["v"], "cu_seq_q": CU, "cu_seq_k": CU, "max_q": 3, "max_k": 3, "enable_gqa": True}
NEW = cached(rotary_cos=drawn(9, 4), rotary_sin=drawn(9, 4), block_table=TABLE, cache_seqlens=int32([3, 3]), k=drawn(2, 1, KV_HEADS, DIM), v=drawn(2, 1, KV_HEADS, DIM))
WRONG = [
    (flash_attn.flash_attn_func, DENSE, {"q": DENSE["q"][0]}),
    (flash_attn.flash_attn_func, DENSE, {"k": DENSE["k"][:1]}),
    (flash_attn.flash_attn_func, DENSE, {"v": DENSE["v"][:, :2]}),
    (flash_attn.flash_attn_func, DENSE, {"alibi_slopes": drawn(3, HEADS)}),
    (flash_attn_3.flash_attn_func, DENSE | SCALED, {"q_descale": SCALED["q_descale"][:1]}),
    *((flash_attn_3.flash_attn_func, DENSE | SCALED, other) for other in half(SCALED, "q_descale", "k_descale")),
    (flash_attn_3.flash_attn_with_kvcache, cached(page_table=TABLE, cache_batch_idx=int32([1, 0])), {"cache_batch_idx": torch.tensor([1, 0])}),
    (vllm.reshape_and_cache_flash, STORED, {"slot_mapping": torch.tensor([1.0, 3.0])}),
    *((flash_attn.flash_attn_func, DENSE, {name: float("nan")}) for name in ("softmax_scale", "softcap")),
    (scaled_dot_product_attention, SDPA, {"scale": float("nan")}),
    (sgl_kernel.cutlass_mla_decode, CUTLASS, {"sm_scale": float("nan")}),
    *((flash_attn.flash_attn_func, DENSE, other) for other in half(DENSE, "k", "v")),
    *((call.flash_attn_varlen_func, PACKED, {name: bound}) for call in (flash_attn, flash_attn_3, sgl_kernel.flash_attn, vllm.flash_attn)
      for name, bound in (("max_seqlen_q", 2), ("max_seqlen_k", 0))),
    (flash_attn.flash_attn_varlen_func, PACKED, {"cu_seqlens_q": int32([0, 3, 9])}),
    *((call.flash_attn_varlen_func, PACKED, {name: None}) for call in (flash_attn, flash_attn_3, sgl_kernel.flash_attn, vllm.flash_attn) for name in ("cu_seqlens_q", "q", "v")),
    (flash_attn.flash_attn_with_kvcache, cached(block_table=TABLE), {"v_cache": None}),
    (vllm.unified_attention, UNIFIED, {"cu_seqlens_q": None}),
    (flash_attn.flash_attn_varlen_func, PACKED, {"cu_seqlens_k": int32([0, 3, 9])}),
    (flash_attn.flash_attn_varlen_func, PAGED, {"block_table": BAD}),
    (flash_attn.flash_attn_varlen_func, PAGED, {"cu_seqlens_k": int32([1, 3, 6])}),
    (flash_attn.flash_attn_with_kvcache, ROWS, {"cache_batch_idx": int32([1, 6])}),
    (flash_attn.flash_attn_with_kvcache, ROWS, {"cache_batch_idx": torch.tensor([1, 0])}),
    *((flash_attn.flash_attn_with_kvcache, NEW, other) for other in half(NEW, "k", "v", "rotary_cos", "rotary_sin")),
    (flash_attn.flash_attn_with_kvcache, cached(), {"block_table": BAD}),
    (flash_attn.flash_attn_with_kvcache, cached(block_table=TABLE), {"cache_seqlens": int32([3, -1])}),
    (flash_attn.flash_attn_with_kvcache, NEW, {"k": drawn(3, 1, KV_HEADS, DIM)}),
    (flash_attn.flash_attn_with_kvcache, NEW, {"v": drawn(2, 1, KV_HEADS, DIM + 1)}),
    (flash_attn.flash_attn_with_kvcache, NEW, {"block_table": int32([[1, 3], [0, 3]])}),
    (flash_attn_3.flash_attn_with_kvcache, cached(), {"page_table": BAD}),
    (flash_attn_3.flash_attn_with_kvcache, cached(page_table=TABLE), {"qv": drawn(2, 1, HEADS, DIM + 1)}),
    (flash_attn_3.flash_attn_with_kvcache, cached(page_table=TABLE), {"k_descale": drawn(3, KV_HEADS).abs()}),
    (sgl_kernel.flash_attn.flash_attn_with_kvcache, cached(), {"page_table": BAD}),
    (sgl_kernel.flash_attn.flash_attn_with_kvcache, cached(page_table=TABLE), {"sinks": drawn(3)}),
    (flash_mla.flash_mla_with_kvcache, LATENT, {"block_table": BAD}),
    (flash_mla.flash_mla_with_kvcache, LATENT, {"head_dim_v": 25}),
    (flash_mla.flash_mla_with_kvcache, LATENT | {"descale_q": torch.ones(2), "descale_k": torch.ones(1)}, {"descale_q": torch.ones(3)}),
    *((flash_mla.flash_mla_with_kvcache, LATENT | {"descale_q": torch.ones(2), "descale_k": torch.ones(1)}, {name: torch.ones(1).half()})
      for name in ("descale_q", "descale_k")),
    *((flash_mla.flash_mla_with_kvcache, LATENT, other) for other in half(LATENT, "k_cache")),
    *((flash_attn_3.flash_attn_combine, PARTS, other) for other in (*half(PARTS, "out_partial", "lse_partial"), {"lse_partial": drawn(2, HEADS, 3)}, {"out": drawn(3, HEADS, 9)})),
    *((sgl_kernel.merge_state_v2, MERGED, other) for other in half(MERGED, "v_b")),
    *((sgl_kernel.cutlass_mla_decode, CUTLASS, other) for other in half(CUTLASS, "q_pe", "kv_c_and_k_pe_cache")),
    *((vllm.reshape_and_cache_flash, STORED, other) for other in half(STORED, "value", "key_cache", "value_cache")),
    (vllm.reshape_and_cache_flash, STORED, {"kv_cache_dtype": "fp8"}),
    *((vllm.concat_and_cache_mla, LATENTS, other) for other in half(LATENTS, "k_pe", "kv_cache")),
    (vllm.unified_attention, UNIFIED, {"max_seqlen_q": 1}),
    *((vllm.unified_attention, UNIFIED, other) for other in half(UNIFIED, "v")),
    (vllm.unified_attention, UNIFIED, {"block_table": BAD}),
    (vllm.unified_attention, UNIFIED, {"seqused_k": int32([3, 9])}),
    (vllm.flash_attn.flash_attn_varlen_func, PACKED, {"cu_seqlens_k": int32([0, 3, 9])}),
    (vllm.flash_attn.flash_attn_varlen_func, VLLM, {"seqused_k": None}),
    (vllm.merge_attn_states, STATES, {"suffix_lse": drawn(3, HEADS)}),
    *((vllm.merge_attn_states, STATES, other) for other in half(STATES, "suffix_output", "suffix_lse", "output")),
    *((varlen_attn, VARLEN, other) for other in (*half(VARLEN, "key"), {"max_q": 2}, {"max_k": 2})),
    *((scaled_dot_product_attention, SDPA, {"attn_mask": mask}) for mask in (torch.ones(3, 4).bool(), torch.ones(3, 5).int(), torch.ones(3, 5).half())),
    (scaled_dot_product_attention, SDPA, {"key": drawn(1, HEADS, 5, DIM)}),
    (scaled_dot_product_attention, SDPA, {"value": drawn(2, HEADS, 4, DIM)}),
]


@pytest.mark.parametrize(("call", "given", "wrong"), WRONG, ids=lambda x: "".join(x) if isinstance(x, dict) and len(x) == 1 else None)
def test_wrong_input_is_named_as_upstream_does_and_writes_nothing(call, given, wrong):
    written = {name: given[name].clone() for name in ("out", "output", "k_cache", "key_cache", "kv_cache") if name in given}
    with pytest.raises(sg.ShadowgraphError) as caught:
        call(**given | wrong)
    assert {f.field for f in caught.value.findings} == set(wrong) and next(iter(wrong)) in str(caught.value)
    assert all(torch.equal(given[name], before) for name, before in written.items())


def test_wrong_slots_are_named_as_upstream_does():
    key, caches = drawn(2, KV_HEADS, DIM), torch.zeros(2, 6, 2, KV_HEADS, DIM).unbind(0)
    with pytest.raises(sg.ShadowgraphError, match=r"slot.range: slot_mapping\[1\] is 99"):
        vllm.reshape_and_cache_flash(key, key, *caches, torch.tensor([1, 99]), "auto", None, None)
    assert not caches[0].any()


def test_axes_that_are_missing_are_named():
    for call, given, text in (
        (flash_attn.flash_attn_func, DENSE | {"q": drawn(3, HEADS, DIM)}, r"q is \[3, 4, 8\], expected \[batch, queries, heads, dim\]"),
        (flash_attn.flash_attn_varlen_func, PACKED | {"q": drawn(2, 3, HEADS, DIM)}, r"expected \[tokens, heads, dim\]"),
        (flash_attn.flash_attn_with_kvcache, cached(block_table=TABLE[0]), r"block_table is \[\d+\], expected \[batch, pages\]"),
    ):
        with pytest.raises(sg.ShadowgraphError, match=text):
            call(**given)
