"""New keys that flash_attn_with_kvcache appends to a cache, and the rotary embedding that turns them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _core
from ._tensors import as_f32, expect, inner
from ._upstream import host, is_torch, picked, refuse, uniform_offsets, wrong


class Rotary(NamedTuple):
    """Turns new keys, and queries, by cos and sin [positions, half of the turned dims] of their positions."""

    cos: Any
    sin: Any
    interleaved: bool  # pairs are dims 2 i and 2 i + 1, else i and i + half
    seqlens: Any  # [batch] the first new position; None: behind the cache
    moves: bool  # does query i stand i positions behind the first one? Else all stand there


class New(NamedTuple):
    """Keys and values to append to a cache: [batch, new, heads, dim], or [tokens, heads, dim] by cu_seqlens."""

    k: Any
    v: Any
    cu_seqlens: Any = None
    rotary: Rotary | None = None


def new_keys(
    call: str, k: Any, v: Any, cu_seqlens: Any, cos: Any, sin: Any, interleaved: bool, seqlens: Any, causal: Any, window_size: Any
) -> New | None:
    """The arguments of flash_attn_with_kvcache, of which k, v and what turns them are new keys."""
    if cos is None:
        refuse(call, rotary_sin=sin)  # without cos, kernels read no seqlens either
        return None if k is None else New(k, v, cu_seqlens)
    if k is None or sin is None:
        raise ValueError(f"rotary_cos needs {'k and v, which it turns' if k is None else 'rotary_sin'}")
    expect("rotary_cos", cos, None, None)
    expect("rotary_sin", sin, *cos.shape)
    moves = bool(causal) or any(side is not None and side >= 0 for side in window_size)
    return New(k, v, cu_seqlens, Rotary(cos, sin, interleaved, seqlens, moves))


def expect_new(new: New, batch: int, k_cache: Any, v_cache: Any) -> None:
    expect("k", new.k, *((batch,) if new.cu_seqlens is None else ()), None, *k_cache.shape[2:])
    expect("v", new.v, *new.k.shape[:-1], v_cache.shape[-1])


def appended(k_cache: Any, new: New, call: dict[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """New keys, values and their slots behind a request's lengths, which count them now; and the first new position of each
    request. Refuses a call that attention would refuse: no key is stored then."""
    import numpy

    lens, size = host(call["cache_seqlens"]), k_cache.shape[1]
    if new.cu_seqlens is None:
        request, index = _even_tokens(len(lens), new.k.shape[1])
        added = new.k.shape[1]
    else:
        starts, tokens = host(new.cu_seqlens), len(new.k)
        expect("cu_seqlens_k_new", starts, len(lens) + 1)
        added = starts[1:] - starts[:-1]
        if starts[0] != 0 or (added < 0).any() or starts[-1] != tokens:
            raise wrong("len.total", "cu_seqlens_k_new", f"offsets from 0 to {tokens}", str(starts.tolist()))
        request, index = _tokens(starts)
    call["cache_seqlens"] = (lens + added).astype(numpy.int32, copy=False)
    refuse_wrong(_core.paged_attention, call)
    position = lens[request] + index
    slots = host(call["page_table"])[request, position // size].astype(numpy.int64) * size + position % size
    k, v = (inner(t.reshape(-1, *t.shape[-2:])) for t in (new.k, new.v))
    first = lens
    if new.rotary is not None:
        first = lens if new.rotary.seqlens is None else host(new.rotary.seqlens)
        expect("rotary_seqlens", first, len(lens))
        k = turned(k, new.rotary, first[request] + index)
    return (k, v, slots), first


@functools.lru_cache(64)
def _even_tokens(batch: int, each: int) -> tuple[Any, Any]:
    return _tokens(uniform_offsets(batch, each))


def _tokens(starts: Any) -> tuple[Any, Any]:
    """The request of each packed token, and the token's place in it."""
    import numpy

    request = numpy.repeat(numpy.arange(len(starts) - 1), numpy.diff(starts))
    return request, numpy.arange(starts[-1]) - starts[:-1][request]


def turned_queries(q: Any, rotary: Rotary, first: Any, starts: Any) -> Any:
    request, index = _tokens(starts)
    return turned(q, rotary, first[request] + (index if rotary.moves else 0))


def turned(x: Any, rotary: Rotary, position: Any) -> Any:
    """x [tokens, heads, dim] by its positions, in f32, rounded to x's type."""
    half = rotary.cos.shape[1]
    if 2 * half > x.shape[-1]:
        raise wrong("input.shape", "rotary_cos", f"at most {x.shape[-1] // 2} columns", str(half))
    for token in ((position < 0) | (position >= len(rotary.cos))).nonzero()[0]:
        raise wrong("input.shape", "rotary_cos", f"a row of position {position[token]}", f"{len(rotary.cos)} rows")
    cos, sin = (as_f32(picked(t, position))[:, None] for t in (rotary.cos, rotary.sin))
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if rotary.interleaved else (slice(0, half), slice(half, 2 * half))
    wide = as_f32(x)
    result = wide + 0
    result[..., a] = wide[..., a] * cos - wide[..., b] * sin
    result[..., b] = wide[..., a] * sin + wide[..., b] * cos
    return result.to(x.dtype) if is_torch(x) else result.astype(x.dtype)


def refuse_wrong(attention: Callable[..., Any], call: Mapping[str, Any]) -> None:
    """Refuses what the call would refuse, and writes nothing."""
    import numpy

    batch, slopes = len(call["cu_seqlens_q"]) - 1, call.get("alibi_slopes")
    changed = {"seqused_q": numpy.zeros(max(batch, 0), numpy.int32)}
    if slopes is not None and len(slopes.shape) == 2:
        expect("alibi_slopes", slopes, batch, None)
        changed["alibi_slopes"] = slopes[0]
    attention(**call | changed)
