"""Positions inside a call of attention (pos_encoding_mode): ROPE_LLAMA rotates q and k, ALIBI adds biases to logits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from .. import _core
from .._upstream import dtype_name, host, is_torch, offsets, picked, refuse, swap, used_pages, wrong
from ..cache import Cache

Rope = tuple[float, float]  # positions are divided by the first; theta
Positions = Rope | str | None  # a rope, "ALIBI", or nothing to do


def positions(call: str, mode: str, rope_scale: Any, rope_theta: Any, logits_soft_cap: Any = None) -> Positions:
    """Biases below a soft cap are refused: upstream scales them twice."""
    if mode not in ("NONE", "ROPE_LLAMA", "ALIBI"):
        raise KeyError(f"Invalid pos_encoding_mode {mode}")
    if mode == "ROPE_LLAMA":
        return float(rope_scale or 1.0), float(rope_theta or 1e4)
    if mode == "ALIBI" and logits_soft_cap is not None and logits_soft_cap > 0:
        refuse(call, pos_encoding_mode=mode)
    return mode if mode == "ALIBI" else None


@functools.lru_cache
def slopes(heads: int) -> Any:
    """f32 [heads], geometric: the first power of two's, then every other one of the next power's."""
    import numpy

    n = 1 << max(heads, 1).bit_length() - 1
    powers = [2.0 ** (-8 * i / n) for i in range(1, n + 1)] + [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]
    return numpy.asarray(powers, numpy.float32)


def _biased(attention: Callable[..., Any], kv_lens: Callable[..., Any]) -> Callable[..., Any]:
    """attention with slope * (key - query) added to its logits, each counted from its request's own first one: LSE says so.
    kv_lens: of the call's other arguments, int64 [batch]."""

    def attend(*, q: Any, lse: Any, cu_seqlens_q: Any = None, lse_base2: bool = True, sinks: Any = None, **rest: Any) -> None:
        import numpy

        if lse is not None:
            refuse('pos_encoding_mode="ALIBI"', sinks=sinks)  # its share of LSE has no bias
        bias = slopes(q.shape[1])
        attention(q=q, lse=lse, cu_seqlens_q=cu_seqlens_q, lse_base2=lse_base2, sinks=sinks, alibi_slopes=bias, **rest)
        if lse is not None:
            lens = kv_lens(**rest)
            q_lens = numpy.ones_like(lens) if cu_seqlens_q is None else numpy.diff(host(cu_seqlens_q))
            before = numpy.repeat(lens - q_lens, q_lens)  # keys before a request's first query, from which the engine counts
            shift = (before[:, None] * bias.astype("float64") * (math.log2(math.e) if lse_base2 else 1)).astype("float32")
            lse += lse.new_tensor(shift) if is_torch(lse) else shift

    return attend


def _packed_lens(*, cu_seqlens_k: Any, **rest: Any) -> Any:
    import numpy

    return numpy.diff(host(cu_seqlens_k).astype("int64"))


def _paged_lens(*, cache: Cache, kv_indptr: Any, last_page_len: Any, **rest: Any) -> Any:
    starts = host(kv_indptr).astype("int64")
    pages, page_size = starts[1:] - starts[:-1], cache.k_cache.shape[-3 if cache.layout.endswith("NHD") else -2]
    return ((pages - 1) * page_size + host(last_page_len)) * (pages > 0)


def turned(x: Any, positions: Any, rope: Rope) -> Any:
    """x [n, heads, dim] by f32 of its rotation at positions [n]: element i is paired with i + dim / 2."""
    import numpy

    if dtype_name(x.dtype).startswith("uint"):
        raise wrong("input.dtype", "q", "f16, bf16 or f32 where positions are rotated", str(x.dtype))
    wide = x.double().numpy() if is_torch(x) else x.astype(numpy.float64)
    half = wide.shape[-1] // 2
    angles = positions[:, None] / rope[0] * rope[1] ** (-numpy.arange(half) / half)
    cos, sin = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]
    low, high = wide[..., :half], wide[..., half:]
    return numpy.concatenate([low * cos - high * sin, high * cos + low * sin], -1).astype(numpy.float32)


def _places(starts: Any, first: Any) -> Any:
    """Positions of packed rows: those of request r count from first[r]."""
    import numpy

    lens = starts[1:] - starts[:-1]
    return numpy.arange(starts[-1]) - numpy.repeat(starts[:-1] - first, lens)


def _f32(x: Any) -> Any:
    return x.float() if is_torch(x) else x.astype("float32")


def ragged(rope: Positions) -> Callable[..., Any]:
    """ragged_attention, of rotated queries and keys if there is a rope."""
    if rope is None:
        return _core.ragged_attention
    if isinstance(rope, str):
        return _biased(_core.ragged_attention, _packed_lens)
    rotation = rope

    def attend(*, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, **rest: Any) -> None:
        q_starts, k_starts = (host(x).astype("int64") for x in (cu_seqlens_q, cu_seqlens_k))
        if len(q_starts) == len(k_starts) and q_starts[-1] == q.shape[0] and k_starts[-1] == k.shape[0]:
            before = (k_starts[1:] - k_starts[:-1]) - (q_starts[1:] - q_starts[:-1])
            if (k_starts[1:] >= k_starts[:-1]).all() and (q_starts[1:] >= q_starts[:-1]).all():
                q, k, v = turned(q, _places(q_starts, before), rotation), turned(k, _places(k_starts, 0), rotation), _f32(v)
        # what does not fit is left to the engine, which refuses it
        _core.ragged_attention(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, **rest)

    return attend


def paged(rope: Positions) -> Callable[..., Any]:
    """paged_attention; or that of packed keys and values, rotated."""
    if rope is None:
        return _core.paged_attention
    if isinstance(rope, str):
        return _biased(_core.paged_attention, _paged_lens)

    def attend(
        *, q: Any, cache: Cache, kv_indptr: Any, kv_indices: Any, last_page_len: Any, cu_seqlens_q: Any = None, **rest: Any
    ) -> None:
        import numpy

        stacked = cache.layout.startswith("STACKED_")
        planes = (cache.k_cache[:, 0], cache.k_cache[:, 1]) if stacked else (cache.k_cache, cache.v_cache)
        if cache.layout.endswith("HND"):
            planes = swap(planes[0], 1, 2), swap(planes[1], 1, 2)
        starts, indices, last = host(kv_indptr).astype("int64"), host(kv_indices), host(last_page_len).astype("int64")
        page_size, pages = planes[0].shape[1], starts[1:] - starts[:-1]
        if len(pages) != len(last):
            raise wrong("len.batch", "kv_indptr", f"{len(last) + 1} entries", str(len(starts)))
        if (pages < 0).any():
            row = int(pages.argmin()) + 1
            raise wrong("len.indptr_monotone", "kv_indptr", f">= {starts[row - 1]}", str(starts[row]), row)
        bad = (pages > 0) & ((last < 1) | (last > page_size))
        if bad.any():
            row = int(bad.argmax())
            raise wrong("len.last_page", "last_page_len", f"1..{page_size}", str(last[row]), row)
        used = used_pages([indices[a:b] for a, b in zip(starts, starts[1:])], pages, planes[0].shape[0])
        ids = numpy.concatenate([numpy.zeros(0, numpy.int64), *(row.astype(numpy.int64) for row in used)])
        lens = ((pages - 1) * page_size + last) * (pages > 0)
        ends = offsets(lens)
        slots = numpy.repeat(starts[:-1] - starts[0], lens) * page_size + _places(ends.astype("int64"), 0)
        slots = ids[slots // page_size] * page_size + slots % page_size if len(slots) else slots.astype(numpy.int64)
        k, v = (picked(plane.reshape(-1, *plane.shape[2:]), slots) for plane in planes)
        rows = numpy.arange(len(lens) + 1, dtype=numpy.int32) if cu_seqlens_q is None else cu_seqlens_q
        ragged(rope)(q=q, k=k, v=v, cu_seqlens_q=rows, cu_seqlens_k=ends, **rest)

    return attend
