"""Attention as flash-attention and its descendants call it: dense, packed or paged keys, keys to append, qv, ALiBi.

Outputs are out, shaped like q, and lse [batch, heads, queries], of packed queries [heads, tokens].
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _core
from ._upstream import dtype_name, empty, host, is_torch, joined, launch, offsets, scale, stacked, uniform_offsets, window, wrong


ANY4 = (None,) * 4
KV = {"k_cache": "k", "v_cache": "v"}  # upstream's names of the engine's arguments


class Keys(NamedTuple):
    """Where keys and values lie."""

    attention: Callable[..., Any]
    arguments: dict[str, Any]  # of attention, as `launch` takes them
    k: Any
    v: Any
    names: dict[str, str] = {}  # upstream's, by the engine's


class New(NamedTuple):
    """Keys and values to append to a cache: [batch, new, heads, dim], or [tokens, heads, dim] by cu_seqlens."""

    k: Any
    v: Any
    cu_seqlens: Any = None


def packed(k: Any, v: Any, cu_seqlens_k: Any, seqused_k: Any = None) -> Keys:
    return Keys(_core.ragged_attention, {"cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k}, k, v)


def paged(k: Any, v: Any, table: Any, lens: Any, /, **names: str) -> Keys:
    """names: upstream's of the table, the lengths, the keys and the values."""
    told = {"page_table": "page_table", "cache_seqlens": "cache_seqlens", "k_cache": "k_cache", "v_cache": "v_cache"} | names
    told["cache"] = told["k_cache"]
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


def each_alone(batch: int) -> Any:
    """A table whose request r has page r."""
    import numpy

    return numpy.arange(batch, dtype=numpy.int32).reshape(-1, 1)


def same(length: int, batch: int) -> Any:
    import numpy

    return numpy.full(batch, length, numpy.int32)


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
    softmax_scale: Any = None, causal: Any = False, window_size: Any = None, softcap: float = 0.0, attention_chunk: Any = 0, **others: Any
) -> dict[str, Any]:
    """What is fixed for a layer, as the engine takes it. sm_scale None: by the width of q and qv."""
    given = {"sm_scale": softmax_scale, "causal": bool(causal), "logits_soft_cap": softcap or 0.0}
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
) -> tuple[Any, Any]:
    expect("q", q, *ANY4[cu_seqlens_q is not None :])
    *lead, heads, width = q.shape
    out_dtype = "bfloat16" if dtype_name(q.dtype).startswith("float8") else None
    shape = (*lead, heads, keys.v.shape[-1])
    if out is None:
        out = empty(q, shape, out_dtype)
    expect("out", out, *shape)
    flat_out = flat(out) if cu_seqlens_q is None else out
    names = {"k_scales": "k_descale", "v_scales": "v_descale", **keys.names}
    if cu_seqlens_q is None:
        cu_seqlens_q = uniform_offsets(*lead)
        flat_lse = empty(q, (lead[0] * lead[1], heads), "float32")
        lse = flat_lse.reshape(*lead, heads).swapaxes(1, 2)
    else:
        lse = empty(q, (heads, *lead), "float32")
        flat_lse = lse.swapaxes(0, 1)
    k, v = keys.k, keys.v
    queries: Any = lambda: rows_of(q)  # noqa: E731
    if qv is not None:
        expect("qv", qv, *lead, heads, v.shape[-1])
        expect(names.get("k_cache", "k"), k, *v.shape[:-1], None)
        width += qv.shape[-1]
        queries = lambda: rows_of(beside(qv, q))  # noqa: E731
    if keys.attention is _core.ragged_attention:
        where = {"k": lambda: inner(k if qv is None else beside(v, k)), "v": lambda: inner(v)}
    else:
        where = {"cache": lambda: (inner(k if qv is None else beside(v, k)), inner(v))}

    def compute(**call: Any) -> None:
        if new is not None:
            _append((k, v), new, call, where)
        slopes = call["alibi_slopes"]
        if slopes is None or len(slopes.shape) < 2:
            keys.attention(**call)
        else:
            _by_request(keys.attention, call)
        if no_keys != float("-inf"):
            flat_lse[flat_lse == float("-inf")] = no_keys

    arguments = {**keys.arguments, **layer, "cu_seqlens_q": cu_seqlens_q, "seqused_q": seqused_q, "alibi_slopes": alibi_slopes}
    arguments |= {"sm_scale": scale(layer["sm_scale"], width), "max_seqlen_q": max_seqlen_q or 0, "q": queries, **where}
    launch(compute, names, **arguments, out=flat_out, lse=flat_lse)
    return out, lse


# Tensors.


def flat(out: Any) -> Any:
    """[batch, queries, heads, dim] as [tokens, heads, dim], without a copy."""
    shape = (out.shape[0] * out.shape[1], *out.shape[2:])
    if is_torch(out):
        return out.view(shape)
    view = out.view()
    view.shape = shape
    return view


def rows_of(q: Any) -> Any:
    """q as the engine takes it: [tokens, heads, dim], of a type that it has."""
    if dtype_name(q.dtype).startswith("float8"):
        q = q.to(sys.modules["torch"].bfloat16)
    return inner(q.reshape(-1, *q.shape[-2:]) if len(q.shape) == 4 else q)


def inner(tensor: Any) -> Any:
    """With a contiguous last axis: flash-attention copies, too."""
    if is_torch(tensor):
        return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()
    return tensor if tensor.strides[-1] == tensor.itemsize else tensor.copy(order="C")


def beside(a: Any, b: Any) -> Any:
    """Joined along the last axis: a view where b begins at the end of a in each row, as in a latent cache."""
    shape = (*a.shape[:-1], a.shape[-1] + b.shape[-1])
    (at, steps, room), (at_b, steps_b, room_b) = _place(a), _place(b)
    apart = all(step >= shape[-1] for step, size in zip(steps, shape[:-1]) if size > 1)
    if not (a.dtype == b.dtype and steps == steps_b and steps[-1] == 1 and room == room_b and at_b - at == a.shape[-1] and apart):
        return joined([a, b], -1)
    if is_torch(a):
        return a.as_strided(shape, a.stride(), a.storage_offset())
    import numpy

    return numpy.lib.stride_tricks.as_strided(a, shape, a.strides)


def _place(tensor: Any) -> tuple[int, tuple[int, ...], Any]:
    """The address and the strides, in elements, and whose memory it is."""
    if is_torch(tensor):
        storage = (tensor.untyped_storage if hasattr(tensor, "untyped_storage") else tensor.storage)()
        return tensor.data_ptr() // tensor.element_size(), tensor.stride(), storage.data_ptr()
    base = tensor if tensor.base is None else tensor.base
    return tensor.ctypes.data // tensor.itemsize, tuple(s // tensor.itemsize for s in tensor.strides), id(base)


def expect(name: str, tensor: Any, *shape: int | None) -> None:
    """Refuses a tensor of another shape; None is any size."""
    have = tuple(tensor.shape) if hasattr(tensor, "shape") else host(tensor).shape
    if len(have) != len(shape) or any(want not in (None, size) for want, size in zip(shape, have)):
        raise wrong("input.shape", name, f"[{', '.join('any' if n is None else str(n) for n in shape)}]", str(list(have)))


# Launched.


def _append(cache: tuple[Any, Any], new: New, call: dict[str, Any], where: Mapping[str, Any]) -> None:
    """Stores new keys behind a request's lengths, and counts them, once the whole call is known to be right."""
    import numpy

    lens, k_cache = host(call["cache_seqlens"]), cache[0]
    if new.cu_seqlens is None:
        added = offsets([new.k.shape[1]] * len(lens))
    else:
        added = host(new.cu_seqlens)
        expect("cu_seqlens_k_new", added, len(lens) + 1)
        if added[0] != 0 or (numpy.diff(added) < 0).any() or added[-1] != new.k.shape[0]:
            raise wrong("len.total", "cu_seqlens_k_new", f"offsets from 0 to {new.k.shape[0]}", str(added.tolist()))
    count = numpy.diff(added)
    call["cache_seqlens"] = (lens + count).astype(numpy.int32)
    _refuse_wrong(_core.paged_attention, call)
    request = numpy.repeat(numpy.arange(len(lens)), count)
    position = numpy.arange(added[-1]) + (lens - added[:-1])[request]
    size = k_cache.shape[1]
    slots = host(call["page_table"])[request, position // size].astype(numpy.int64) * size + position % size
    k, v = (inner(t.reshape(-1, *t.shape[-2:])) for t in (new.k, new.v))
    _core.store_kv(k, v, slots, cache)
    call.update({name: value() for name, value in where.items()})


def _refuse_wrong(attention: Callable[..., Any], call: Mapping[str, Any]) -> None:
    """Refuses what the call would refuse, and writes nothing."""
    import numpy

    batch, slopes = len(call["cu_seqlens_q"]) - 1, call["alibi_slopes"]
    changed = {"seqused_q": numpy.zeros(max(batch, 0), numpy.int32)}
    if slopes is not None and len(slopes.shape) == 2:
        expect("alibi_slopes", slopes, batch, None)
        changed["alibi_slopes"] = slopes[0]
    attention(**call | changed)


def _by_request(attention: Callable[..., Any], call: dict[str, Any]) -> None:
    """Calls attention request by request: each has ALiBi slopes of its own."""
    _refuse_wrong(attention, call)
    slopes, starts = call["alibi_slopes"], host(call["cu_seqlens_q"]).tolist()
    per_request = [n for n in ("page_table", "cache_seqlens", "seqused_q", "seqused_k", "cache_leftpad") if call.get(n) is not None]
    per_request += [n for n in ("k_scales", "v_scales") if call[n] is not None and len(call[n].shape) == 2] if "k_scales" in call else []
    for r in range(len(slopes)):
        first, end = starts[r], starts[r + 1]
        part = call | {name: call[name][r : r + 1] for name in per_request} | {name: call[name][first:end] for name in ("q", "out", "lse")}
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


def as_f32(tensor: Any) -> Any:
    return tensor.float() if is_torch(tensor) else tensor.astype("float32", copy=False)


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
