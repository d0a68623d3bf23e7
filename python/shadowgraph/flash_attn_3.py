"""Stands in for flash_attn_interface, flash-attention 3. A row that sees no key has out 0 and lse -inf."""

from __future__ import annotations

from . import _core
from ._append import new_keys
from ._flash import BFLOAT16, attend, dense, descales, options, packed, rows, schedule
from ._tensors import expect, expect_f32
from ._upstream import empty, launch

__version__ = "3.0.0"  # whose signatures these are


def flash_attn_func(
    q,
    k,
    v,
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
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """out [batch, queries, heads, dim]; with return_attn_probs also lse [batch, heads, queries]."""
    scales = descales(q_descale, k_descale, v_descale)
    layer = options(softmax_scale, causal, window_size, softcap, attention_chunk, **scales)
    out, lse = attend(q, dense(q, k, v), layer, qv=qv, with_lse=return_attn_probs)
    return (out, lse) if return_attn_probs else out


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    seqused_q=None,
    seqused_k=None,
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
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """out [tokens, heads, dim]; lse [heads, tokens]. Rows behind seqused_q hold anything."""
    expect("cu_seqlens_q", cu_seqlens_q, None)
    scales = descales(q_descale, k_descale, v_descale)
    layer = options(softmax_scale, causal, window_size, softcap, attention_chunk, **scales)
    queries = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "seqused_q": seqused_q}
    out, lse = attend(q, packed(k, v, cu_seqlens_k, seqused_k), layer, qv=qv, **queries, with_lse=return_attn_probs)
    return (out, lse) if return_attn_probs else out


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
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    """out shaped like q; lse [batch, heads, queries], or [heads, tokens] with cu_seqlens_q. k and v are appended to the
    cache at cache_seqlens; cache_batch_idx picks rows of page_table, or of a cache without one."""
    batch = (q if cu_seqlens_q is None else cu_seqlens_q).shape[0] - (cu_seqlens_q is not None)
    keys = rows(k_cache, v_cache, page_table, cache_seqlens, batch, cache_batch_idx, "page_table")
    scales = descales(q_descale, k_descale, v_descale)
    layer = options(softmax_scale, causal, window_size, softcap, attention_chunk, **scales, cache_leftpad=cache_leftpad)
    rotary = (rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    new = new_keys("flash_attn_with_kvcache", k, v, cu_seqlens_k_new, *rotary, causal, window_size)
    queries = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q}
    out, lse = attend(q, keys, layer, qv=qv, new=new, **queries, with_lse=return_softmax_lse)
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
    attention_chunk=0,
    has_softcap=False,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
):
    """int32 [batch_size + 1] zeros: calls need no schedule."""
    return schedule(cache_seqlens, batch_size + 1)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Merges out_partial [splits, ..., heads, dim] by lse_partial [splits, ..., heads] into (out, lse)."""
    shape = tuple(out_partial.shape[1:])
    expect("lse_partial", lse_partial, *out_partial.shape[:-1])
    expect_f32(out_partial=out_partial, lse_partial=lse_partial)
    if out is None:
        out = empty(out_partial, shape, out_dtype)
    expect("out", out, *shape)
    lse = empty(out_partial, shape[:-1], "float32")
    splits, heads, dim = out_partial.shape[0], *shape[-2:]
    arguments = {
        "v": lambda: out_partial.reshape(splits, -1, heads, dim).swapaxes(0, 1),
        "s": lambda: lse_partial.reshape(splits, -1, heads).swapaxes(0, 1),
        "out": out.reshape(-1, heads, dim),
        "lse": lse.reshape(-1, heads),
    }
    launch(_core.merge_states, {"v": "out_partial", "s": "lse_partial"}, **arguments)
    return out, lse
