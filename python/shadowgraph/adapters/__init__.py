"""Hooks in engines: an adapter tests which methods an engine has, and wraps those.

An adapter is a module with MODULES, {module of the engine: function that hooks it, which has the Hooks}. A module that is
imported later is hooked then. Whatever does not fit is recorder.skipped[name], and never an exception in the engine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..recorder import Recorder

ADAPTERS = ("flashinfer", "sglang", "vllm")
_GRAPHS = "torch.cuda.graphs"
_CALLS_OF_GRAPHS = ("capture_begin", "capture_end", "replay")


class _Imports:
    """A finder that finds nothing, and calls a function behind the import of a module."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        then = self.waiting.pop(name, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            self.waiting[name] = then
            return None
        load, hook = loader.exec_module, then

        def exec_module(module: Any) -> None:
            load(module)
            hook()

        loader.exec_module = exec_module
        return spec


class Hooks:
    """Wrapped methods, which remove() gives back."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._undo: list[Callable[[], None]] = []
        self._active: set[tuple[int, int]] = set()  # threads, and instances whose methods they are in
        self._imports = _Imports()
        self.kept: dict[str, Any] = {}  # what hooks of several modules share
        self.on_graph: list[Callable[[str, Any], None]] = []  # of (one of _CALLS_OF_GRAPHS, torch's graph), when it is done

    def install(self) -> None:
        for name in ADAPTERS:
            adapter = importlib.import_module(f".{name}", __name__)
            for module, hook in adapter.MODULES.items():
                if module in sys.modules:
                    self._try(name, hook)
                    continue
                if module == next(iter(adapter.MODULES)):
                    self.recorder.skip(name, f"{module} is not imported")
                self._imports.waiting[module] = functools.partial(self._try, name, hook)
        if _GRAPHS in sys.modules:
            self._try("torch", Hooks._graphs)
        else:
            self._imports.waiting[_GRAPHS] = functools.partial(self._try, "torch", Hooks._graphs)
        sys.meta_path.insert(0, self._imports)

    def _try(self, name: str, hook: Callable[[Hooks], None]) -> None:
        try:
            hook(self)
            if self.recorder.skipped.get(name, "").endswith("is not imported"):
                del self.recorder.skipped[name]
        except Exception as error:
            self.recorder.skip(name, error)

    def remove(self) -> None:
        self._imports.waiting.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self._imports)
        while self._undo:
            self._undo.pop()()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute until remove()."""
        own, before = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before) if own else delattr(owner, name))

    def wrap(self, base: type, name: str, after: Callable[..., None], before: Callable[[Any], None] | None = None) -> None:
        """Calls after(instance, result, arguments...) when the outermost wrapped call on an instance has returned: of
        base and of each subclass that has a method of its own, later ones too. A backend made of others is seen as those."""
        for owner in _family(base):
            self._wrap_own(owner, name, after, before)
        inherited = base.__dict__.get("__init_subclass__")

        def init_subclass(cls: Any, **kwargs: Any) -> None:
            if inherited is None:
                super(base, cls).__init_subclass__(**kwargs)  # type: ignore[arg-type]
            else:
                inherited.__get__(None, cls)(**kwargs)
            self._wrap_own(cls, name, after, before)

        self.replace(base, "__init_subclass__", classmethod(init_subclass))

    def _wrap_own(self, owner: type, name: str, after: Callable[..., None], before: Callable[[Any], None] | None) -> None:
        original = owner.__dict__.get(name)
        if callable(original):
            self.replace(owner, name, self._wrapped(original, name, after, before))
            self.recorder.hooked[f"{owner.__module__}.{owner.__qualname__}.{name}"] = name

    def _wrapped(self, original: Any, name: str, after: Callable[..., None], before: Callable[[Any], None] | None) -> Any:
        @functools.wraps(original)
        def method(instance: Any, *args: Any, **kwargs: Any) -> Any:
            call = threading.get_ident(), id(instance)
            if call in self._active:
                return original(instance, *args, **kwargs)
            try:
                if before is not None:
                    before(instance)
            except Exception as error:
                self.recorder.skip(f"{type(instance).__name__}.{name}", error)
            self._active.add(call)
            try:
                result = original(instance, *args, **kwargs)
            finally:
                self._active.discard(call)
            try:
                after(instance, result, *args, **kwargs)
            except Exception as error:
                self.recorder.skip(f"{type(instance).__name__}.{name}", error)
            return result

        return method

    def _graphs(self) -> None:
        """Tells on_graph what becomes of each graph, and the recorder of each replay."""
        graph_class = sys.modules[_GRAPHS].CUDAGraph

        def told(name: str, original: Any) -> Any:
            @functools.wraps(original)
            def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
                if name == "capture_begin":
                    self.recorder.capture_begins()
                try:
                    result = original(graph, *args, **kwargs)
                except BaseException:
                    if name == "capture_begin":
                        self.recorder.capture_ends()
                    raise
                finally:
                    if name == "capture_end":
                        self.recorder.capture_ends()
                try:
                    if name == "replay":
                        self.recorder.replayed()
                    for listener in self.on_graph:
                        listener(name, graph)
                except Exception as error:
                    self.recorder.skip(f"CUDAGraph.{name}", error)
                return result

            return call

        for name in _CALLS_OF_GRAPHS:
            self.replace(graph_class, name, told(name, getattr(graph_class, name)))


def _family(base: type) -> list[type]:
    """A class and all that are derived from it."""
    family = [base]
    for owner in family:
        family += [sub for sub in owner.__subclasses__() if sub not in family]
    return family


def doctor() -> str:
    """Lines that say which engines are installed, and which of their methods are hooked."""
    from ..recorder import Recorder

    lines = []
    for name in ADAPTERS:
        adapter = importlib.import_module(f".{name}", __name__)
        recorder = Recorder("/dev/null")
        engine = next(iter(adapter.MODULES))
        if engine not in sys.modules and importlib.util.find_spec(engine.partition(".")[0]) is None:
            lines.append(f"{name}: not installed")
            continue
        for module, hook in adapter.MODULES.items():
            try:
                importlib.import_module(module)
                hooks = Hooks(recorder)
                hook(hooks)
                hooks.remove()
            except Exception as error:
                recorder.skip(module, error)
        lines += [f"{name}: hooked {where}" for where in recorder.hooked]
        lines += [f"{what}: skipped: {why}" for what, why in recorder.skipped.items()]
    return "\n".join(lines)
