"""All drop-ins share this: launches, refusals by name, outputs, and upstream's arguments as the engine takes them.

A drop-in checks and allocates when it is called, and computes in one closure that it hands to the launcher. An
argument that is read from a tensor is read in that closure: a graph reads it at each replay.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from . import _core
from .report import Finding, Report, ShadowgraphError, refusal

# Takes each launch, a function without arguments. A graph's simulator sets another one while it captures.
launcher: ContextVar[Callable[[Callable[[], None]], None]] = ContextVar("shadowgraph.launcher", default=lambda launch: launch())


def launch(function: Callable[..., Any], names: Mapping[str, str], /, **arguments: Any) -> None:
    """Hands function(**arguments) to the launcher. An argument that is a function is called at the launch.

    names: upstream's name of an argument, by the engine's, where they differ; findings are told by it.
    """

    late = [name for name, value in arguments.items() if type(value) is FunctionType]

    def run() -> None:
        try:
            function(**(arguments | {name: arguments[name]() for name in late} if late else arguments))
        except ShadowgraphError as error:
            raise _renamed(error, names) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(_rename(str(error), names)) from None

    launcher.get()(run)


def _rename(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], text)


def _renamed(error: ShadowgraphError, names: Mapping[str, str]) -> ShadowgraphError:
    if not error.report:
        return error
    report = Report(error.report._handle)
    report.findings = [_told(finding, names) for finding in error.report.findings]
    return ShadowgraphError(report)


def _told(finding: Finding, names: Mapping[str, str]) -> Finding:
    parts = {part: getattr(finding, part) for part in ("expected", "got", "text")}
    parts["field"] = finding.field.partition(".")[0]  # the argument; its text says "q.shape"
    if finding.id == "len.capacity":  # whose columns those are
        longer = finding.expected + ", the columns of page_table"
        parts |= {"expected": longer, "text": finding.text.replace(finding.expected, longer)}
    return dataclasses.replace(finding, **{part: _rename(text, names) for part, text in parts.items()})


def refuse(call: str, **options: Any) -> None:
    """Refuses, by name, the first option that is asked for: one that would change numbers, and is not computed here."""
    for name, value in options.items():
        if not (value is None or isinstance(value, (bool, int, float)) and not value or isinstance(value, str) and value == "NONE"):
            raise NotImplementedError(f"{call}({name}=…)")


# Tensors.


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


@functools.lru_cache(maxsize=None)
def dtype_name(dtype: Any) -> str:
    """ "bfloat16" of torch.bfloat16, numpy.dtype("float16") or a string."""
    return getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


def empty(like: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """A tensor of like's library, on the CPU, with like's type if there is no other."""
    if is_torch(like):
        return sys.modules["torch"].empty(shape, dtype=like.dtype if dtype is None else _torch_type(dtype))
    import numpy

    name = dtype_name(like.dtype if dtype is None else dtype)
    return numpy.empty(shape, "uint16" if name == "bfloat16" else name)


@functools.cache
def _torch_type(dtype: Any) -> Any:
    return getattr(sys.modules["torch"], dtype_name(dtype))


def host(values: Any) -> Any:
    """A NumPy array of integers or truths, without a copy where that can be."""
    if is_torch(values):
        return values.numpy()
    import numpy

    return numpy.asarray(values)


def integers(values: Any, dtype: str = "int32") -> Any:
    """Integers of any width as an argument of `launch` that wants dtype."""
    if values is None or isinstance(values, (list, tuple)) or dtype_name(values.dtype) == dtype or "int" not in dtype_name(values.dtype):
        return values
    return lambda: host(values).astype(dtype)


def number(value: Any, default: float = 1.0) -> Any:
    """A number, or a tensor of one, as an argument of `launch`."""
    if value is None:
        return default
    return value if isinstance(value, (int, float)) else lambda: float(value)


# Arguments.


def scale(sm_scale: Any, head_dim: int) -> Any:
    return number(sm_scale, head_dim**-0.5)


def window(size: Any) -> dict[str, int]:
    """FlashAttention's (left, right), None or -1 for all."""
    left, right = (-1, -1) if size is None else (-1 if side is None or side < 0 else int(side) for side in size)
    return {"window_left": left, "window_right": right}


def offsets(lens: Any) -> Any:
    """int32 [n + 1] of [n] lengths."""
    import numpy

    return numpy.concatenate([[0], numpy.cumsum(host(lens), dtype=numpy.int64)]).astype(numpy.int32)


def uniform_offsets(batch: int, each: int) -> Any:
    """int32 [batch + 1]: 0, each, 2 each, ..."""
    import numpy

    return numpy.arange(batch + 1, dtype=numpy.int32) * numpy.int32(each)


def pack_bits(mask: Any, sizes: Any) -> tuple[Any, Any]:
    """A flat mask of truths, request by request, as bits, least significant first, each request on a byte of its own;
    and int32 [n + 1] offsets of bytes. sizes: [n] truths of each request."""
    import numpy

    mask, ends = host(mask).reshape(-1), numpy.cumsum(host(sizes), dtype=numpy.int64)
    parts = [numpy.packbits(mask[end - size : end] != 0, bitorder="little") for end, size in zip(ends, sizes)]
    return numpy.concatenate([numpy.zeros(0, numpy.uint8), *parts]), offsets([len(part) for part in parts])


HELD = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def held(dtype: Any, kv_dtype: Any) -> dict[str, Any]:
    """The types that unsigned integers of q and of the cache hold, by the types that a caller names."""
    return {"dtype": HELD.get(dtype_name(dtype)), "kv_dtype": HELD.get(dtype_name(kv_dtype))}


def floats(values: Any) -> Any:
    """f32 of any float, as an argument of `launch`."""
    if values is None or isinstance(values, (list, tuple)) or dtype_name(values.dtype) == "float32":
        return values
    return lambda: values.float() if is_torch(values) else values.astype("float32")


def product(*factors: Any) -> Any:
    """Numbers, tensors of one and None, multiplied, as an argument of `launch`."""
    there = [f for f in factors if f is not None]

    def value() -> float:
        result = 1.0
        for factor in there:
            result *= float(factor() if callable(factor) else factor)
        return result

    return value() if all(isinstance(f, (int, float)) for f in there) else value


def per_head(value: Any) -> bool:
    """Is a scale a tensor of several numbers?"""
    return hasattr(value, "shape") and len(host(value).reshape(-1)) > 1


def swap(tensor: Any, a: int, b: int) -> Any:
    """A view with two axes swapped."""
    return tensor.transpose(a, b) if is_torch(tensor) else tensor.swapaxes(a, b)


def joined(parts: list[Any], axis: int) -> Any:
    if is_torch(parts[0]):
        return sys.modules["torch"].cat(parts, axis)
    import numpy

    return numpy.concatenate(parts, axis)


def stacked(parts: list[Any], axis: int) -> Any:
    if is_torch(parts[0]):
        return sys.modules["torch"].stack(parts, axis)
    import numpy

    return numpy.stack(parts, axis)


def picked(pool: Any, ids: Any) -> Any:
    """A copy of pool[ids]."""
    return pool[sys.modules["torch"].from_numpy(ids.astype("int64"))] if is_torch(pool) else pool[ids]


def fill(target: Any, values: Any) -> None:
    """Writes values to the beginning of a tensor; its own values stay."""
    if not is_torch(target):
        target[: len(values)] = host(values)
        return
    if not is_torch(values):
        values = sys.modules["torch"].from_numpy(host(values))
    (target if target.shape == values.shape else target[: values.shape[0]]).copy_(values)


def wrong(law: str, field: str, expected: str, got: str, row: int | None = None, col: int | None = None) -> ShadowgraphError:
    """The error of a check that is the drop-in's own."""
    return wrongs([(law, field, expected, got, row, col)])


def wrongs(found: Sequence[tuple[Any, ...]]) -> ShadowgraphError:
    """The error of several: (law, field, expected, got) of each, and maybe its row and column."""
    findings = []
    for law, field, expected, got, *place in found:
        row, col = (-1 if at is None else int(at) for at in (*place, None, None)[:2])
        findings.append((law, field, row, col, expected, got))
    return refusal(_core.report_new(findings))


def check_shapes(**expected: tuple[Any, Any]) -> None:
    """name=(tensor, shape): all findings at once."""
    bad = [
        ("input.shape", name, str(list(shape)), str(list(tensor.shape)))
        for name, (tensor, shape) in expected.items()
        if tuple(tensor.shape) != tuple(shape)
    ]
    if bad:
        raise wrongs(bad)


def used_pages(table: Any, pages: Any, num_pages: int) -> list[Any]:
    """The ids of the first `pages` pages of each row of page_table. The pool must have them all."""
    found = []
    for row, (ids, count) in enumerate(zip(table, pages, strict=True)):
        ids = host(ids)
        if count > len(ids):
            raise wrong("len.capacity", "cache_seqlens", f"<= {len(ids)} pages", f"{count} pages", row)
        used = ids[:count]
        bad = (used < 0) | (used >= num_pages)
        if bad.any():
            col = int(bad.argmax())
            raise wrong("table.page_id", "page_table", f"0 <= id < {num_pages}", str(used[col]), row, col)
        found.append(used)
    return found
