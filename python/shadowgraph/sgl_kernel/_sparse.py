"""Attention of queries that each name their keys: the slots of a latent cache, of which one below 0, or behind the cache's
last one, names none."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import _core
from .._tensors import expect, rows_of
from .._upstream import host, is_torch, launch, number, wrong


class Picked(NamedTuple):
    """Keys that queries name."""

    pool: Any  # [slots, 1, 1, dim]
    slots: Any  # int32 [queries, most keys], a query's own first
    lens: Any  # int32 [queries]


def picked(indices: Any, lens: Any, slots: int) -> tuple[Any, Any]:
    """indices [queries, most], of which the first lens count, as (those of a cache of so many slots first, their number)."""
    import numpy

    indices = host(indices)
    there = (indices >= 0) & (indices < slots)
    if lens is not None:
        there &= numpy.arange(indices.shape[1]) < host(lens)[:, None]
    first = numpy.argsort(~there, axis=1, kind="stable")
    return numpy.take_along_axis(indices, first, 1), there.sum(1, dtype=numpy.int32)


def attend_picked(
    q: Any,
    keys: Callable[[], Picked],
    dim_v: int,
    scale: Any,
    sinks: Any,
    out: Any,
    lse: Any,
    names: Mapping[str, str],
    max_logits: Any = None,
) -> None:
    """Writes out [queries, heads, dim_v] and lse [queries, heads], +inf where a query has no key. The lse counts no sink;
    one of +inf makes out 0."""
    import numpy

    def compute(scale: float) -> None:
        pool, slots, lens = keys()
        call = {"q": rows_of(q), "page_table": slots, "cache_seqlens": lens, "sm_scale": scale, "out": out, "lse": lse}
        sink = None if sinks is None else host(sinks)
        all_of_it = None if sink is None else numpy.isposinf(sink)
        call["sinks"] = sink if sink is None else numpy.where(all_of_it, numpy.float32("-inf"), sink)
        _core.paged_attention(cache=(pool, pool[..., :dim_v]), **call)
        lse[lse == float("-inf")] = float("inf")
        if all_of_it is not None and all_of_it.any():
            out[:, all_of_it.nonzero()[0]] = 0
        if max_logits is not None:
            _fill_max_logits(max_logits, q, pool, slots, lens, scale)

    launch(compute, names, scale=number(scale))


def _fill_max_logits(target: Any, q: Any, pool: Any, slots: Any, lens: Any, scale: float) -> None:
    wide, keys = (host(t.float() if is_torch(t) else t) for t in (q, pool[:, 0, 0]))
    target[...] = float("-inf")
    for i, count in enumerate(lens):
        if count:
            largest = (wide[i] @ keys[slots[i, :count]].T).max(1) * scale
            target[i] = target.new_tensor(largest) if is_torch(target) else largest


# Latent caches of fp8, in bytes of a token: the first dims are e4m3, by groups that share a scale, the last 64 bf16.


class Layout(NamedTuple):
    fp8: int  # dims
    group: int  # dims of a scale
    size: int  # bytes of a token
    apart: bool  # are scales behind all tokens of a page, a byte of exponent each? Else f32, behind the dims of e4m3


LAYOUTS = {576: Layout(512, 128, 656, False), 512: Layout(448, 64, 584, True)}  # by the dims of a query


def latent_keys(caches: list[tuple[Any, Any, Any]], dim: int) -> Picked:
    """caches: (cache [pages, page, 1, bytes], indices [queries, most], lens or None), whose keys a query has all."""
    import numpy

    pools, tables, counts, base = [], [], [], 0
    for cache, indices, lens in caches:
        slots, count = picked(indices, lens, cache.shape[0] * cache.shape[1])
        there = numpy.arange(slots.shape[1]) < count[:, None]
        used, places = numpy.unique(slots[there], return_inverse=True)
        slots[there] = places + base
        pools.append(_f32(cache, used, LAYOUTS[dim]))
        tables.append(slots)
        counts.append(there)
        base += len(used)
    there = numpy.concatenate(counts, 1)
    first = numpy.argsort(~there, axis=1, kind="stable")
    table = numpy.take_along_axis(numpy.concatenate(tables, 1), first, 1).astype(numpy.int32)
    pool = numpy.concatenate([*pools, numpy.zeros((int(base == 0), dim), numpy.float32)])
    return Picked(pool[:, None, None], table, there.sum(1, dtype=numpy.int32))


def expect_latents(name: str, cache: Any, dim: int) -> None:
    if dim not in LAYOUTS:
        raise wrong("input.shape", "q", f"{' or '.join(map(str, LAYOUTS))} dims", str(dim))
    expect(name, cache, None, None, 1, LAYOUTS[dim].size)


def _f32(cache: Any, slots: Any, layout: Layout) -> Any:
    """f32 [slots, dim] of some slots."""
    import numpy

    raw = cache.view(sys.modules["torch"].uint8).numpy() if is_torch(cache) else cache.view(numpy.uint8)
    page = raw.shape[1]
    flat, row, at = raw[:, :, 0].reshape(len(raw), -1), (slots // page)[:, None], (slots % page)[:, None]
    if layout.apart:
        dims = layout.fp8 + 128
        token = flat[row, at * dims + numpy.arange(dims)]
        exponents = flat[row, page * dims + at * 8 + numpy.arange(layout.fp8 // layout.group)]
        scales, rest = numpy.ldexp(numpy.float32(1), exponents.astype(numpy.int32) - 127), token[:, layout.fp8 :]
    else:
        token, middle = flat[row, at * layout.size + numpy.arange(layout.size)], layout.size - 128
        scales, rest = token[:, layout.fp8 : middle].copy().view(numpy.float32), token[:, middle:]
    wide = _e4m3()[token[:, : layout.fp8]] * numpy.repeat(scales, layout.group, 1)
    bf16 = rest.copy().view(numpy.uint16).astype(numpy.uint32) << 16
    return numpy.concatenate([wide, bf16.view(numpy.float32)], 1)


@functools.cache
def _e4m3() -> Any:
    """f32 [256]: the value of each byte."""
    import numpy

    byte = numpy.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    size = numpy.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size[byte & 127 == 127] = numpy.nan
    return numpy.where(byte < 128, size, -size).astype(numpy.float32)
