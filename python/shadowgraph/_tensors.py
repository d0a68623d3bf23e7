"""Tensors of torch and NumPy alike, as flash-attention's callers have them and as the engine takes them."""

from __future__ import annotations

import sys
from typing import Any

from ._upstream import dtype_name, host, is_torch, joined, wrong


def flat(out: Any) -> Any:
    """[batch, queries, heads, dim] as [tokens, heads, dim], without a copy."""
    shape = (out.shape[0] * out.shape[1], *out.shape[2:])
    if is_torch(out):
        return out.view(shape)
    view = out.reshape(shape)
    if view.ctypes.data != out.ctypes.data:
        raise wrong("input.stride", "out", "batch and queries that are one axis in memory", f"strides of {out.strides} bytes")
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
    have = getattr(tensor, "shape", None)
    have = host(tensor).shape if have is None else have
    wrong_size = len(have) != len(shape)
    if not wrong_size:
        for size, want in zip(have, shape):
            wrong_size |= want is not None and size != want
    if wrong_size:
        raise wrong("input.shape", name, f"[{', '.join('any' if n is None else str(n) for n in shape)}]", str(list(have)))


def each_alone(batch: int) -> Any:
    """A table whose request r has page r."""
    import numpy

    return numpy.arange(batch, dtype=numpy.int32).reshape(-1, 1)


def same(length: int, batch: int) -> Any:
    import numpy

    return numpy.full(batch, length, numpy.int32)


def as_f32(tensor: Any) -> Any:
    return tensor.float() if is_torch(tensor) else tensor.astype("float32", copy=False)
