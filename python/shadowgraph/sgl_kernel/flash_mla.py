"""Stands in for sgl_kernel.flash_mla and FlashMLA: attention over a cache of latents, whose first dims are values."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._flash import attend, new_lse, new_out, options, paged, schedule
from .._tensors import expect, expect_alike, expect_f32, is_fp8
from .._upstream import empty, host, refuse, wrong
from ._sparse import Picked, attend_picked, expect_latents, latent_keys, picked


@dataclasses.dataclass
class FlashMLASchedMeta:
    """A schedule, which calls here do not need."""

    have_initialized: bool = False
    config: Any = None
    tile_scheduler_metadata: Any = None
    num_splits: Any = None


def get_mla_metadata(
    cache_seqlens=None, num_q_tokens_per_head_k=None, num_heads_k=None, num_heads_q=None, is_fp8_kvcache=False, topk=None
):
    """(a schedule, None), or with cache_seqlens (int32 [parts, 8], int32 [batch + 1]), of zeros."""
    if cache_seqlens is None:
        return FlashMLASchedMeta(), None
    return schedule(cache_seqlens, 8).reshape(1, 8), schedule(cache_seqlens, len(cache_seqlens) + 1)


def flash_mla_with_kvcache(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits=None,
    softmax_scale=None,
    causal=False,
    descale_q=None,
    descale_k=None,
    is_fp8_kvcache=False,
    indices=None,
    attn_sink=None,
    extra_k_cache=None,
    extra_indices_in_kvcache=None,
    topk_length=None,
    extra_topk_length=None,
):
    """q [batch, queries, heads, dim], k_cache [pages, page, 1, dim]: (out [batch, queries, heads, head_dim_v], lse [batch,
    heads, queries]). A row that sees no key has lse +inf. attn_sink is in out, not in the lse. With indices [batch, queries,
    keys], k_cache has fp8 of 656 bytes a token, or 584, and the first topk_length [batch] slots of a query are its keys."""
    extra = {"extra_k_cache": extra_k_cache, "extra_indices_in_kvcache": extra_indices_in_kvcache, "extra_topk_length": extra_topk_length}
    if indices is not None:
        if causal or not is_fp8_kvcache:
            raise ValueError("indices need is_fp8_kvcache=True and causal=False")
        if extra_k_cache is None and (extra_indices_in_kvcache is not None or extra_topk_length is not None):
            raise ValueError("extra_k_cache is missing")
        refuse("flash_mla_with_kvcache", descale_q=descale_q, descale_k=descale_k)
        caches = [("k_cache", "indices", "topk_length", k_cache, indices, topk_length), (*extra, *extra.values())]
        return _sparse_decode(q, caches if extra_k_cache is not None else caches[:1], head_dim_v, softmax_scale, attn_sink)
    bytes_of_fp8 = None if is_fp8(k_cache.dtype) else is_fp8_kvcache
    refuse("flash_mla_with_kvcache", is_fp8_kvcache=bytes_of_fp8, topk_length=topk_length, **extra)
    if (descale_q is None) != (descale_k is None):
        raise ValueError("descale_q and descale_k need each other")
    _expect_values(head_dim_v, k_cache)
    keys = paged(k_cache, k_cache[..., :head_dim_v], block_table, cache_seqlens, page_table="block_table", v_cache="k_cache")
    scales = {} if descale_q is None else _dense_scales(descale_q, descale_k, len(q), k_cache.shape[2])
    return attend(q, keys, options(softmax_scale, causal, sinks=attn_sink, **scales), no_keys=float("inf"))


def _dense_scales(descale_q, descale_k, batch, heads):
    """f32 [batch, heads] of one number, or one a request; values are k's."""
    import numpy

    for name, scale in (("descale_q", descale_q), ("descale_k", descale_k)):
        expect(name, scale, 1 if len(scale) == 1 else batch)
        expect_f32(**{name: scale})
    each = lambda scale: numpy.repeat(numpy.broadcast_to(scale, batch)[:, None], heads, 1)  # noqa: E731
    return {"k_scales": lambda: each(host(descale_q) * host(descale_k)), "v_scales": lambda: each(host(descale_k))}


def _expect_values(dims, latents, name="head_dim_v"):
    if not 0 < dims <= latents.shape[-1]:
        raise wrong("param.head_dim", name, f"1..{latents.shape[-1]}", str(dims))


def _sparse_decode(q, caches, head_dim_v, softmax_scale, attn_sink):
    expect("q", q, None, None, None, None)
    batch, queries, heads, dim = q.shape
    for *names, cache, indices, lens in caches:
        expect_latents(names[0], cache, dim)
        expect(names[1], indices, batch, queries, None)
        if lens is not None:
            expect(names[2], lens, batch)
    _expect_values(head_dim_v, q)
    out, flat_out = new_out(q, (batch, queries, heads, head_dim_v), None, False)
    lse, flat_lse = new_lse(q, (batch, queries, heads, head_dim_v))

    def keys():
        each = [(c, i.reshape(batch * queries, -1), n if n is None else host(n).repeat(queries)) for *_, c, i, n in caches]
        return latent_keys(each, dim)

    names = {"sinks": "attn_sink", "sm_scale": "softmax_scale"}
    attend_picked(q, keys, head_dim_v, dim**-0.5 if softmax_scale is None else softmax_scale, attn_sink, flat_out, flat_lse, names)
    return out, lse


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None):
    """q [queries, heads, dim], kv [slots, 1, dim], indices [queries, 1, keys]: (out [queries, heads, d_v], max_logits and lse
    [queries, heads]). The first topk_length [queries] slots of a query are its keys."""
    expect("q", q, None, None, None)
    expect("kv", kv, None, 1, q.shape[2])
    expect("indices", indices, len(q), 1, None)
    if topk_length is not None:
        expect("topk_length", topk_length, len(q))
    expect_alike("q", q, kv=kv)
    _expect_values(d_v, q, "d_v")
    shape = (*q.shape[:2], d_v)
    out, max_logits, lse = empty(q, shape), empty(q, shape[:2], "float32"), empty(q, shape[:2], "float32")

    def keys():
        return Picked(kv[:, None], *picked(indices[:, 0], topk_length, len(kv)))

    names = {"sinks": "attn_sink", "page_table": "indices", "cache": "kv", "k_cache": "kv", "v_cache": "kv"}
    attend_picked(q, keys, d_v, sm_scale, attn_sink, out, lse, names, max_logits)
    return out, max_logits, lse
