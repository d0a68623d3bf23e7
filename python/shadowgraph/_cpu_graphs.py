"""torch.cuda.CUDAGraph over CPU tensors."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextvars import Token
from typing import Any

import torch
from torch.autograd.grad_mode import inference_mode  # torch.inference_mode may be replaced: torch 1.13 cannot trace its tensors
from torch.utils._python_dispatch import TorchDispatchMode

import shadowgraph

from . import _core
from ._upstream import empty, launcher
from .cache import Cache


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _storage(tensor: torch.Tensor) -> int:
    storage: Any = tensor.untyped_storage if hasattr(tensor, "untyped_storage") else tensor.storage
    return int(storage().data_ptr())


def _written(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operation writes."""
    found: list[torch.Tensor] = []
    for i, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.extend(_tensors(args[i] if i < len(args) else kwargs.get(argument.name)))
    return found


class _Recorder(TorchDispatchMode):
    """Keeps operations as nodes. During a capture only tensors that it made are written; a replay writes all of them where
    they lay."""

    def __init__(self, nodes: list[Callable[[], Any]]) -> None:
        super().__init__()
        self.nodes = nodes
        self.own: dict[int, torch.Tensor] = {}  # by storage, which they keep alive

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = _written(function, args, kwargs)
        if written and not all(_storage(t) in self.own for t in written):
            self.nodes.append(lambda: function(*args, **kwargs))
            returned = len(function._schema.returns)
            return None if returned == 0 else written[0] if returned == 1 else tuple(written[:returned])
        with inference_mode(False):
            result = function(*args, **kwargs)
        given = {_storage(t) for t in _tensors([args, kwargs])}
        made = [t for t in _tensors(result) if _storage(t) not in given]
        self.own.update((_storage(t), t) for t in made)
        if (written or made) and "empty" not in function._schema.name:
            self.nodes.append(lambda: replay(function, args, kwargs, made, given))
        return result


def replay(function: Any, args: Any, kwargs: Any, made: list[torch.Tensor], given: set[int]) -> None:
    """Runs an operation again; what it made goes where it lay at the capture."""
    again = [t for t in _tensors(function(*args, **kwargs)) if _storage(t) not in given]
    for old, new in zip(made, again, strict=True):
        if old.shape != new.shape:
            raise RuntimeError(f"{function._schema.name}: shape {list(new.shape)} at a replay, {list(old.shape)} at the capture")
        old.copy_(new)


class CUDAGraph:
    """Operations on tensors, launches of drop-ins and calls of the engine, in their order. What else Python does is done once,
    at the capture."""

    _capturing: CUDAGraph | None = None

    def __init__(self, keep_graph: bool = False) -> None:
        self._nodes: list[Callable[[], Any]] | None = None
        self._pool = (0, id(self))

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if CUDAGraph._capturing is not None:
            raise RuntimeError("CUDAGraph: a capture is underway already")
        if self._nodes is not None:
            raise RuntimeError("CUDAGraph: it holds a graph already; reset() it first")
        self._pool = pool or self._pool
        self._nodes = []
        self._recorder = _Recorder(self._nodes)
        self._token: Token[Any] = launcher.set(self._nodes.append)
        self._recorder.__enter__()
        CUDAGraph._capturing = self

    def capture_end(self) -> None:
        if CUDAGraph._capturing is not self:
            raise RuntimeError("CUDAGraph: no capture of it is underway")
        CUDAGraph._capturing = None
        self._recorder.__exit__(None, None, None)
        launcher.reset(self._token)

    def instantiate(self) -> None:
        """A graph is ready once it is captured."""

    def replay(self) -> None:
        if self._nodes is None or CUDAGraph._capturing is self:
            raise RuntimeError("CUDAGraph: nothing is captured")
        if CUDAGraph._capturing is not None:
            raise RuntimeError("CUDAGraph: a replay during a capture")
        with inference_mode():  # which may write tensors of either kind
            for node in self._nodes:
                node()

    def reset(self) -> None:
        self._nodes = self._recorder = None  # type: ignore[assignment]

    def pool(self) -> tuple[int, int]:
        return self._pool

    def enable_debug_mode(self) -> None:
        """There is nothing more to see."""

    def debug_dump(self, debug_path: str) -> None:
        """There is nothing more to see."""


class graph:
    """`with torch.cuda.graph(g):` captures. A body that raises leaves an empty graph."""

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global") -> None:
        self.cuda_graph, self.pool = cuda_graph, pool

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin(self.pool)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.cuda_graph.capture_end()
        if kind is not None:
            self.cuda_graph.reset()


class Stream:
    """One stream, in which all happens in order; events are always reached."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        pass

    record = wait = synchronize = wait_event = wait_stream = _nothing


class Event(Stream):
    def elapsed_time(self, end: Any) -> float:
        return 0.0


_CALLS = {"paged_attention": ("q", "cache"), "ragged_attention": ("q", "k", "v"), "merge_states": ("v",), "store_kv": (), "copy_kv": ()}


def _kernel(name: str) -> Callable[..., Any]:
    """A call of the engine that a capture keeps: its outputs are there at once, and each replay writes them."""
    compute = getattr(_core, name)

    @functools.wraps(compute)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if CUDAGraph._capturing is None:
            return compute(*args, **kwargs)
        call = kwargs | dict(zip(_CALLS[name], args))
        if not call.keys() >= set(_CALLS[name]):
            return compute(*args, **kwargs)  # which says what is missing
        out, lse = kwargs.get("out"), kwargs.get("lse")
        if _CALLS[name]:
            rows = call["q"] if "q" in call else call["v"]
            shape = _out_shape(**{n: call[n] for n in _CALLS[name]})
            out = empty(rows, shape) if out is None else out
            lse = empty(rows, shape[:-1], "float32") if lse is True else None if lse is False else lse
            kwargs |= {"out": out, "lse": lse}
        launcher.get()(lambda: compute(*args, **kwargs))
        return out if lse is None else (out, lse)

    return kernel


def _out_shape(q: Any = None, cache: Any = None, k: Any = None, v: Any = None) -> tuple[int, ...]:
    if q is None:
        return (v.shape[0], *v.shape[2:])
    pool = Cache(None, v) if cache is None else Cache(*cache)
    dim = pool.head_dim_vo or (pool.k_cache if pool.v_cache is None else pool.v_cache).shape[-1]
    return (*q.shape[:2], dim)


_stream = Stream()
_REPLACED: dict[str, Any] = {
    "CUDAGraph": CUDAGraph,
    "graph": graph,
    "graph_pool_handle": lambda: (0, 0),
    "is_current_stream_capturing": lambda: CUDAGraph._capturing is not None,
    "Stream": Stream,
    "Event": Event,
    "stream": lambda stream=None: contextlib.nullcontext(stream),
    "current_stream": lambda device=None: _stream,
    "default_stream": lambda device=None: _stream,
    "synchronize": lambda device=None: None,
    "empty_cache": lambda: None,
}


def _holders() -> Iterator[tuple[Any, str, Any]]:
    """Places of what is replaced: torch's modules, and modules that hold calls of the engine, ours aside: drop-ins launch them."""
    for place in [torch.cuda, torch.cuda.graphs] if hasattr(torch.cuda, "graphs") else [torch.cuda]:
        yield from ((place, name, value) for name, value in _REPLACED.items() if hasattr(place, name))
    for name in _CALLS:
        call, kernel = getattr(shadowgraph, name), _kernel(name)
        for module in list(sys.modules.values()):
            own = not getattr(module, "__name__", "shadowgraph.").startswith("shadowgraph.")
            if own and getattr(module, "__dict__", {}).get(name) is call:
                yield module, name, kernel


@contextlib.contextmanager
def cpu_graphs() -> Iterator[None]:
    """torch.cuda's graphs and streams, for tensors of the CPU: a capture computes nothing that anyone else sees, addresses
    are those of the capture, and a replay reads what lies there. Its kernels are torch's operations, drop-ins, and the
    engine's calls (shadowgraph.paged_attention), as modules name them; what NumPy writes is not seen."""
    replaced = [(place, name, value, getattr(place, name)) for place, name, value in _holders()]
    for place, name, value, _ in replaced:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, _, before in replaced:
            setattr(place, name, before)
