"""Tensors of torch and NumPy alike, as flash-attention's callers have them and as the engine takes them."""

from __future__ import annotations

import functools
import operator
import sys
from typing import Any

from ._upstream import dtype_name, host, is_torch, joined, uniform_offsets, wrong, wrongs


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
    if is_fp8(q.dtype):
        q = q.to(sys.modules["torch"].bfloat16)
    return inner(q.reshape(-1, *q.shape[-2:]) if len(q.shape) == 4 else q)


@functools.cache
def is_fp8(dtype: Any) -> bool:
    return dtype_name(dtype).startswith("float8")


def inner(tensor: Any) -> Any:
    """With a contiguous last axis: flash-attention copies, too."""
    if is_torch(tensor):
        return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()
    return tensor if tensor.strides[-1] == tensor.itemsize else tensor.copy(order="C")


def beside(a: Any, b: Any) -> Any:
    """Joined along the last axis: a view where b begins at the end of a in each row, as in a latent cache."""
    shape = (*a.shape[:-1], a.shape[-1] + b.shape[-1])
    steps = _steps(a)
    if not (a.dtype == b.dtype and steps == _steps(b) and steps[-1] == 1 and _at(b) - _at(a) == a.shape[-1]):
        return joined([a, b], -1)
    apart = all(step >= shape[-1] for step, size in zip(steps, shape[:-1]) if size > 1)
    if not (apart and _share(a, b)):
        return joined([a, b], -1)
    if is_torch(a):
        return a.as_strided(shape, steps, a.storage_offset())
    import numpy

    return numpy.lib.stride_tricks.as_strided(a, shape, a.strides)


def _steps(tensor: Any) -> tuple[int, ...]:
    """Strides in elements."""
    return tensor.stride() if is_torch(tensor) else tuple(s // tensor.itemsize for s in tensor.strides)


def _at(tensor: Any) -> int:
    """The address in elements."""
    return tensor.data_ptr() // tensor.element_size() if is_torch(tensor) else tensor.ctypes.data // tensor.itemsize


def _share(a: Any, b: Any) -> bool:
    """Do both lie in one memory?"""
    if not is_torch(a):
        return (a if a.base is None else a.base) is (b if b.base is None else b.base)
    if a._base is not None and a._base is b._base:  # the quick answer; views of inference mode have none
        return True
    ours, theirs = ((t.untyped_storage if hasattr(t, "untyped_storage") else t.storage)() for t in (a, b))
    return ours.data_ptr() == theirs.data_ptr()


def expect(name: str, tensor: Any, *shape: int | None) -> None:
    """Refuses a tensor of another shape; None is any size."""
    have = getattr(tensor, "shape", None)
    if have is None:
        have = host(tensor).shape
    if len(have) == len(shape):
        for size, want in zip(have, shape):
            if size != want and want is not None:
                break
        else:
            return
    raise wrong("input.shape", name, f"[{', '.join('any' if n is None else str(n) for n in shape)}]", str(list(have)))


def expect_axes(name: str, tensor: Any, *axes: str) -> None:
    """Refuses a tensor of another number of axes."""
    if len(getattr(tensor, "shape", ())) != len(axes):
        raise wrong("input.shape", name, f"[{', '.join(axes)}]", str(list(getattr(tensor, "shape", None) or host(tensor).shape)))


def expect_alike(name: str, tensor: Any, **others: Any) -> None:
    """Refuses tensors of another type than one that has a name."""
    dtype = tensor.dtype
    bad = [other for other, t in others.items() if t.dtype != dtype]
    if bad:
        raise wrongs([("input.dtype", n, f"{dtype_name(dtype)}, as {name}", dtype_name(others[n].dtype)) for n in bad])


def expect_f32(**tensors: Any) -> None:
    bad = [(name, dtype_name(t.dtype)) for name, t in tensors.items() if dtype_name(t.dtype) != "float32"]
    if bad:
        raise wrongs([("input.dtype", name, "float32", got) for name, got in bad])


def too_short(name: str, bound: int | None, lens: Any, offsets: Any) -> list[tuple[str, ...]]:
    """The finding of a max_seqlen that is less than the longest length: a kernel leaves out rows behind it."""
    if bound is None or (lens is None and offsets is None):  # which are refused
        return []
    numbers = offsets if lens is None else lens
    numbers = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    longest = max(numbers if lens is not None else map(operator.sub, numbers[1:], numbers), default=0)
    return [("len.bound", name, f">= {longest}, the longest length", str(bound))] if longest > bound else []


@functools.lru_cache(64)
def one_length(batch: int, each: int) -> Any:
    """uniform_offsets, which nobody writes to."""
    return _fixed(uniform_offsets(batch, each))


@functools.lru_cache(64)
def each_alone(batch: int) -> Any:
    """A table whose request r has page r."""
    return _fixed(uniform_offsets(batch, 1)[:-1].reshape(-1, 1))


@functools.lru_cache(64)
def same(length: int, batch: int) -> Any:
    import numpy

    return _fixed(numpy.full(batch, length, numpy.int32))


def _fixed(array: Any) -> Any:
    array.setflags(write=False)
    return array


def fill_where(tensor: Any, mask: Any, value: float) -> None:
    if is_torch(tensor):
        tensor.masked_fill_(mask, value)
    else:
        tensor[mask] = value


def as_f32(tensor: Any) -> Any:
    return tensor.float() if is_torch(tensor) else tensor.astype("float32", copy=False)
