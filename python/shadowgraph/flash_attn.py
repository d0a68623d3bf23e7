"""Stands in for flash_attn 2. A row that sees no key has out 0 and lse +inf, as there."""

from __future__ import annotations

from ._append import new_keys
from ._flash import KV, attend, dense, lengths, options, packed, paged, rows
from ._tensors import expect
from ._upstream import empty, refuse

__version__ = "2.8.4"  # whose signatures these are
_INF = float("inf")


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """out [batch, queries, heads, dim]; with return_attn_probs also lse [batch, heads, queries] and no probabilities."""
    refuse("flash_attn_func", dropout_p=dropout_p)
    layer = options(softmax_scale, causal, window_size, softcap, alibi="distance")
    out, lse = attend(q, dense(q, k, v), layer, alibi_slopes=alibi_slopes, no_keys=_INF, with_lse=return_attn_probs)
    return (out, lse, empty(q, (0,))) if return_attn_probs else out


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """out [tokens, heads, dim]; lse [heads, tokens]. With block_table, k and v are pages, and cu_seqlens_k has their lengths."""
    expect("cu_seqlens_q", cu_seqlens_q, None)
    refuse("flash_attn_varlen_func", dropout_p=dropout_p)
    keys = _packed_or_paged(k, v, cu_seqlens_k, None, block_table)
    layer = options(softmax_scale, causal, window_size, softcap, alibi="distance")
    rest = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "alibi_slopes": alibi_slopes}
    out, lse = attend(q, keys, layer, **rest, no_keys=_INF, with_lse=return_attn_probs)
    return (out, lse, empty(q, (0,))) if return_attn_probs else out


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """out [batch, queries, heads, dim]; lse [batch, heads, queries]. k and v are appended to the cache at cache_seqlens."""
    if block_table is not None and (cache_batch_idx is not None or cache_leftpad is not None):
        other = "cache_batch_idx" if cache_leftpad is None else "cache_leftpad"
        raise RuntimeError(f"flash_attn_with_kvcache: block_table and {other} exclude each other")
    keys = rows(k_cache, v_cache, block_table, cache_seqlens, q.shape[0], cache_batch_idx, "block_table")
    layer = options(softmax_scale, causal, window_size, softcap, alibi="distance", cache_leftpad=cache_leftpad)
    rotary = (rotary_cos, rotary_sin, rotary_interleaved, None)
    new = new_keys("flash_attn_with_kvcache", k, v, None, *rotary, causal, window_size)
    out, lse = attend(q, keys, layer, new=new, alibi_slopes=alibi_slopes, no_keys=_INF, with_lse=return_softmax_lse)
    return (out, lse) if return_softmax_lse else out


def flash_attn_qkvpacked_func(
    qkv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_func of qkv [batch, tokens, 3, heads, dim]."""
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(*_parts("qkv", qkv, None, None, 3, None, None), *rest)


def flash_attn_kvpacked_func(
    q,
    kv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_func of kv [batch, keys, 2, heads, dim]."""
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(q, *_parts("kv", kv, None, None, 2, None, None), *rest)


def flash_attn_varlen_qkvpacked_func(
    qkv,
    cu_seqlens,
    max_seqlen,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_varlen_func of qkv [tokens, 3, heads, dim]."""
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    lens = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return flash_attn_varlen_func(*_parts("qkv", qkv, None, 3, None, None), *lens, *rest)


def flash_attn_varlen_kvpacked_func(
    q,
    kv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_varlen_func of kv [keys, 2, heads, dim]."""
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    lens = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return flash_attn_varlen_func(q, *_parts("kv", kv, None, 2, None, None), *lens, *rest)


def _parts(name, packed, *shape):
    """q, k and v, or k and v, of a tensor that has them beside each other."""
    expect(name, packed, *shape)
    return (packed[..., i, :, :] for i in range(packed.shape[-3]))


def _packed_or_paged(k, v, cu_seqlens_k, seqused_k, block_table):
    if block_table is None:
        return packed(k, v, cu_seqlens_k, seqused_k)
    name, lens = ("cu_seqlens_k", lengths(cu_seqlens_k)) if seqused_k is None else ("seqused_k", seqused_k)
    return paged(k, v, block_table, lens, **KV, page_table="block_table", cache_seqlens=name)


# Other libraries import these of flash_attn_interface. They return (out, lse, no probabilities, no state of a generator).


def _flash_attn_forward(
    q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, return_softmax
):
    window = (window_size_left, window_size_right)
    found = flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window, softcap, alibi_slopes, return_attn_probs=True)
    return *found, empty(q, (2,), "int64")


def _flash_attn_varlen_forward(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left=-1,
    window_size_right=-1,
    softcap=0.0,
    alibi_slopes=None,
    return_softmax=False,
    block_table=None,
    leftpad_k=None,
    seqused_k=None,
    zero_tensors=False,
    num_splits=0,
):
    expect("cu_seqlens_q", cu_seqlens_q, None)
    refuse("_flash_attn_varlen_forward", dropout_p=dropout_p)
    if block_table is not None and (num_splits > 1 or leftpad_k is not None):
        raise RuntimeError(f"{'leftpad_k' if num_splits < 2 else 'num_splits > 1'} is not supported for varlen paged KV")
    keys = _packed_or_paged(k, v, cu_seqlens_k, seqused_k, block_table)
    window = (window_size_left, window_size_right)
    layer = options(softmax_scale, causal, window, softcap, alibi="distance", cache_leftpad=leftpad_k)
    rest = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "alibi_slopes": alibi_slopes}
    return *attend(q, keys, layer, **rest, no_keys=_INF), empty(q, (0,)), empty(q, (2,), "int64")
