"""Attention as flash-attention and its descendants call it: dense, packed or paged keys, keys to append, qv, ALiBi.

Outputs are out, shaped like q, and lse [batch, heads, queries], of packed queries [heads, tokens].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _core
from ._append import New, appended, expect_new, refuse_wrong, turned_queries
from ._tensors import as_f32, beside, each_alone, expect, flat, inner, rows_of, same
from ._upstream import dtype_name, empty, host, launch, scale, stacked, uniform_offsets, window, wrong

ANY4 = (None,) * 4
KV = {"k_cache": "k", "v_cache": "v"}  # upstream's names of the engine's arguments


class Keys(NamedTuple):
    """The place of keys and values."""

    attention: Callable[..., Any]
    arguments: dict[str, Any]  # of attention, as `launch` takes them
    k: Any
    v: Any
    names: dict[str, str] = {}  # upstream's, by the engine's


def packed(k: Any, v: Any, cu_seqlens_k: Any, seqused_k: Any = None) -> Keys:
    return Keys(_core.ragged_attention, {"cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k}, k, v)


def paged(k: Any, v: Any, table: Any, lens: Any, /, **names: str) -> Keys:
    """names: upstream's of the table, the lengths, the keys and the values."""
    told = {"page_table": "page_table", "cache_seqlens": "cache_seqlens", "k_cache": "k_cache", "v_cache": "v_cache"} | names
    told |= {"cache": told["k_cache"], "out_cache_loc": told["page_table"]}
    if told["page_table"] in ("page_table", "block_table"):
        told["pages of"] = f"pages in a row of {told['page_table']}, each of"  # len.capacity names the lengths alone
    return Keys(_core.paged_attention, {"page_table": table, "cache_seqlens": lens}, k, v, told)


def dense(q: Any, k: Any, v: Any) -> Keys:
    """[batch, keys, heads, dim]: each request is a page."""
    expect("q", q, *ANY4)
    expect("k", k, q.shape[0], None, None, None)
    expect("v", v, *k.shape[:3], None)
    batch, length = k.shape[:2]
    lens = same(length, batch)
    if length == 0:
        k, v = (empty(t, (batch, 1, *t.shape[2:])) for t in (k, v))
    return paged(k, v, each_alone(batch), lens, **KV, page_table="k")


def rows(k_cache: Any, v_cache: Any, page_table: Any, lens: Any, batch: int, batch_idx: Any, table_name: str) -> Keys:
    """The cache of flash_attn_with_kvcache. A request's row is batch_idx, of page_table or of a dense cache."""
    expect("v_cache" if k_cache is v_cache else "k_cache", k_cache, *ANY4)
    pages = 1
    if page_table is None:
        name = "k_cache" if batch_idx is None else "cache_batch_idx"
        table: Any = each_alone(batch) if batch_idx is None else lambda: host(batch_idx).reshape(-1, 1)
    else:
        expect(table_name, page_table, None, None)
        name, pages = table_name, page_table.shape[1]
        table = page_table if batch_idx is None else lambda: _picked(page_table, batch_idx)
    if lens is None:
        lens = pages * k_cache.shape[1]
    return paged(k_cache, v_cache, table, same(lens, batch) if isinstance(lens, int) else lens, page_table=name)


def _picked(page_table: Any, batch_idx: Any) -> Any:
    table, index = host(page_table), host(batch_idx)
    for row in ((index < 0) | (index >= len(table))).nonzero()[0]:
        raise wrong("table.pool_row", "cache_batch_idx", f"0 <= row < {len(table)}", str(index[row]), int(row))
    return table[index]


def lengths(cu_seqlens: Any) -> Any:
    """int32 [batch] of offsets [batch + 1], at the launch."""
    import numpy

    return lambda: numpy.diff(host(cu_seqlens))


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
    """A layer's parameters, under the engine's names. sm_scale None: by the width of q and qv."""
    given = {"sm_scale": softmax_scale, "causal": bool(causal), "logits_soft_cap": max(softcap or 0.0, 0.0)}
    return given | window(window_size) | {"attention_chunk": int(attention_chunk or 0)} | others


def descales(q_descale: Any, k_descale: Any, v_descale: Any) -> dict[str, Any]:
    """f32 [batch, kv heads] each: q's multiplies logits as k's does."""
    k_scales = q_descale if k_descale is None else k_descale
    if q_descale is not None and k_descale is not None:
        k_scales = lambda: host(q_descale) * host(k_descale)  # noqa: E731
    return {"k_scales": k_scales, "v_scales": v_descale}


def attend(
    q: Any,
    keys: Keys,
    layer: Mapping[str, Any],
    *,
    cu_seqlens_q: Any = None,
    max_seqlen_q: int | None = None,
    seqused_q: Any = None,
    qv: Any = None,
    new: New | None = None,
    out: Any = None,
    alibi_slopes: Any = None,  # [heads] or [batch, heads]
    no_keys: float = float("-inf"),  # the lse of a row that sees no key
    with_lse: bool = True,  # else it is not computed, and None is returned
) -> tuple[Any, Any]:
    expect("q", q, *ANY4[cu_seqlens_q is not None :])
    *lead, heads, width = q.shape
    if not hasattr(keys.v, "shape"):
        expect(keys.names.get("v_cache", "v"), keys.v, *keys.k.shape)
    shape = (*lead, heads, keys.v.shape[-1])
    out, flat_out = _out(q, shape, out)
    lse, flat_lse = _lse(q, shape) if with_lse else (None, None)
    names = {"k_scales": "k_descale", "v_scales": "v_descale", **keys.names}
    if cu_seqlens_q is None:
        cu_seqlens_q = uniform_offsets(*lead)
    k, v = keys.k, keys.v
    if new is not None:
        expect_new(new, lead[0], k, v)
    if qv is not None:
        expect("qv", qv, *lead, heads, v.shape[-1])
        expect(names.get("k_cache", "k"), k, *v.shape[:-1], None)
        width += qv.shape[-1]
    if keys.attention is _core.ragged_attention:
        where = {"k": lambda: inner(k if qv is None else beside(v, k)), "v": lambda: inner(v)}
    else:
        where = {"cache": lambda: (inner(k if qv is None else beside(v, k)), inner(v))}

    def queries(turned: Any = None) -> Any:
        flat_q = rows_of(q) if turned is None else turned
        return flat_q if qv is None else inner(beside(rows_of(qv), flat_q))

    def compute(**call: Any) -> None:
        if new is not None:
            store, first = appended(k, new, call)
            if new.rotary is not None:
                call["q"] = queries(turned_queries(rows_of(q), new.rotary, first, host(call["cu_seqlens_q"])))
            _core.store_kv(*store, (k, v))
            call.update({name: value() for name, value in where.items()})
        slopes = call["alibi_slopes"]
        if slopes is None or len(slopes.shape) < 2:
            keys.attention(**call)
        else:
            _by_request(keys.attention, call)
        if with_lse and no_keys != float("-inf"):
            flat_lse[flat_lse == float("-inf")] = no_keys

    arguments = {**keys.arguments, **layer, "cu_seqlens_q": cu_seqlens_q, "seqused_q": seqused_q, "alibi_slopes": alibi_slopes}
    arguments |= {"sm_scale": scale(layer["sm_scale"], width), "max_seqlen_q": max_seqlen_q or 0, "q": queries, **where}
    launch(compute, names, **arguments, out=flat_out, lse=flat_lse)
    return out, lse


def _out(q: Any, shape: tuple[int, ...], out: Any) -> tuple[Any, Any]:
    """out as a caller gets it, and as the engine writes it, [tokens, heads, dim]."""
    if out is None:
        out = empty(q, shape, "bfloat16" if dtype_name(q.dtype).startswith("float8") else None)
    else:
        expect("out", out, *shape)
    return out, out if len(shape) == 3 else flat(out)


def _lse(q: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
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
    by_token = ("q", "out") if call["lse"] is None else ("q", "out", "lse")
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
    """Merges (values, lse) of two sets of keys into out and lse. names: upstream's of all six. Only first_rows have a."""
    expect(names[0], a[0], None, None, None)
    for name, tensor in zip(names, (*a, *b, out, lse)):
        expect(name, tensor, *a[0].shape[: len(tensor.shape)])

    def lses() -> Any:
        both = as_f32(stacked([a[1], b[1]], 1))
        if first_rows is not None:
            both[first_rows:, 0] = float("-inf")
        return both

    told = dict(zip(("v", "s", "out", "lse"), names[:2] + names[4:]))
    launch(_core.merge_states, told, v=lambda: stacked([a[0], b[0]], 1), s=lses, out=out, lse=lse)


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
