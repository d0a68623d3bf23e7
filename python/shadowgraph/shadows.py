"""Arrays between red zones: a write outside them is found, and a read outside them gives what no engine holds."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from . import _core

_ZONE = 64  # bytes on either side
_LOWEST = 0x80  # integers of such bytes are near the lowest one
_NAN = 0xFF  # and floats are NaN


class _Shadow:
    """The memory of one array."""

    def __init__(self, memory: Any, name: str, item: int, canary: int):
        self.memory, self.name, self.item, self.canary = weakref.ref(memory), name, item, canary

    def broken(self) -> list[tuple[str, str, int, int, str, str]]:
        """A finding for the first element that was written on each side; the zones are whole again behind it."""
        memory = self.memory()
        if memory is None:
            return []
        inside = len(memory) - 2 * _ZONE
        found = []
        for begin in (0, _ZONE + inside):
            zone = memory[begin : begin + _ZONE]
            written = (zone != self.canary).nonzero()[0]
            if len(written):
                near = written[-1] if begin == 0 else written[0]  # the array is behind this zone, or before it
                at = (begin + int(near) - _ZONE) // self.item
                expected = f"no write outside its {inside // self.item} elements"
                found.append(("mem.red_zone", self.name, -1, -1, expected, f"a write of element {at}"))
                zone[:] = self.canary
        return found


_shadows: list[_Shadow] = []


def shadowed(shape: int | tuple[int, ...], dtype: Any = "int32", name: str = "shadowed") -> Any:
    """An array of NumPy, or of torch if dtype is torch's, between red zones. It holds what no engine means until it is
    written: integers near the lowest one, NaN.

    testing.check, opcheck and metadata_checker find a write outside it (mem.red_zone, by its name)."""
    import numpy

    torch: Any = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(dtype, torch.dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    item = torch.empty((), dtype=dtype).element_size() if of_torch else numpy.dtype(dtype).itemsize
    floats = dtype.is_floating_point if of_torch else numpy.dtype(dtype).kind == "f"
    canary = _NAN if floats else _LOWEST
    memory = numpy.full(2 * _ZONE + int(numpy.prod(shape, dtype=int)) * item, canary, numpy.uint8)
    inside = memory[_ZONE : len(memory) - _ZONE]
    _shadows[:] = [s for s in _shadows if s.memory() is not None] + [_Shadow(memory, name, item, canary)]
    if of_torch:
        return torch.from_numpy(inside).view(dtype).view(shape)
    return inside.view(dtype).reshape(shape)


def red_zones() -> _core.ReportHandle | None:
    """What was written around the arrays that live."""
    found = [finding for shadow in _shadows for finding in shadow.broken()]
    return _core.report_new(found) if found else None
