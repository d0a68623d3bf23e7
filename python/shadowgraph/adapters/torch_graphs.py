"""CUDA graphs of torch: each capture and each replay meets a guard, where an engine has no hooks of its own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..guard import Guard
from ..report import Report


@contextlib.contextmanager
def watched(guard: Guard, metadata: Callable[[], Any], graph_class: Any = None) -> Iterator[list[Report]]:
    """Wraps capture_end and replay of torch.cuda.CUDAGraph, the class: graphs are watched whoever makes them. Gives a list
    that grows by the report of each replay that has findings. Raises nothing in the engine: guard.skipped has it.

    metadata: returns what the engine holds at that moment. graph_class: another class than torch's."""
    if graph_class is None:
        import torch

        graph_class = torch.cuda.CUDAGraph
    reports: list[Report] = []
    originals = {name: getattr(graph_class, name) for name in ("capture_end", "replay")}
    own = {name for name in originals if name in graph_class.__dict__}
    known: set[int] = set()

    @functools.wraps(originals["capture_end"])
    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = originals["capture_end"](graph, *args, **kwargs)
        known.discard(id(graph))
        try:
            guard.captured(id(graph), metadata())
            known.add(id(graph))
        except Exception as error:  # without metadata yet: this graph is not watched
            guard.skipped["a capture"] = repr(error)
        return result

    @functools.wraps(originals["replay"])
    def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
        if id(graph) in known:
            try:
                report = guard.replaying(id(graph), metadata())
                if not report.ok:
                    reports.append(report)
            except Exception as error:
                guard.skipped["a replay"] = repr(error)
        return originals["replay"](graph, *args, **kwargs)

    graph_class.capture_end, graph_class.replay = capture_end, replay
    try:
        yield reports
    finally:
        for name, original in originals.items():
            if name in own:
                setattr(graph_class, name, original)
            else:
                delattr(graph_class, name)
