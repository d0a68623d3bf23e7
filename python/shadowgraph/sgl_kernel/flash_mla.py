"""Stands in for sgl_kernel.flash_mla and FlashMLA: dense decode over a cache of latents, whose first dims are values."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._flash import attend, options, paged, schedule
from .._upstream import refuse, wrong


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
    heads, queries]). A row that sees no key has lse +inf. attn_sink is in out, not in the lse."""
    options_left = {"descale_q": descale_q, "descale_k": descale_k, "is_fp8_kvcache": is_fp8_kvcache, "indices": indices}
    options_left |= {"extra_k_cache": extra_k_cache, "extra_indices_in_kvcache": extra_indices_in_kvcache}
    refuse("flash_mla_with_kvcache", **options_left, topk_length=topk_length, extra_topk_length=extra_topk_length)
    if not 0 < head_dim_v <= k_cache.shape[-1]:
        raise wrong("param.head_dim", "head_dim_v", f"1..{k_cache.shape[-1]}", str(head_dim_v))
    keys = paged(k_cache, k_cache[..., :head_dim_v], block_table, cache_seqlens, page_table="block_table", v_cache="k_cache")
    return attend(q, keys, options(softmax_scale, causal, sinks=attn_sink), no_keys=float("inf"))
