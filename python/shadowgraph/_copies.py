"""Arrays of a device, copied in the order of its stream, for a thread that reads them when they have arrived."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

_SLOTS = 8  # copies under way at once; a step that finds all taken is passed over
_ALIGNED = 64  # bytes

Finish = Callable[[Mapping[str, Any]], Any]


def on_device(value: Any) -> bool:
    """Is it a tensor that the host cannot read?"""
    return not getattr(value, "is_cpu", True)


def _pinned(size: int) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=True, device="cpu")  # whatever an engine's default is


class Copies:
    """A ring of pinned memory, and the thread that waits for events."""

    def __init__(self, failed: Callable[[str, object], None]) -> None:
        """failed(what, why): of a copy that did not arrive."""
        self._failed = failed
        self._begin()

    def _begin(self) -> None:
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(_SLOTS):
            self._free.put(None)
        self._taken: queue.Queue[Any] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def take(self, values: Mapping[str, Any], finish: Finish) -> bool:
        """Copies tensors of a device behind all that their stream has to do, without waiting; finish(values of the host) is
        called by a thread, and keeps nothing of them. False: too many copies are under way, and nothing is copied."""
        import torch

        if self._pid != os.getpid():  # a forked process has none of the thread
            self._begin()
        try:
            memory = self._free.get_nowait()
        except queue.Empty:
            return False
        sizes = {name: value.numel() * value.element_size() for name, value in values.items() if on_device(value)}
        room = sum(-(-size // _ALIGNED) * _ALIGNED for size in sizes.values())
        if memory is None or len(memory) < room:
            memory = _pinned(room)
        host, start = dict(values), 0
        devices: dict[Any, None] = {}
        for name, size in sizes.items():
            tensor = values[name].detach()
            host[name] = memory[start : start + size].view(tensor.dtype).view(tensor.shape)
            host[name].copy_(tensor, non_blocking=True)
            devices[tensor.device] = None
            start += -(-size // _ALIGNED) * _ALIGNED
        events = []
        for device in devices:
            event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            events.append(event)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shadowgraph copies", daemon=True)
            self._thread.start()
        self._taken.put((events, memory, host, finish))
        return True

    def _run(self) -> None:
        while (taken := self._taken.get()) is not None:
            events, memory, host, finish = taken
            try:
                while events:
                    events.pop().synchronize()
                finish(host)
            except Exception as error:  # of the device: others may still arrive
                self._failed("a copy", error)
            finally:
                self._free.put(memory)
                del taken, events, memory, host, finish  # here: what frees them asks the device, too
                self._taken.task_done()

    def wait(self) -> None:
        """Returns when all that was taken is finished."""
        if self._pid == os.getpid():
            self._taken.join()

    def close(self) -> None:
        """Waits, and ends the thread; a later take() begins another."""
        self.wait()
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            self._taken.put(None)
            thread.join()
            self._taken.task_done()
