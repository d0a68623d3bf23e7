"""FlashInfer's trtllm_* calls: block tables and lengths come with the call; K and V may have tables of their own."""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from .._upstream import (
    dtype_name, host, integers, is_torch, joined, offsets, picked, product, refuse, uniform_offsets, used_pages, wrong,
)  # fmt: skip
from .._tensors import flat
from ..cache import Cache
from ._attend import attend, layer, paged, skipping

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


_RAGGED_NAMES = {"cu_seqlens_k": "cum_seq_lens_kv", "k": "key", "v": "value", "sinks": "attention_sinks"}


def _two_tables(*, cache: Cache, page_table: Any, cache_seqlens: Any, **rest: Any) -> None:
    """paged_attention with page_table [batch, 2, pages]: row 0 has K's pages, row 1 V's. Copies the pages that are used."""
    stacked = cache.layout.startswith("STACKED_")
    k, v = (cache.k_cache[:, 0], cache.k_cache[:, 1]) if stacked else (cache.k_cache, cache.v_cache)
    layout = cache.layout.removeprefix("STACKED_")
    page_size, lens, tables = k.shape[1 if layout == "NHD" else 2], host(cache_seqlens).astype("int64"), host(page_table)
    if len(tables.shape) != 3 or tables.shape[:2] != (len(lens), 2):
        raise wrong("input.shape", "page_table", f"[{len(lens)}, 2, pages]", str(list(tables.shape)))
    if (lens < 0).any():
        raise wrong("len.negative", "cache_seqlens", ">= 0", str(lens.min()), int(lens.argmin()))
    pages = -(-lens // page_size)
    parts = []
    for i, plane in enumerate((k, v)):
        ids = used_pages(tables[:, i], pages, plane.shape[0])
        parts.append(picked(plane, joined([uniform_offsets(0, 1)[1:], *ids], 0)))
    lists = {"kv_indptr": offsets(pages), "kv_indices": uniform_offsets(int(pages.sum()), 1)[:-1]}
    _core.paged_attention(
        cache=Cache(parts[0], parts[1], layout), **lists, last_page_len=(lens - (pages - 1) * page_size).astype("int32"), **rest
    )


def _by_tokens(*, q: Any, cache: Cache, block_tables: Any, lens: Any, **rest: Any) -> None:
    """paged_attention of rows that see the tokens block_tables [rows, k] of the pool, but for -1 and what is behind lens [rows]."""
    import numpy

    ids = host(block_tables).reshape(q.shape[0], -1)
    used = ids != -1
    if lens is not None:
        used &= numpy.arange(ids.shape[1]) < host(lens).reshape(-1, 1)
    counts = used.sum(1)
    tokens = cache.k_cache.reshape(-1, 1, cache.k_cache.shape[-1])
    _core.paged_attention(
        q=q, cache=cache._replace(k_cache=tokens), kv_indptr=offsets(counts), kv_indices=ids[used].astype("int32"),
        last_page_len=(counts > 0).astype("int32"), **rest,
    )  # fmt: skip


def _attend(
    query: Any, cache: Cache, head_dim_vo: int, block_tables: Any, seq_lens: Any, cu_seqlens_q: Any, shared: bool,
    scales: tuple[Any, Any], outputs: tuple[Any, Any, bool], out_dtype: Any, **terms: Any,
) -> Any:  # fmt: skip
    lists = {"page_table": integers(block_tables), "cache_seqlens": integers(seq_lens), "cu_seqlens_q": integers(cu_seqlens_q)}
    return attend(
        _core.paged_attention if shared else _two_tables, _NAMES, query, head_dim_vo, outputs, out_dtype,
        cache=cache, **lists, sm_scale=product(scales[0]), out_scale=product(scales[1]), **terms,
    )  # fmt: skip


def _sparse(
    query: Any, cache: Cache, block_tables: Any, lens: Any, shapes: Any, scales: tuple[Any, Any], outputs: tuple[Any, Any, bool],
    **terms: Any,
) -> Any:  # fmt: skip
    """shapes: those that block_tables may have."""
    if tuple(block_tables.shape) not in shapes:
        raise wrong("input.shape", "block_tables", f"{list(shapes[0])}, sparse_mla_top_k tokens a query", str(list(block_tables.shape)))
    return attend(
        _by_tokens, _NAMES | {"kv_indices": "block_tables"}, query, cache.head_dim_vo, outputs, cache=cache,
        block_tables=block_tables, lens=lens, sm_scale=product(scales[0]), out_scale=product(scales[1]), **terms,
    )  # fmt: skip


def _rows(query: Any, seq_lens: Any, q_len: int | None, cum_seq_lens_q: Any) -> Any:
    """cu_seqlens_q: as given, or q_len rows a request; None: a decode."""
    if cum_seq_lens_q is not None:
        return cum_seq_lens_q
    batch, q_len = seq_lens.shape[0], q_len or 1
    if query.shape[0] != batch * q_len:
        raise wrong("len.total", "query", f"{batch} requests * q_len_per_req {q_len} rows", str(query.shape[0]))
    return None if q_len == 1 else uniform_offsets(batch, q_len)


def trtllm_batch_decode_with_kv_cache(
    query: Any,
    kv_cache: Any,
    workspace_buffer: Any,
    block_tables: Any,
    seq_lens: Any,
    max_seq_len: Any,
    bmm1_scale: Any = 1.0,
    bmm2_scale: Any = 1.0,
    window_left: int = -1,
    out: Any = None,
    out_dtype: Any = None,
    o_sf_scale: Any = None,
    o_sf_vec_size: Any = None,
    sinks: Any = None,
    kv_layout: str = "HND",
    enable_pdl: Any = None,
    backend: str = "auto",
    q_len_per_req: int = 1,
    o_scale: Any = 1.0,
    mask: Any = None,
    max_q_len: Any = None,
    cum_seq_lens_q: Any = None,
    skip_softmax_threshold_scale_factor: Any = None,
    kv_cache_sf: Any = None,
    uses_shared_paged_kv_idx: bool = True,
    lse: Any = None,
    return_lse: bool = False,
    bmm1_scale_log2: Any = None,
    multi_ctas_kv_counter_buffer: Any = None,
    enable_block_sparse_attention: bool = False,
    bf16q_fp8kv_transform_mode: Any = None,
) -> Any:
    """query [requests * q_len_per_req, H, D], or rows by cum_seq_lens_q; causal."""
    call = "trtllm_batch_decode_with_kv_cache"
    if q_len_per_req is None and max_q_len is None:
        raise wrong("len.bound", "max_q_len", "the most queries of a request, where q_len_per_req is None", "None")
    terms = layer(
        call, sinks=sinks, window_left=window_left, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size,
        o_scale=None if o_scale == 1 else o_scale, mask=None if backend == "trtllm-gen" or _is_causal(mask) else mask, kv_cache_sf=kv_cache_sf,
        skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor),
        enable_block_sparse_attention=enable_block_sparse_attention, bf16q_fp8kv_transform_mode=bf16q_fp8kv_transform_mode,
    )  # fmt: skip
    if bmm1_scale_log2 is not None:  # the same scale, of logits to base 2
        bmm1_scale = product(bmm1_scale_log2, math.log(2))
    cache, head_dim_vo = paged(kv_cache, kv_layout, "kv_cache")
    return _attend(
        query, cache, head_dim_vo, block_tables, seq_lens, _rows(query, seq_lens, q_len_per_req, cum_seq_lens_q),
        uses_shared_paged_kv_idx, (bmm1_scale, bmm2_scale), (out, lse, return_lse), _plain(call, out_dtype, out), causal=True, **terms,
    )  # fmt: skip


def trtllm_batch_context_with_kv_cache(
    query: Any,
    kv_cache: Any,
    workspace_buffer: Any,
    block_tables: Any,
    seq_lens: Any,
    max_q_len: Any,
    max_kv_len: Any,
    bmm1_scale: Any,
    bmm2_scale: Any,
    batch_size: int,
    cum_seq_lens_q: Any,
    cum_seq_lens_kv: Any,
    window_left: int = -1,
    out: Any = None,
    out_dtype: Any = None,
    o_sf_scale: Any = None,
    o_sf_vec_size: Any = None,
    kv_layout: str = "HND",
    enable_pdl: Any = None,
    sinks: Any = None,
    kv_cache_sf: Any = None,
    skip_softmax_threshold_scale_factor: Any = None,
    uses_shared_paged_kv_idx: bool = True,
    causal: bool = True,
    lse: Any = None,
    return_lse: bool = False,
    multi_ctas_kv_counter_buffer: Any = None,
    use_fp16_softmax: Any = None,
    uses_spcompress: Any = None,
) -> Any:
    """query [rows, H, D] by cum_seq_lens_q."""
    call = "trtllm_batch_context_with_kv_cache"
    _check_batch(batch_size, seq_lens, cum_seq_lens_q)
    terms = layer(
        call, sinks=sinks, window_left=window_left, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size, kv_cache_sf=kv_cache_sf,
        skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor), uses_spcompress=uses_spcompress,
    )  # fmt: skip
    cache, head_dim_vo = paged(kv_cache, kv_layout, "kv_cache")
    return _attend(
        query, cache, head_dim_vo, block_tables, seq_lens, cum_seq_lens_q,
        uses_shared_paged_kv_idx, (bmm1_scale, bmm2_scale), (out, lse, return_lse), _plain(call, out_dtype, out), causal=causal, **terms,
    )  # fmt: skip


def trtllm_ragged_attention_deepseek(
    query: Any,
    key: Any,
    value: Any,
    workspace_buffer: Any,
    seq_lens: Any,
    max_q_len: int,
    max_kv_len: int,
    bmm1_scale: Any,
    bmm2_scale: Any,
    o_sf_scale: float,
    batch_size: int,
    window_left: int,
    cum_seq_lens_q: Any,
    cum_seq_lens_kv: Any,
    enable_pdl: bool | None,
    is_causal: bool,
    return_lse: bool,
    attention_sinks: Any = None,
    skip_softmax_threshold_scale_factor: Any = None,
    out: Any = None,
    lse: Any = None,
    sage_attn_sfs: Any = (None, None, None, None),
    num_elts_per_sage_attn_blk: Any = (0, 0, 0, 0),
    backend: str = "trtllm-gen",
    q_seq_lens_cpu: Any = None,
    kv_seq_lens_cpu: Any = None,
    use_fp16_softmax: Any = None,
    uses_spcompress: Any = None,
) -> Any:
    """query [rows, H, D], key [keys, Hk, D], value [keys, Hk, Dv], packed by cum_seq_lens_q and cum_seq_lens_kv."""
    call = "trtllm_ragged_attention_deepseek"
    _check_batch(batch_size, seq_lens, cum_seq_lens_q)
    terms = layer(
        call, sinks=attention_sinks, window_left=window_left, uses_spcompress=uses_spcompress,
        skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor),
        sage_attn_sfs=None if all(factors is None for factors in sage_attn_sfs) else sage_attn_sfs,
    )  # fmt: skip
    return attend(
        _core.ragged_attention, _NAMES | _RAGGED_NAMES, query, value.shape[-1], (out, lse, return_lse), k=key, v=value,
        cu_seqlens_q=integers(cum_seq_lens_q), cu_seqlens_k=integers(cum_seq_lens_kv), causal=is_causal,
        sm_scale=product(bmm1_scale), out_scale=product(bmm2_scale), **terms,
    )  # fmt: skip


def trtllm_batch_decode_with_kv_cache_mla(
    query: Any,
    kv_cache: Any,
    workspace_buffer: Any,
    qk_nope_head_dim: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    block_tables: Any,
    seq_lens: Any,
    max_seq_len: Any,
    sparse_mla_top_k: int = 0,
    out: Any = None,
    bmm1_scale: Any = 1.0,
    bmm2_scale: Any = 1.0,
    sinks: Any = None,
    skip_softmax_threshold_scale_factor: Any = None,
    enable_pdl: Any = None,
    backend: str = "auto",
    is_var_seq: bool = True,
    uses_shared_paged_kv_idx: bool = True,
    lse: Any = None,
    return_lse: bool = False,
    cute_dsl_impl: str = "auto",
    kv_scale_format: str = "auto",
    cum_seq_lens_q: Any = None,
    max_q_len: Any = None,
    multi_ctas_kv_counter_buffer: Any = None,
    sparse_mla_top_k_lens: Any = None,
    enable_dcp: bool = False,
    cp_world: int = 1,
    cp_rank: int = 0,
    causal_seqlens_kv_global: Any = None,
    use_fp16_softmax: Any = None,
) -> Any:
    """query [requests, q_len, H, kv_lora_rank + qk_rope_head_dim], or rows [.., H, ..] by cum_seq_lens_q; kv_cache
    [pages, page_size, ..], or with an axis of 1 behind pages. LSE [rows, H]. With sparse_mla_top_k block_tables has tokens of
    the pool, page * page_size + offset, [requests, q_len, sparse_mla_top_k] or [rows, ..]; -1 is none."""
    call = "trtllm_batch_decode_with_kv_cache_mla"
    terms = layer(
        call, sinks=sinks, sparse_mla_top_k_lens=None if sparse_mla_top_k else sparse_mla_top_k_lens,
        skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor), enable_dcp=enable_dcp,
        cp_world=None if cp_world == 1 else cp_world, cp_rank=cp_rank, causal_seqlens_kv_global=causal_seqlens_kv_global,
    )  # fmt: skip
    shape = query.shape
    if shape[-1] != kv_lora_rank + qk_rope_head_dim:
        raise wrong("input.shape", "query", f"[.., kv_lora_rank + qk_rope_head_dim {kv_lora_rank + qk_rope_head_dim}]", str(list(shape)))
    q_len, query = (shape[1], query.reshape(-1, *shape[2:])) if len(shape) == 4 else (1, query)
    views = [x if x is None or len(x.shape) == axes else flat(x) for x, axes in ((out, 3), (lse, 2))]
    outputs = views[0], views[1], return_lse
    cache = Cache(kv_cache[:, 0] if len(kv_cache.shape) == 4 else kv_cache, layout="MLA_LATENT", head_dim_vo=kv_lora_rank)
    scales = bmm1_scale, bmm2_scale
    if sparse_mla_top_k:
        shapes = (*shape[:-2], sparse_mla_top_k), (query.shape[0], sparse_mla_top_k)
        result = _sparse(query, cache, block_tables, sparse_mla_top_k_lens, shapes, scales, outputs, **terms)
    else:
        tables = block_tables if uses_shared_paged_kv_idx else block_tables[:, 0]
        rows = _rows(query, seq_lens, q_len, cum_seq_lens_q)
        result = _attend(query, cache, kv_lora_rank, tables, seq_lens, rows, True, scales, outputs, None, causal=True, **terms)
    made = out if out is not None else (result[0] if return_lse else result).reshape(*shape[:-1], kv_lora_rank)
    return (made, result[1] if lse is None else lse) if return_lse else made


def _is_causal(mask: Any) -> bool:
    """Is a mask of drafts, words of 16 bits [requests, q_len, ..], what the call does without it? Only xqa reads masks."""
    import numpy

    if mask is None:
        return True
    words = host(mask).astype("uint16")
    bits = numpy.unpackbits(words.view("uint8"), axis=-1, bitorder="little")[..., : words.shape[-2]]
    return bool((bits == numpy.tri(words.shape[-2], dtype="uint8")).all())


def _check_batch(batch_size: int, seq_lens: Any, cum_seq_lens_q: Any) -> None:
    """Kernels walk batch_size requests."""
    for name, array, more in (("seq_lens", seq_lens, 0), ("cum_seq_lens_q", cum_seq_lens_q, 1)):
        if array.shape[0] != batch_size + more:
            raise wrong("len.batch", name, f"{batch_size + more} entries, by batch_size", str(array.shape[0]))


def _plain(call: str, out_dtype: Any, out: Any) -> Any:
    if isinstance(out_dtype, str) and out_dtype == "nvfp4":
        refuse(call, out_dtype=out_dtype)
    if out is not None and out_dtype is not None and is_torch(out) and dtype_name(out.dtype) != dtype_name(out_dtype):
        raise ValueError(f"out.dtype is {dtype_name(out.dtype)}, and out_dtype {dtype_name(out_dtype)}")
    return out_dtype
