"""Attention as flash-attention and its descendants call it: dense, packed or paged keys, keys to append, qv, ALiBi.

Outputs are out, shaped like q, and lse [batch, heads, queries], of packed queries [heads, tokens].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _core
from ._append import New, appended, expect_new, refuse_wrong, turned_queries
from ._tensors import (
    as_f32, beside, each_alone, expect, expect_alike, expect_axes, expect_f32, fill_where, flat, inner, is_fp8, one_length,
    rows_of, same, too_short,
)
from ._upstream import empty, host, launch, number, stacked, window, wrong, wrongs

KV = {"k_cache": "k", "v_cache": "v"}  # upstream's names of the engine's arguments
_NAMES = {"k_scales": "k_descale", "v_scales": "v_descale", "sm_scale": "softmax_scale", "logits_soft_cap": "softcap"}


class Keys(NamedTuple):
    """The place of keys and values."""

    attention: Callable[..., Any]
    arguments: dict[str, Any]  # of attention, as `launch` takes them
    k: Any
    v: Any
    names: Mapping[str, str] = _NAMES  # upstream's, by the engine's
    whole: bool = False  # does k have the values in front of it already, as a latent cache does?
    scales: tuple[Any, ...] = ()  # f32 [pages, page, heads] of int8 keys and values


def packed(k: Any, v: Any, cu_seqlens_k: Any, seqused_k: Any = None) -> Keys:
    return Keys(_core.ragged_attention, {"cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k}, k, v)


def paged(k: Any, v: Any, table: Any, lens: Any, /, **names: str) -> Keys:
    """names: upstream's of the table, the lengths, the keys and the values."""
    return Keys(_core.paged_attention, {"page_table": table, "cache_seqlens": lens}, k, v, _paged_names(**names))


@functools.cache
def _paged_names(**names: str) -> Mapping[str, str]:
    told = {"page_table": "page_table", "cache_seqlens": "cache_seqlens", "k_cache": "k_cache", "v_cache": "v_cache"} | names
    told |= {"cache": told["k_cache"], "out_cache_loc": told["page_table"]}
    if told["page_table"] in ("page_table", "block_table"):
        told["pages of"] = f"pages in a row of {told['page_table']}, each of"  # len.capacity names the lengths alone
    return _NAMES | told


def dense(q: Any, k: Any, v: Any) -> Keys:
    """[batch, keys, heads, dim]: each request is a page."""
    expect_axes("q", q, "batch", "queries", "heads", "dim")
    expect("k", k, q.shape[0], None, None, None)
    expect("v", v, *k.shape[:3], None)
    batch, length = k.shape[:2]
    lens = same(length, batch)
    if length == 0:
        k, v = (empty(t, (batch, 1, *t.shape[2:])) for t in (k, v))
    return paged(k, v, each_alone(batch), lens, **KV, page_table="k")


def rows(k_cache: Any, v_cache: Any, page_table: Any, lens: Any, batch: int, batch_idx: Any, table_name: str) -> Keys:
    """The cache of flash_attn_with_kvcache. A request's row is batch_idx, of page_table or of a dense cache."""
    expect_axes("v_cache" if k_cache is v_cache else "k_cache", k_cache, *(("batch", "keys") if page_table is None else ("pages", "page_size")), "heads", "dim")
    pages = 1
    if page_table is None:
        name = "k_cache" if batch_idx is None else "cache_batch_idx"
        table: Any = each_alone(batch) if batch_idx is None else lambda: host(batch_idx).reshape(-1, 1)
    else:
        expect_axes(table_name, page_table, "batch", "pages")
        name, pages = table_name, page_table.shape[1]
        table = page_table if batch_idx is None else lambda: _picked(page_table, batch_idx)
    if lens is None:
        lens = pages * k_cache.shape[1]
    return paged(k_cache, v_cache, table, same(lens, batch) if isinstance(lens, int) else lens, page_table=name)


def _picked(page_table: Any, batch_idx: Any) -> Any:
    table, index = host(page_table), host(batch_idx)
    if index.dtype.name != "int32":
        raise wrong("input.dtype", "cache_batch_idx", "int32", index.dtype.name)
    for row in ((index < 0) | (index >= len(table))).nonzero()[0]:
        raise wrong("table.pool_row", "cache_batch_idx", f"0 <= row < {len(table)}", str(index[row]), int(row))
    return table[index]


def lengths(cu_seqlens: Any) -> Any:
    """int32 [batch] of offsets [batch + 1], at the launch."""
    def steps() -> Any:
        starts = host(cu_seqlens)
        if len(starts) and starts[0] != 0:
            raise wrong("len.indptr_first", "cu_seqlens_k", "0", str(starts[0]), 0)
        return starts[1:] - starts[:-1]

    return steps


def only_values(qv: Any, v: Any) -> tuple[Any, None, Any]:
    """(q, qv, k) of a call whose scores are qv.v alone."""
    if qv is None:
        raise ValueError("qv is missing: only_qv=True takes scores from it")
    return qv, None, v


def options(
    softmax_scale: Any = None,
    causal: Any = False,
    window_size: Any = None,
    softcap: float = 0.0,
    attention_chunk: Any = 0,
    **others: Any,
) -> dict[str, Any]:
    """A layer's parameters, under the engine's names, without those at their defaults."""
    given = {name: value for name, value in others.items() if value is not None} if others else {}
    if softmax_scale is not None:
        given["sm_scale"] = number(softmax_scale)
    if causal:
        given["causal"] = True
    if window_size is not None and not (isinstance(window_size, tuple) and window_size == (-1, -1)):
        given.update(window(window_size))
    if softcap and not softcap <= 0:  # NaN is refused
        given["logits_soft_cap"] = softcap
    if attention_chunk:
        given["attention_chunk"] = int(attention_chunk)
    return given


def descales(q_descale: Any, k_descale: Any, v_descale: Any) -> dict[str, Any]:
    """f32 [batch, kv heads] each: q's multiplies logits as k's does."""
    if q_descale is None and k_descale is None and v_descale is None:
        return {}
    if q_descale is not None and k_descale is not None:
        expect("q_descale", q_descale, *k_descale.shape)
        expect_f32(q_descale=q_descale, k_descale=k_descale)
    k_scales = q_descale if k_descale is None else k_descale
    if q_descale is not None and k_descale is not None:
        k_scales = lambda: host(q_descale) * host(k_descale)  # noqa: E731
    return {"k_scales": k_scales, "v_scales": v_descale}


def attend(
    q: Any,
    keys: Keys,
    layer: dict[str, Any],
    *,
    cu_seqlens_q: Any = None,
    max_seqlen_q: int | None = None,  # the longest of packed queries
    max_seqlen_k: int | None = None,  # None: nobody said
    seqused_q: Any = None,
    qv: Any = None,
    new: New | None = None,
    out: Any = None,
    alibi_slopes: Any = None,  # [heads] or [batch, heads]
    no_keys: float = float("-inf"),  # the lse of a row that sees no key
    with_lse: bool = True,  # else it is not computed, and None is returned
    mixed: bool = False,  # may keys and values have another type than q?
) -> tuple[Any, Any]:
    expect_axes("q", q, *(("batch", "queries") if cu_seqlens_q is None else ("tokens",)), "heads", "dim")
    *lead, heads, width = q.shape
    if not hasattr(keys.v, "shape"):
        expect(keys.names.get("v_cache", "v"), keys.v, *keys.k.shape)
    shape = (*lead, heads, keys.v.shape[-1])
    _expect_fits(q, keys, new, qv, mixed)
    if qv is not None:
        expect("qv", qv, *shape)
        width += qv.shape[-1]
    bounded = cu_seqlens_q is not None
    if not bounded:
        cu_seqlens_q = one_length(*lead)
    elif max_seqlen_q is None or (max_seqlen_k is None and "cu_seqlens_k" in keys.arguments):
        raise ValueError(f"max_seqlen_{'q' if max_seqlen_q is None else 'k'} is missing: offsets need it")
    out, flat_out = new_out(q, shape, out, mixed)
    lse, flat_lse = new_lse(q, shape) if with_lse else (None, None)

    def compute(**call: Any) -> None:
        if bounded:
            _expect_bounds(keys.attention, max_seqlen_q, max_seqlen_k, call)
        if new is not None:
            _store_new(new, q, qv, keys, call)
        if "attention_chunk" in call and "cache_leftpad" in call:
            _skip_padding(call)
        if by_request:
            _by_request(keys.attention, call)
        else:
            keys.attention(**call)
        if with_lse and no_keys != float("-inf"):
            fill_where(flat_lse, flat_lse == float("-inf"), no_keys)

    if seqused_q is not None:
        layer["seqused_q"] = seqused_q
    if alibi_slopes is not None:
        layer["alibi_slopes"] = alibi_slopes
    if with_lse:
        layer["lse"] = flat_lse
    by_request = alibi_slopes is not None and len(alibi_slopes.shape) == 2
    plain = not (bounded or by_request or new or with_lse or "attention_chunk" in layer)
    rest = {"q": lambda: _queries(q, qv), "cu_seqlens_q": cu_seqlens_q, "out": flat_out, "sm_scale": width**-0.5}
    launch(keys.attention if plain else compute, keys.names, **rest | _places(keys, qv) | keys.arguments | layer)
    return out, lse


def _expect_bounds(attention: Callable[..., Any], max_q: Any, max_k: Any, call: dict[str, Any]) -> None:
    """Refuses a longest length that is too small, after what else is refused."""
    lens = call.get("cache_seqlens", call.get("seqused_k"))
    bad = too_short("max_seqlen_q", max_q, call.get("seqused_q"), call["cu_seqlens_q"])
    bad += too_short("max_seqlen_k", max_k, lens, call.get("cu_seqlens_k"))
    if bad:
        refuse_wrong(attention, call)
        raise wrongs(bad)


def _expect_fits(q: Any, keys: Keys, new: New | None, qv: Any, mixed: bool) -> None:
    """Refuses keys, and new ones, that do not fit each other and q."""
    k, v, names, dtype = keys.k, keys.v, keys.names, q.dtype
    if not mixed and (k.dtype != dtype or v.dtype != dtype):
        told = [names.get(cache, names.get(name, name)) for name, cache in (("k", "k_cache"), ("v", "v_cache"))]
        expect_alike(names.get("q", "q"), q, **dict(zip(told, (k, v))))
    if new is not None:
        expect_new(new, len(q), k, v)
        expect_alike("q", q, k=new.k, v=new.v)
        if new.rotary is not None:
            expect_alike("q", q, rotary_cos=new.rotary.cos, rotary_sin=new.rotary.sin)
    if qv is not None:
        expect(names.get("k_cache", "k"), k, *v.shape[:-1], None)
        expect_alike("q", q, qv=qv)


def _queries(q: Any, qv: Any) -> Any:
    return rows_of(q) if qv is None else inner(beside(rows_of(qv), rows_of(q)))


def _places(keys: Keys, qv: Any) -> dict[str, Callable[[], Any]]:
    """Keys and values as arguments of the engine."""
    k, v = keys.k, keys.v
    if keys.attention is _core.ragged_attention:
        return {"k": lambda: inner(k if qv is None else beside(v, k)), "v": lambda: inner(v)}
    scales = ("NHD", 0, 0, *keys.scales) if keys.scales else ()
    return {"cache": lambda: (inner(k if qv is None or keys.whole else beside(v, k)), inner(v), *scales)}


def _store_new(new: New, q: Any, qv: Any, keys: Keys, call: dict[str, Any]) -> None:
    store, first = appended(keys.k, new, call)
    if new.rotary is not None:
        call["q"] = _queries(turned_queries(rows_of(q), new.rotary, first, host(call["cu_seqlens_q"])), qv)
    _core.store_kv(*store, (keys.k, keys.v))
    call.update({name: value() for name, value in _places(keys, qv).items()})


def _skip_padding(call: dict[str, Any]) -> None:
    """Chunks count from the first key behind the padding: each key becomes a page, and the padding's are left out."""
    import numpy

    refuse_wrong(_core.paged_attention, call)
    table, pad, size = host(call["page_table"]), host(call.pop("cache_leftpad")), call["cache"][0].shape[1]
    lens = host(call["cache_seqlens"]) - pad
    slots = numpy.minimum(pad[:, None] + numpy.arange(max(lens, default=0)), table.shape[1] * size - 1)
    pages = numpy.take_along_axis(table, slots // size, 1) * size + slots % size
    call |= {"page_table": pages.astype(numpy.int32), "cache_seqlens": lens}
    call["cache"] = tuple(t.reshape(-1, 1, *t.shape[2:]) for t in call["cache"])


def new_out(q: Any, shape: tuple[int, ...], out: Any, mixed: bool) -> tuple[Any, Any]:
    """out as a caller gets it, and as the engine writes it, [tokens, heads, dim]."""
    if out is None:
        out = empty(q, shape, "bfloat16" if is_fp8(q.dtype) else None)
    else:
        expect("out", out, *shape)
        if not mixed and not is_fp8(q.dtype):
            expect_alike("q", q, out=out)
    return out, out if len(shape) == 3 else flat(out)


def new_lse(q: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """lse as a caller gets it, and as the engine writes it, [tokens, heads]."""
    *lead, heads, _ = shape
    if len(lead) == 1:
        lse = empty(q, (heads, *lead), "float32")
        return lse, lse.swapaxes(0, 1)
    lse = empty(q, (lead[0] * lead[1], heads), "float32")
    return lse.reshape(*lead, heads).swapaxes(1, 2), lse


def _by_request(attention: Callable[..., Any], call: dict[str, Any]) -> None:
    """Calls attention request by request: each has ALiBi slopes of its own."""
    refuse_wrong(attention, call)
    slopes, starts = call["alibi_slopes"], host(call["cu_seqlens_q"]).tolist()
    per_request = [n for n in ("page_table", "cache_seqlens", "seqused_q", "seqused_k", "cache_leftpad") if call.get(n) is not None]
    per_request += [n for n in ("k_scales", "v_scales") if len(getattr(call.get(n), "shape", ())) == 2]
    by_token = [n for n in ("q", "out", "lse") if n in call]
    for r in range(len(slopes)):
        first, end = starts[r], starts[r + 1]
        part = call | {name: call[name][r : r + 1] for name in per_request} | {name: call[name][first:end] for name in by_token}
        part |= {"alibi_slopes": slopes[r], "cu_seqlens_q": [0, end - first]}
        if "cu_seqlens_k" in call:
            first, end = host(call["cu_seqlens_k"])[r : r + 2].tolist()
            part |= {"cu_seqlens_k": [0, end - first], "k": call["k"][first:end], "v": call["v"][first:end]}
        attention(**part)


def merge_two(
    a: tuple[Any, Any], b: tuple[Any, Any], out: Any, lse: Any, names: tuple[str, ...], first_rows: int | None = None
) -> None:
    """Merges (values, lse) of two sets of keys into out and lse. names: upstream's of all six. Only first_rows have a, the
    others are b's as they are."""
    expect(names[0], a[0], None, None, None)
    for name, tensor in zip(names, (*a, *b, out, lse)):
        expect(name, tensor, *a[0].shape[: len(tensor.shape)])
    expect_alike(names[0], a[0], **{names[2]: b[0], names[4]: out})

    def compute(v: Any, s: Any) -> None:
        _core.merge_states(v=v, s=s, out=out, lse=lse)
        if first_rows is not None:
            out[first_rows:], lse[first_rows:] = v[first_rows:, 1], s[first_rows:, 1]

    told = dict(zip(("v", "s", "out", "lse"), names[:2] + names[4:]))
    launch(compute, told, v=lambda: stacked([a[0], b[0]], 1), s=lambda: as_f32(stacked([a[1], b[1]], 1)))


class _BFloat16:
    """torch.bfloat16 as a default, without torch."""

    def __repr__(self) -> str:
        return "torch.bfloat16"

    def __eq__(self, other: object) -> bool:
        return repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))


BFLOAT16 = _BFloat16()


def schedule(like: Any, size: int) -> Any:
    """int32 zeros in place of a schedule that only a GPU reads."""
    metadata = empty(like, (size,), "int32")
    metadata[...] = 0
    return metadata
