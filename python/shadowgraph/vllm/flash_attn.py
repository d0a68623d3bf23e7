"""Stands in for vllm.vllm_flash_attn. A row that sees no key has out 0 and lse +inf, of versions above 2 -inf."""

from __future__ import annotations

from .._flash import BFLOAT16, KV, attend, descales, options, packed, paged, schedule
from .._tensors import expect
from .._upstream import floats, refuse

DEFAULT_FA_VERSION = 2


def flash_attn_varlen_func(
    q,
    k,
    v,
    max_seqlen_q,
    cu_seqlens_q,
    max_seqlen_k,
    cu_seqlens_k=None,
    seqused_k=None,
    q_v=None,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=None,
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
    return_softmax_lse=False,
    out=None,
    scheduler_metadata=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    num_splits=0,
    output_scale=None,
    fa_version=DEFAULT_FA_VERSION,
    s_aux=None,
    cp_world_size=1,
    cp_rank=0,
    cp_tot_seqused_k=None,
    mask_mod=None,
    block_sparse_tensors=None,
    aux_tensors=None,
    aux_tensor_leading_dims=None,
    dynamic_causal=None,
):
    """out [tokens, heads, dim]; lse [heads, tokens]. With block_table, k and v are pages and seqused_k their lengths; else
    cu_seqlens_k. s_aux are sinks, which the lse counts."""
    expect("cu_seqlens_q", cu_seqlens_q, None)
    left_out = {"dropout_p": dropout_p, "output_scale": output_scale, "cp_world_size": cp_world_size - 1, "mask_mod": mask_mod}
    left_out |= {"block_sparse_tensors": block_sparse_tensors, "aux_tensors": aux_tensors, "dynamic_causal": dynamic_causal}
    refuse("flash_attn_varlen_func", **left_out)
    if cu_seqlens_k is not None and seqused_k is not None:
        raise RuntimeError("flash_attn_varlen_func: cu_seqlens_k and seqused_k exclude each other")
    if block_table is not None:
        keys = paged(k, v, block_table, seqused_k, **KV, page_table="block_table", cache_seqlens="seqused_k")
    elif cu_seqlens_k is not None:
        keys = packed(k, v, cu_seqlens_k)
    else:
        raise ValueError("cu_seqlens_k or block_table is missing")
    more = descales(q_descale, k_descale, v_descale) | {"sinks": floats(s_aux), "lse_sink": True, "alibi": "distance"}
    no_keys = float("inf") if fa_version == 2 else float("-inf")
    layer = options(softmax_scale, causal, window_size, softcap, **more)
    rest = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
    rest |= {"qv": q_v, "alibi_slopes": alibi_slopes, "out": out}
    out, lse = attend(q, keys, layer, **rest, no_keys=no_keys, with_lse=return_softmax_lse)
    return (out, lse) if return_softmax_lse else out


def get_scheduler_metadata(
    batch_size,
    max_seqlen_q,
    max_seqlen_k,
    num_heads_q,
    num_heads_kv,
    headdim,
    cache_seqlens,
    qkv_dtype=BFLOAT16,
    headdim_v=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    cache_leftpad=None,
    page_size=None,
    max_seqlen_k_new=0,
    causal=False,
    window_size=(-1, -1),
    has_softcap=False,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
):
    """int32 [batch_size + 1] zeros: calls need no schedule."""
    return schedule(cache_seqlens, batch_size + 1)


def is_fa_version_supported(fa_version):
    return fa_version in (2, 3, 4)


def fa_version_unsupported_reason(fa_version):
    return None if is_fa_version_supported(fa_version) else f"there is no version {fa_version}"
