"""FlashInfer's trtllm_* calls: block tables and lengths come with the call; K and V may have tables of their own."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._upstream import (
    host, integers, offsets, picked, product, refuse, uniform_offsets, used_pages, wrong,
)  # fmt: skip
from ..cache import Cache
from ._attend import attend, layer, paged

_NAMES = {
    "q": "query",
    "num_qo_heads": "query",
    "page_table": "block_tables",
    "cache_seqlens": "seq_lens",
    "k_cache": "kv_cache",
    "v_cache": "kv_cache",
    "cu_seqlens_q": "cum_seq_lens_q",
    "sm_scale": "bmm1_scale",
    "out_scale": "bmm2_scale",
}


def _two_tables(*, cache: Cache, page_table: Any, cache_seqlens: Any, **rest: Any) -> None:
    """paged_attention with page_table [batch, 2, pages]: row 0 has K's pages, row 1 V's. Copies the pages that are used."""
    stacked = cache.layout.startswith("STACKED_")
    k, v = (cache.k_cache[:, 0], cache.k_cache[:, 1]) if stacked else (cache.k_cache, cache.v_cache)
    layout = cache.layout.removeprefix("STACKED_")
    page_size, lens, tables = k.shape[1 if layout == "NHD" else 2], host(cache_seqlens).astype("int64"), host(page_table)
    if len(tables.shape) != 3 or tables.shape[:2] != (len(lens), 2):
        raise wrong("input.shape", "page_table", f"[{len(lens)}, 2, pages]", str(list(tables.shape)))
    pages = -(-lens.clip(0) // page_size)
    parts = [
        picked(plane, host(sum((ids.tolist() for ids in used_pages(tables[:, i], pages, plane.shape[0])), [])).astype(int))
        for i, plane in enumerate((k, v))
    ]
    lists = {"kv_indptr": offsets(pages), "kv_indices": uniform_offsets(int(pages.sum()), 1)[:-1]}
    _core.paged_attention(
        cache=Cache(*parts, layout=layout), **lists, last_page_len=(lens - (pages - 1) * page_size).astype("int32"), **rest
    )


def _attend(
    call: str, query: Any, cache: Cache, head_dim_vo: int, block_tables: Any, seq_lens: Any, cu_seqlens_q: Any, shared: bool,
    scales: tuple[Any, Any], outputs: tuple[Any, Any, bool], out_dtype: Any, **terms: Any,
) -> Any:  # fmt: skip
    lists = {"page_table": integers(block_tables), "cache_seqlens": integers(seq_lens), "cu_seqlens_q": integers(cu_seqlens_q)}
    return attend(
        _core.paged_attention if shared else _two_tables, _NAMES, query, head_dim_vo, outputs, out_dtype,
        cache=cache, **lists, sm_scale=product(scales[0]), out_scale=product(scales[1]), **terms,
    )  # fmt: skip


def _rows(call: str, query: Any, seq_lens: Any, q_len: int | None, cum_seq_lens_q: Any) -> Any:
    """cu_seqlens_q: as given, or q_len rows a request."""
    if cum_seq_lens_q is not None:
        return cum_seq_lens_q
    batch = len(seq_lens)
    if query.shape[0] != batch * (q_len or 1):
        raise wrong("len.total", "query", f"{batch} requests * q_len_per_req {q_len or 1} rows", str(query.shape[0]))
    return uniform_offsets(batch, q_len or 1)


def trtllm_batch_decode_with_kv_cache(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_seq_len,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    window_left=-1,
    out=None,
    out_dtype=None,
    o_sf_scale=None,
    o_sf_vec_size=None,
    sinks=None,
    kv_layout="HND",
    enable_pdl=None,
    backend="auto",
    q_len_per_req=1,
    o_scale=1.0,
    mask=None,
    max_q_len=None,
    cum_seq_lens_q=None,
    skip_softmax_threshold_scale_factor=None,
    kv_cache_sf=None,
    uses_shared_paged_kv_idx=True,
    lse=None,
    return_lse=False,
    bmm1_scale_log2=None,
    multi_ctas_kv_counter_buffer=None,
    enable_block_sparse_attention=False,
    bf16q_fp8kv_transform_mode=None,
):
    """query [requests * q_len_per_req, H, D], or rows by cum_seq_lens_q; causal."""
    call = "trtllm_batch_decode_with_kv_cache"
    terms = layer(
        call, sinks=sinks, window_left=window_left, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size,
        o_scale=None if o_scale == 1 else o_scale, mask=mask, kv_cache_sf=kv_cache_sf, bmm1_scale_log2=bmm1_scale_log2,
        skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
        enable_block_sparse_attention=enable_block_sparse_attention, bf16q_fp8kv_transform_mode=bf16q_fp8kv_transform_mode,
    )  # fmt: skip
    cache, head_dim_vo = paged(kv_cache, kv_layout)
    return _attend(
        call, query, cache, head_dim_vo, block_tables, seq_lens, _rows(call, query, seq_lens, q_len_per_req, cum_seq_lens_q),
        uses_shared_paged_kv_idx, (bmm1_scale, bmm2_scale), (out, lse, return_lse), _plain(call, out_dtype), causal=True, **terms,
    )  # fmt: skip


def trtllm_batch_context_with_kv_cache(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_q_len,
    max_kv_len,
    bmm1_scale,
    bmm2_scale,
    batch_size,
    cum_seq_lens_q,
    cum_seq_lens_kv,
    window_left=-1,
    out=None,
    out_dtype=None,
    o_sf_scale=None,
    o_sf_vec_size=None,
    kv_layout="HND",
    enable_pdl=None,
    sinks=None,
    kv_cache_sf=None,
    skip_softmax_threshold_scale_factor=None,
    uses_shared_paged_kv_idx=True,
    causal=True,
    lse=None,
    return_lse=False,
    multi_ctas_kv_counter_buffer=None,
    use_fp16_softmax=None,
    uses_spcompress=None,
):
    """query [rows, H, D] by cum_seq_lens_q."""
    call = "trtllm_batch_context_with_kv_cache"
    terms = layer(
        call, sinks=sinks, window_left=window_left, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size, kv_cache_sf=kv_cache_sf,
        skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, uses_spcompress=uses_spcompress,
    )  # fmt: skip
    cache, head_dim_vo = paged(kv_cache, kv_layout)
    return _attend(
        call, query, cache, head_dim_vo, block_tables, seq_lens, cum_seq_lens_q,
        uses_shared_paged_kv_idx, (bmm1_scale, bmm2_scale), (out, lse, return_lse), _plain(call, out_dtype), causal=causal, **terms,
    )  # fmt: skip


def trtllm_batch_decode_with_kv_cache_mla(
    query,
    kv_cache,
    workspace_buffer,
    qk_nope_head_dim,
    kv_lora_rank,
    qk_rope_head_dim,
    block_tables,
    seq_lens,
    max_seq_len,
    sparse_mla_top_k=0,
    out=None,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    sinks=None,
    skip_softmax_threshold_scale_factor=None,
    enable_pdl=None,
    backend="auto",
    is_var_seq=True,
    uses_shared_paged_kv_idx=True,
    lse=None,
    return_lse=False,
    cute_dsl_impl="auto",
    kv_scale_format="auto",
    cum_seq_lens_q=None,
    max_q_len=None,
    multi_ctas_kv_counter_buffer=None,
    sparse_mla_top_k_lens=None,
    enable_dcp=False,
    cp_world=1,
    cp_rank=0,
    causal_seqlens_kv_global=None,
    use_fp16_softmax=None,
):
    """query [requests, q_len, H, kv_lora_rank + qk_rope_head_dim], or rows [.., H, ..] by cum_seq_lens_q; kv_cache
    [pages, page_size, ..], or with an axis of 1 behind pages. LSE [rows, H]."""
    call = "trtllm_batch_decode_with_kv_cache_mla"
    terms = layer(
        call, sinks=sinks, sparse_mla_top_k=sparse_mla_top_k, sparse_mla_top_k_lens=sparse_mla_top_k_lens,
        skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, enable_dcp=enable_dcp,
        cp_world=None if cp_world == 1 else cp_world, cp_rank=cp_rank, causal_seqlens_kv_global=causal_seqlens_kv_global,
    )  # fmt: skip
    shape, q_len = query.shape, 1
    if len(shape) == 4:
        q_len, query = shape[1], query.reshape(-1, *shape[2:])
    flat = out if out is None or len(out.shape) == 3 else out.reshape(-1, *out.shape[2:])
    if len(kv_cache.shape) == 4:
        kv_cache = kv_cache[:, 0]
    cache = Cache(kv_cache, layout="MLA_LATENT", head_dim_vo=kv_lora_rank)
    result = _attend(
        call, query, cache, kv_lora_rank, block_tables if uses_shared_paged_kv_idx else block_tables[:, 0], seq_lens,
        _rows(call, query, seq_lens, q_len, cum_seq_lens_q), True, (bmm1_scale, bmm2_scale), (flat, lse, return_lse), None,
        causal=True, **terms,
    )  # fmt: skip
    made = result[0] if return_lse else result
    made = out if out is not None else made.reshape(*shape[:-1], kv_lora_rank)
    return (made, result[1]) if return_lse else made


def _plain(call: str, out_dtype: Any) -> Any:
    if out_dtype == "nvfp4":
        refuse(call, out_dtype=out_dtype)
    return out_dtype
