"""Hooks in engines: an adapter tests which methods an engine has, and wraps those.

An adapter is a module with ENGINE, the module that must be imported, and install(hooks): whatever does not fit is
recorder.skipped[name], and never an exception in the engine.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..recorder import Recorder

ADAPTERS = ("sglang", "vllm")


class Hooks:
    """Wrapped methods, which remove() gives back."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._undo: list[tuple[type, str, Any]] = []
        self._active: set[tuple[int, int]] = set()  # threads, and instances whose methods they are in

    def install(self) -> None:
        for name in ADAPTERS:
            adapter = importlib.import_module(f".{name}", __name__)
            if adapter.ENGINE not in sys.modules:
                self.recorder.skip(name, f"{adapter.ENGINE} is not imported")
                continue
            try:
                adapter.install(self)
            except Exception as error:
                self.recorder.skip(name, error)

    def remove(self) -> None:
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    def wrap(self, base: type, name: str, after: Callable[..., None]) -> None:
        """Calls after(instance, result, arguments...) when the outermost wrapped call on an instance has returned: of
        base and of each subclass that has a method of its own. A backend made of others is seen as those."""
        for owner in _family(base):
            original = owner.__dict__.get(name)
            if not callable(original):
                continue
            setattr(owner, name, self._wrapped(original, name, after))
            self._undo.append((owner, name, original))
            self.recorder.hooked[f"{owner.__module__}.{owner.__qualname__}.{name}"] = name

    def _wrapped(self, original: Any, name: str, after: Callable[..., None]) -> Any:
        @functools.wraps(original)
        def method(instance: Any, *args: Any, **kwargs: Any) -> Any:
            call = threading.get_ident(), id(instance)
            if call in self._active:
                return original(instance, *args, **kwargs)
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
        try:
            if adapter.ENGINE not in sys.modules and importlib.util.find_spec(adapter.ENGINE.partition(".")[0]) is None:
                lines.append(f"{name}: not installed")
                continue
            importlib.import_module(adapter.ENGINE)
            hooks = Hooks(recorder)
            adapter.install(hooks)
            hooks.remove()
        except Exception as error:
            recorder.skip(name, error)
        lines += [f"{name}: hooked {where}" for where in recorder.hooked]
        lines += [f"{what}: skipped: {why}" for what, why in recorder.skipped.items()]
    return "\n".join(lines)
