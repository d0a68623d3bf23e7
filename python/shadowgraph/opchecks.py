"""One call that tests an attention kernel in several ways: opcheck.

docs/kernel.md begins with an example.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _core
from ._upstream import dtype_name, is_torch, joined
from .matches import Call, hint, matches, on_host, raise_with
from .report import Report
from .shadows import red_zones, shadowed

Findings = list[tuple[str, str, int, int, str, str]]

_CHECKS = ("shape", "bound", "memory", "batch", "padding", "graph")

# A call that has another argument says something of each request, and is neither cut nor made longer.
_OF_ALL_REQUESTS = frozenset(
    "sm_scale logits_soft_cap causal window_left window_right sinks lse_base2 lse_sink arith num_threads alibi alibi_slopes "
    "temperature_len attention_chunk chunk_lookback q_scale out_scale dtype kv_dtype".split()
)
_OF_REQUESTS = frozenset(
    "q cache k v page_table cache_seqlens kv_indptr kv_indices last_page_len cu_seqlens_q cu_seqlens_k".split()
)


def opcheck(
    fn: Callable[..., Any],
    samples: Iterable[Call],
    *,
    arithmetic: str = "plain_f32",
    checks: Sequence[str] = _CHECKS,
) -> dict[str, str]:
    """Tests a kernel on calls that paged and ragged describe. fn gets a call's arguments by name, and returns out or
    (out, lse); where it has parameters `out` and `lse`, it gets these too, and may return None.

    shape    out and lse have the twin's shapes and types
    bound    both are within the derived bound of the arithmetic (assert_matches)
    memory   nothing is written around inputs and outputs, and no input changes; around them lies NaN
    batch    each request alone has the bits that it has in the batch
    padding  one request more, which sees one key, changes no bit of the others
    graph    a replay has eager's bits, for other queries, other pages and longer requests than those of the capture
             (torch; tensors of the CPU by shadowgraph.torch.cpu_graphs)

    Returns {"shape": "passed", "batch": "left out: ...", ...}. Raises ShadowgraphError with the findings of every sample
    and check."""
    __tracebackhide__ = True
    unknown = set(checks) - set(_CHECKS)
    if unknown:
        raise ValueError(f"opcheck: checks has {sorted(unknown)}, expected some of {', '.join(_CHECKS)}")
    if isinstance(samples, Call):
        raise TypeError("opcheck: samples is a single call, expected a list of them")
    done = {name: "left out: no samples" for name in checks}
    report, hints = None, ""
    for number, sample in enumerate(samples):
        kernel = _Kernel(fn, sample, arithmetic)
        for name in checks:
            try:
                found = _FUNCTIONS[name](kernel, sample)
            except _LeftOut as why:
                if done[name] != "passed":
                    done[name] = f"left out: {why}"
                continue
            done[name] = "passed"
            if found is not None:
                report = _core.report_add(report, found, f"sample {number} {name}")
        hints = hints or kernel.hint
    raise_with(Report(report), hints)
    return done


class _LeftOut(Exception):
    """Why a check says nothing of a sample."""


class _Kernel:
    """Returns always (out, lse), of which lse may be None."""

    def __init__(self, fn: Callable[..., Any], sample: Call, arithmetic: str):
        self.fn, self.arithmetic = fn, arithmetic
        self.twin, self.hint = sample.run(lse=True), ""
        try:
            self.takes = {"out", "lse"} & set(inspect.signature(fn).parameters)
        except ValueError:  # a builtin without a signature
            self.takes = set()

    def __call__(self, call: Call, make: Callable[..., Any] | None = None) -> tuple[Any, Any]:
        """make: a function of shape, type and name that makes outputs, where fn takes them."""
        q, (out, lse) = call.arguments["q"], self.twin
        make = make or (lambda shape, dtype, name: _zeros(q, shape, dtype))
        shapes = {"out": ((*q.shape[:2], out.shape[-1]), q.dtype), "lse": (tuple(q.shape[:2]), lse.dtype)}
        given = {name: make(*shapes[name], name) for name in self.takes}
        result = self.fn(**call.arguments, **given)
        if result is None:
            return given.get("out"), given.get("lse")
        return (result[0], result[1]) if isinstance(result, (tuple, list)) else (result, None)


def _zeros(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return like.new_zeros(shape, dtype=dtype) if is_torch(like) else _library(like).zeros(shape, dtype)


def _library(tensor: Any) -> Any:
    return importlib.import_module("torch" if is_torch(tensor) else "numpy")


# Checks: what is found of one sample.


def _report(found: Findings) -> _core.ReportHandle | None:
    return _core.report_new(found) if found else None


def _shape(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    found: Findings = []
    for name, got, twins in zip(("out", "lse"), kernel(call), kernel.twin):
        if got is None and name == "lse":
            continue
        shape = list(got.shape) if hasattr(got, "shape") else f"a {type(got).__name__}"
        if shape != list(twins.shape):
            found.append(("input.shape", name, -1, -1, str(list(twins.shape)), str(shape)))
        elif dtype_name(got.dtype) != dtype_name(twins.dtype):
            found.append(("input.dtype", name, -1, -1, str(twins.dtype), str(got.dtype)))
    return _report(found)


def _bound(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    result = kernel(call)
    report = matches(*result, call, arithmetic=kernel.arithmetic)
    if not report.ok:
        kernel.hint = hint(*result, call, kernel.arithmetic)
    return report._handle


def _memory(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    if is_torch(call.arguments["q"]) and not call.arguments["q"].is_cpu:
        raise _LeftOut("tensors of a device have no red zones")
    zoned = call.changed(**_mapped(call.arguments, _in_red_zones))
    plain, result = kernel(_copied(call)), kernel(zoned, shadowed)
    pairs = zip(_tensors(zoned.arguments), _tensors(call.arguments))
    changed = [name for (name, now), (_, before) in pairs if not _same(now, before)]
    wrote = _report([("num.write_set", name, -1, -1, "an input that stays as it is", "other bits") for name in changed])
    if not _same_rows(plain, result, 0, len(plain[0]), ""):  # `bound` judges these
        return _sum(red_zones(), wrote)
    return _sum(red_zones(), wrote, matches(*result, call, arithmetic=kernel.arithmetic)._handle)


def _sum(*reports: _core.ReportHandle | None) -> _core.ReportHandle | None:
    whole = None
    for report in reports:
        whole = whole if report is None else report if whole is None else _core.report_add(whole, report)
    return whole


def _batch(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    whole = kernel(call)
    found: Findings = []
    for request in range(len(_offsets(call)) - 1):
        begin, end = _rows(call, request)
        found += _same_rows(whole, kernel(_alone(call, request)), begin, end, f"the bits of request {request} alone")
    return _report(found)


def _padding(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    rows = len(call.arguments["q"])
    return _report(_same_rows(kernel(_padded(call)), kernel(call), 0, rows, "the bits without a request of padding"))


def _graph(kernel: _Kernel, call: Call) -> _core.ReportHandle | None:
    q = call.arguments["q"]
    if not is_torch(q):
        raise _LeftOut("graphs are torch's")
    from .torch import cpu_graphs

    cuda: Any = _library(q).cuda
    before, why_not_longer = _before(call)
    live = _copied(call.changed(**before))
    with cpu_graphs() if q.is_cpu else contextlib.nullcontext():
        if not q.is_cpu:
            kernel(live)  # compiles, which no capture may
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            captured = kernel(live)
        for name in before:
            live.arguments[name].copy_(call.arguments[name])
        graph.replay()
        cuda.synchronize()
    found = _same_rows(captured, kernel(call), 0, len(q), "eager's bits in a replay", "device.replay")
    if why_not_longer and not found:
        raise _LeftOut(why_not_longer)
    return _report(found)


def _before(call: Call) -> tuple[dict[str, Any], str]:
    """What a capture sees in place of a call's tensors: other queries, pages one further, requests a key shorter; and why
    none is shorter."""
    a: dict[str, Any] = call.arguments
    parts = {"q": a["q"].flip(0)}
    for name in ("page_table", "kv_indices"):
        pages: Any = a.get(name)
        if is_torch(pages):
            count = len(a["cache"][0])
            parts[name] = pages.where((pages < 0) | (pages >= count), (pages + 1) % count)  # those that are no page stay
    try:
        _of_requests(call)  # a mask has each request's length
    except _LeftOut as why:
        return parts, str(why)
    longer = False
    for name in ("cache_seqlens", "last_page_len"):
        lens: Any = a.get(name)
        if is_torch(lens):
            offsets = _offsets(call)
            queries = lens.new_tensor([end - begin for begin, end in zip(offsets, offsets[1:])])
            parts[name] = (lens - 1).maximum(queries.clamp(min=1)).minimum(lens)
            longer = not _same(parts[name], lens)
    return parts, "" if longer else "no request can have a key less at the capture"


_FUNCTIONS: dict[str, Callable[[_Kernel, Call], _core.ReportHandle | None]] = {
    "shape": _shape,
    "bound": _bound,
    "memory": _memory,
    "batch": _batch,
    "padding": _padding,
    "graph": _graph,
}

# Tensors of a call.


def _tensors(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        for i, part in enumerate(value if isinstance(value, tuple) else [value]):
            if hasattr(part, "shape"):
                yield (f"{name}[{i}]" if isinstance(value, tuple) else name), part


def _mapped(arguments: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Each tensor changed, those of a cache too."""

    def of(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            parts = [of(f"{name}[{i}]", part) for i, part in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return change(name, value) if hasattr(value, "shape") else value

    return {name: of(name, value) for name, value in arguments.items()}


def _copied(call: Call) -> Call:
    return call.changed(**_mapped(call.arguments, lambda name, t: t.clone() if is_torch(t) else t.copy()))


def _in_red_zones(name: str, tensor: Any) -> Any:
    zoned = shadowed(tuple(tensor.shape), tensor.dtype, name)
    zoned[...] = tensor
    return zoned


def _bits(tensor: Any) -> Any:
    """Bytes, row by row."""
    import numpy

    tensor = on_host(tensor)
    if is_torch(tensor):
        tensor = tensor.contiguous().view(_library(tensor).uint8).numpy() if tensor.numel() else tensor.numpy()
    return numpy.ascontiguousarray(tensor).view(numpy.uint8).reshape(len(tensor), -1)


def _same(a: Any, b: Any) -> bool:
    return bool((_bits(a) == _bits(b)).all())


def _same_rows(whole: Sequence[Any], part: Sequence[Any], begin: int, end: int, expected: str, law: str = "num.bits") -> Findings:
    """Rows [begin, end) of whole have the bits of part."""
    found: Findings = []
    for name, a, b in zip(("out", "lse"), whole, part):
        if a is None or b is None:
            continue
        wrong = (_bits(a[begin:end]) != _bits(b[: end - begin])).any(-1).nonzero()[0]
        if len(wrong):
            found.append((law, name, begin + int(wrong[0]), -1, expected, f"others ({len(wrong)} of {end - begin} rows)"))
    return found


# Requests of a call.


def _ints(array: Any) -> list[int]:
    return [int(n) for n in (array.tolist() if hasattr(array, "tolist") else array)]


def _offsets(call: Call) -> list[int]:
    given = call.arguments.get("cu_seqlens_q")
    return list(range(len(call.arguments["q"]) + 1)) if given is None else _ints(given)


def _rows(call: Call, request: int) -> tuple[int, int]:
    offsets = _offsets(call)
    return offsets[request], offsets[request + 1]


def _as(like: Any, numbers: list[Any]) -> Any:
    """A list, or an array of the library and type of another."""
    if not hasattr(like, "shape"):
        return numbers
    return like.new_tensor(numbers) if is_torch(like) else _library(like).array(numbers, like.dtype)


def _of_requests(call: Call) -> dict[str, Any]:
    """The arguments that requests have, where no other has to be cut."""
    given = {name: value for name, value in call.arguments.items() if value is not None}
    others = given.keys() - _OF_ALL_REQUESTS - _OF_REQUESTS
    if others:
        raise _LeftOut(f"{', '.join(sorted(others))}: of each request")
    return {name: value for name, value in given.items() if name in _OF_REQUESTS}


def _alone(call: Call, request: int) -> Call:
    a = _of_requests(call)
    begin, end = _rows(call, request)
    parts = {"q": a["q"][begin:end]}
    if "cu_seqlens_q" in a:
        parts["cu_seqlens_q"] = _as(a["cu_seqlens_q"], [0, end - begin])
    for name in ("page_table", "cache_seqlens", "last_page_len"):
        if name in a:
            parts[name] = a[name][request : request + 1]
    if "kv_indptr" in a:
        first, last = _ints(a["kv_indptr"])[request : request + 2]
        parts |= {"kv_indptr": _as(a["kv_indptr"], [0, last - first]), "kv_indices": a["kv_indices"][first:last]}
    if "cu_seqlens_k" in a:
        first, last = _ints(a["cu_seqlens_k"])[request : request + 2]
        parts |= {"cu_seqlens_k": _as(a["cu_seqlens_k"], [0, last - first]), "k": a["k"][first:last], "v": a["v"][first:last]}
    return call.changed(**parts)


def _longer(array: Any, entry: Any) -> Any:
    """With one entry more."""
    return _as(array, [*(array.tolist() if hasattr(array, "tolist") else array), entry])


def _padded(call: Call) -> Call:
    """Behind the others a request with one query that sees the key in slot 0."""
    a = _of_requests(call)
    if not len(a["q"]) or ("k" in a and not len(a["k"])):
        raise _LeftOut("no row to copy")
    parts = {"q": joined([a["q"], a["q"][:1]], 0)}
    for name in ("cu_seqlens_q", "cu_seqlens_k", "kv_indptr"):
        if name in a:
            parts[name] = _longer(a[name], _ints(a[name])[-1] + 1)
    for name, entry in (("cache_seqlens", 1), ("last_page_len", 1), ("kv_indices", 0)):
        if name in a:
            parts[name] = _longer(a[name], entry)
    if "page_table" in a:
        table = a["page_table"]
        parts["page_table"] = _longer(table, [0] * len(table[0]))
    for name in ("k", "v"):
        if name in a:
            parts[name] = joined([a[name], a[name][:1]], 0)
    return call.changed(**parts)
