"""Stands in for sgl_kernel. Logarithms are natural."""

from __future__ import annotations

from .._flash import attend, merge_two, options, paged
from .._tensors import expect, expect_alike
from .._upstream import empty
from . import flash_attn as flash_attn, flash_mla as flash_mla
from .flash_mla import flash_mla_with_kvcache as flash_mla_with_kvcache, get_mla_metadata as get_mla_metadata


def merge_state_v2(v_a, s_a, v_b, s_b, v_merged=None, s_merged=None):
    """v_a, v_b [tokens, heads, dim] and s_a, s_b [tokens, heads]: (v_merged, s_merged) of the keys of both."""
    v_merged = empty(v_a, tuple(v_a.shape)) if v_merged is None else v_merged
    s_merged = empty(s_a, tuple(s_a.shape), "float32") if s_merged is None else s_merged
    merge_two((v_a, s_a), (v_b, s_b), v_merged, s_merged, ("v_a", "s_a", "v_b", "s_b", "v_merged", "s_merged"))
    return v_merged, s_merged


def cutlass_mla_decode(q_nope, q_pe, kv_c_and_k_pe_cache, seq_lens, page_table, workspace, sm_scale, num_kv_splits=1):
    """q_nope [batch, heads, latent], q_pe [batch, heads, rope], cache [pages, page, latent + rope]: out as q_nope."""
    expect("q_nope", q_nope, None, None, None)
    expect("q_pe", q_pe, *q_nope.shape[:2], None)
    width = q_nope.shape[-1]
    expect("kv_c_and_k_pe_cache", kv_c_and_k_pe_cache, None, None, width + q_pe.shape[-1])
    name = "kv_c_and_k_pe_cache"
    expect_alike("q_nope", q_nope, q_pe=q_pe, kv_c_and_k_pe_cache=kv_c_and_k_pe_cache)
    cache = kv_c_and_k_pe_cache[:, :, None]
    names = {"k_cache": name, "v_cache": name, "cache_seqlens": "seq_lens", "q": "q_pe", "sm_scale": "sm_scale"}
    keys = paged(cache, cache[..., :width], page_table, seq_lens, **names)._replace(whole=True)
    return attend(q_pe[:, None], keys, options(sm_scale), qv=q_nope[:, None], with_lse=False)[0][:, 0]


def cutlass_mla_get_workspace_size(max_seq_len, num_batches, sm_count=0, num_kv_splits=1):
    """Bytes: none."""
    return 0
