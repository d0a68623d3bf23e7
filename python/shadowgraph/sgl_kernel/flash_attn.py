"""Stands in for sgl_kernel.flash_attn: flash-attention 3, with sinks. A row that sees no key has out 0 and lse -inf."""

from __future__ import annotations

from .._append import new_keys
from .._flash import KV, attend, descales, lengths, only_values, options, packed, paged, rows
from .._tensors import expect
from .._upstream import floats, refuse


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=None,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    only_qv=False,
    sm_margin=0,
    return_softmax_lse=False,
    sinks=None,
    score_mod=None,
    aux_tensors=None,
    ver=3,
    out=None,
):
    """The same as flash_attn_3's. only_qv: scores are qv.v alone. The lse counts sinks."""
    call = "flash_attn_with_kvcache"
    refuse(call, score_mod=score_mod)
    if only_qv:
        refuse(call, k=k)
        q, qv, k_cache = only_values(qv, v_cache)
    batch = (q if cu_seqlens_q is None else cu_seqlens_q).shape[0] - (cu_seqlens_q is not None)
    keys = rows(k_cache, v_cache, page_table, cache_seqlens, batch, cache_batch_idx, "page_table")
    more = descales(q_descale, k_descale, v_descale) | {"cache_leftpad": cache_leftpad, "sinks": floats(sinks), "lse_sink": True}
    layer = options(softmax_scale, causal, window_size, softcap, attention_chunk, **more)
    rotary = (rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    new = new_keys("flash_attn_with_kvcache", k, v, cu_seqlens_k_new, *rotary, causal, window_size)
    queries = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q}
    out, lse = attend(q, keys, layer, qv=qv, new=new, out=out, **queries, with_lse=return_softmax_lse)
    return (out, lse) if return_softmax_lse else out


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q=None,
    max_seqlen_k=None,
    seqused_q=None,
    seqused_k=None,
    page_table=None,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    only_qv=False,
    sm_margin=0,
    return_softmax_lse=False,
    sinks=None,
    score_mod=None,
    aux_tensors=None,
    ver=3,
    out=None,
):
    """The same as flash_attn_3's. With page_table, k and v are pages, and seqused_k or cu_seqlens_k has their lengths."""
    expect("cu_seqlens_q", cu_seqlens_q, None)
    refuse("flash_attn_varlen_func", score_mod=score_mod)
    if only_qv:
        if softmax_scale is None and qv is not None:  # by both widths here, by qv's alone in the other call
            softmax_scale = (q.shape[-1] + qv.shape[-1]) ** -0.5
        q, qv, k = only_values(qv, v)
    if page_table is None:
        keys = packed(k, v, cu_seqlens_k, seqused_k)
    else:
        name, lens = ("cu_seqlens_k", lengths(cu_seqlens_k)) if seqused_k is None else ("seqused_k", seqused_k)
        keys = paged(k, v, page_table, lens, **KV, cache_seqlens=name)
    more = descales(q_descale, k_descale, v_descale) | {"sinks": floats(sinks), "lse_sink": True}
    layer = options(softmax_scale, causal, window_size, softcap, attention_chunk, **more)
    queries = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "seqused_q": seqused_q}
    out, lse = attend(q, keys, layer, qv=qv, out=out, **queries, with_lse=return_softmax_lse)
    return (out, lse) if return_softmax_lse else out


def is_fa3_supported(device=None):
    return True
