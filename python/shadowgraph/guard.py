"""A guard of graphs: a replay reads the buffers of its capture, whatever the engine passes.

docs/engine.md begins with an example.
"""

from __future__ import annotations

import enum
import fnmatch
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from . import _core
from .batch import Batch
from .report import Finding, Report
from .roles import KNOWN, ROLES, SCALARS

_NO_METADATA = ("builtins", "torch", "numpy", "threading", "weakref", "flashinfer", "shadowgraph")  # modules of such objects
_DEEPEST = 8  # objects in objects: further down lies the engine
_LARGEST_COPY = 1 << 24  # elements: contents of a larger buffer are not compared with the last step's

_LEAF, _MAPPING, _SEQUENCE, _TENSOR, _ARRAY, _OBJECT = range(6)
_Path: TypeAlias = tuple[Any, ...]
_Found: TypeAlias = tuple[str, str, int, int, str, str]
_kinds: dict[type, int] = {}
_slots: dict[type, tuple[str, ...]] = {}


def _kind(of: type) -> int:
    """How a value of a type is looked into, remembered."""
    if issubclass(of, Mapping):
        kind = _MAPPING
    elif issubclass(of, (list, tuple)):
        kind = _SEQUENCE
    elif hasattr(of, "data_ptr") and hasattr(of, "stride"):
        kind = _TENSOR
    elif hasattr(of, "__array_interface__") and hasattr(of, "strides"):
        kind = _ARRAY
    elif issubclass(of, (enum.Enum, type, types.ModuleType, types.FunctionType, types.MethodType)):
        kind = _LEAF
    elif of.__module__.partition(".")[0] in _NO_METADATA:
        kind = _LEAF
    else:
        declared = [base.__dict__.get("__slots__", ()) for base in of.__mro__]
        names = [name for slots in declared for name in ([slots] if isinstance(slots, str) else slots)]
        _slots[of] = tuple(name for name in names if name not in ("__dict__", "__weakref__"))
        kind = _OBJECT
    _kinds[of] = kind
    return kind


def _members(value: Any, kind: int) -> list[tuple[Any, Any]]:
    if kind == _MAPPING:
        return list(value.items())
    if kind == _SEQUENCE:
        return list(enumerate(value))
    named = list(getattr(value, "__dict__", {}).items())
    return named + [(name, getattr(value, name)) for name in _slots[type(value)] if hasattr(value, name)]


def _paths(value: Any, path: _Path = (), within: tuple[int, ...] = ()) -> Iterator[tuple[_Path, int, Any]]:
    """Every tensor and number with its path: ("layers", 0, "page_table"). A shared object has many."""
    of = type(value)
    kind = _kinds[of] if of in _kinds else _kind(of)
    if kind in (_LEAF, _TENSOR, _ARRAY):
        yield path, kind, value
    elif id(value) not in within and len(within) < _DEEPEST:
        for name, member in _members(value, kind):
            yield from _paths(member, (*path, name), (*within, id(value)))


def _text(path: _Path) -> str:
    return ".".join(map(str, path))


def _place(value: Any, kind: int) -> tuple[Any, ...]:
    """Address, shape, strides and dtype."""
    if kind == _TENSOR:
        return value.data_ptr(), value.shape, value.stride(), value.dtype
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype


def _rank(value: Any, kind: int) -> int:
    """Graphs read devices: host arrays count only where nothing lies on one, NumPy's where there are no tensors."""
    return 0 if kind == _ARRAY else 1 if value.is_cpu else 2


def _places(root: Any, level: int) -> list[tuple[Any, ...]]:
    """_place of each distinct tensor, in an order that the nest gives. The quick way: most replays end here."""
    kinds, seen, values = _kinds, {id(root)}, [root]
    out: list[tuple[Any, ...]] = []
    for _ in range(_DEEPEST + 1):
        inner = []
        for value in values:
            of = type(value)
            kind = kinds[of] if of in kinds else _kind(of)
            if kind == _LEAF:
                continue
            if kind == _TENSOR:
                if level < 2 or not value.is_cpu:
                    out.append((value.data_ptr(), value.shape, value.stride(), value.dtype))
                continue
            if kind == _ARRAY:
                if level == 0:
                    out.append(_place(value, kind))
                continue
            if kind == _MAPPING:
                members: Any = value.values()
            elif kind == _SEQUENCE:
                members = value
            else:
                members = getattr(value, "__dict__", {}).values()
                if _slots[of]:
                    members = [*members, *(getattr(value, name) for name in _slots[of] if hasattr(value, name))]
            for member in members:
                if (key := id(member)) not in seen:
                    seen.add(key)
                    inner.append(member)
        values = inner
    return out


def _expired(value: Any, kind: int) -> Callable[[], bool]:
    """Tells whether the memory behind a tensor was freed."""
    if kind == _ARRAY:
        while getattr(value.base, "__array_interface__", None) and not isinstance(value.base, memoryview):
            value = value.base
        alive = weakref.ref(value)
        return lambda: alive() is None
    from torch.multiprocessing.reductions import StorageWeakRef

    storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()
    return StorageWeakRef(storage).expired  # type: ignore[no-untyped-call]


def _integers(value: Any) -> bool:
    """Metadata are integers and truths; floats are what is computed."""
    return "float" not in str(value.dtype) and "complex" not in str(value.dtype)


def _copy(value: Any, kind: int) -> Any:
    """The contents, on the host. None: too large, or of no use."""
    if kind == _TENSOR:
        return value.detach().cpu().clone() if value.numel() <= _LARGEST_COPY else None
    return value.copy() if value.size <= _LARGEST_COPY else None


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None or type(a) is not type(b) or a.shape != b.shape:
        return False
    return bool((a == b).all())


def _at(root: Any, path: _Path) -> Any:
    """The value of a path; None: there is none."""
    for part in path:
        of = type(root)
        kind = _kinds[of] if of in _kinds else _kind(of)
        if kind == _OBJECT:
            root = getattr(root, part, None)
        elif kind == _MAPPING:
            root = root.get(part)
        else:
            root = root[part] if kind == _SEQUENCE and part < len(root) else None
    return root


@dataclass
class _Capture:
    level: int
    places: list[tuple[Any, ...]]  # as _places has them
    tensors: dict[_Path, tuple[Any, ...]]  # _place; of one tensor every path
    expired: dict[_Path, Callable[[], bool]]  # of each tensor its first path
    scalars: dict[_Path, Any]  # likewise of each object that has one
    judged: bool = False  # some tensor has a role
    contents: dict[_Path, Any] = field(default_factory=dict)  # at the capture, then what the last replay read
    read: bool = False  # by a replay


class Guard:
    """Compares what a graph captured with what the engine holds when it replays it."""

    def __init__(self, *, scalars: Iterable[str] = (), roles: Mapping[str, str] = {}):
        """scalars: numbers of the host that kernels got by value, by name ("max_seq_len_k") or by path, with * for any
        part ("layers.*.grid"). roles: what names of metadata mean, {"my_lens": "kv_lens"}, beside shadowgraph.roles.ROLES.

        skipped: {name: why} of what is not judged: integers whose name has no role, lists, scalars that no capture has. Raises
        ValueError for a role that shadowgraph.check does not have."""
        wrong = sorted({role for role in roles.values() if role not in KNOWN})
        if wrong:
            raise ValueError(f"Guard: roles: {', '.join(wrong)}: expected one of {', '.join(sorted(KNOWN))}")
        self._scalars = (scalars,) if isinstance(scalars, str) else tuple(scalars)
        self._roles = ROLES | dict(roles)
        self._captures: dict[Hashable, _Capture] = {}
        self.skipped: dict[str, str] = {name: "no capture has such a number" for name in self._scalars}

    def captured(self, key: Hashable, metadata: Any) -> None:
        """Remembers the metadata that a graph was captured with: any nest of dataclasses, dicts, lists and objects.
        Keeps nothing of it alive. key: of the graph, such as its batch size."""
        leaves = list(_paths(metadata))
        tensors = [(path, kind, value) for path, kind, value in leaves if kind != _LEAF]
        level = max((_rank(value, kind) for _, kind, value in tensors), default=0)
        tensors = [leaf for leaf in tensors if _rank(leaf[2], leaf[1]) >= level]
        capture = _Capture(level, _places(metadata, level), {}, {}, {})
        seen: set[int] = set()
        for path, kind, value in tensors:
            capture.tensors[path] = _place(value, kind)
            if id(value) not in seen:
                seen.add(id(value))
                capture.expired[path] = _expired(value, kind)
                if self._role(path):
                    capture.judged = True
                    capture.contents[path] = _copy(value, kind)
                elif _integers(value):
                    name = str(path[-1]) if path else "metadata"
                    self.skipped.setdefault(name, f'its contents: no role of that name; Guard(roles={{"{name}": ...}}) gives one')
        for path, kind, value in leaves:
            known = [part for part in path if self._role((part,))]
            if kind == _LEAF and isinstance(value, int) and known:
                self.skipped.setdefault(str(known[0]), "its contents: no tensor; a graph reads none of a list's numbers")
        owners: set[tuple[int, Any]] = set()
        for path, kind, value in leaves if self._scalars else ():
            met = [p for p in self._scalars if p == _text(path[-1:]) or fnmatch.fnmatchcase(_text(path), p)]
            if kind == _LEAF and path and met:
                for pattern in met:
                    self.skipped.pop(pattern, None)
                owner = id(_at(metadata, path[:-1])), path[-1]
                if owner not in owners:
                    owners.add(owner)
                    capture.scalars[path] = value
        self._captures[key] = capture

    def replaying(self, key: Hashable, metadata: Any, batch: Batch | None = None, **options: Any) -> Report:
        """Finds memory that a replay with this metadata would read and that is not its own: graph.address_changed, mem.use_after_free,
        graph.topology_changed (shape, strides, dtype), graph.baked_scalar.

        batch: also judges the contents of the captured buffers, after they were filled, and the captured scalars; rows
        behind the batch's are padding. options: of shadowgraph.check (pad_kv_lens, engine, window_left). Waits for the
        device then, and warns where no tensor of the metadata has a role. Raises KeyError for a graph that was not captured."""
        if batch is not None and not isinstance(batch, Batch):
            raise TypeError(f"Guard: batch is a {type(batch)}, expected a shadowgraph.Batch")
        if key not in self._captures:
            raise KeyError(f"Guard: graph {key!r} was not captured")
        capture = self._captures[key]
        found: list[_Found] = []
        for path, expired in capture.expired.items():
            if expired():
                address = hex(capture.tensors[path][0])
                found.append(("mem.use_after_free", _text(path), -1, -1, f"the storage at {address}, which the graph reads", "freed"))
        for path, was in capture.scalars.items():
            value = _at(metadata, path)
            if value != was:
                found.append(("graph.baked_scalar", _text(path), -1, -1, f"{was!r}, as captured", repr(value)))
        if _places(metadata, capture.level) != capture.places:
            found += self._moved(capture, metadata)
        handle = _core.report_new(found) if found else None
        if batch is not None:
            handle = self._contents(capture, metadata, batch, options, found)
        return Report(handle)

    def _role(self, path: _Path) -> str | None:
        role = self._roles.get(path[-1]) if path else None
        return None if role in SCALARS else role

    def _moved(self, capture: _Capture, metadata: Any) -> list[_Found]:
        """A finding for each tensor that is another one, by its first path."""
        live = {path: _place(value, kind) for path, kind, value in _paths(metadata) if kind != _LEAF}
        found: dict[Any, _Found] = {}
        for path, was in capture.tensors.items():
            now = live.get(path)
            if now is None:
                found.setdefault((was, None), ("graph.address_changed", _text(path), -1, -1, f"the tensor at {was[0]:#x}", "no tensor"))
            elif now[0] != was[0] and now[3] == was[3]:
                words = [f"the tensor at {was[0]:#x}", f"one at {now[0]:#x}"]
                found.setdefault((was[0], now[0]), ("graph.address_changed", _text(path), -1, -1, words[0], words[1]))
            if now is not None and now[1:] != was[1:]:
                words = [f"shape {list(p[1])}, strides {list(p[2])}, {p[3]}" for p in (was, now)]
                found.setdefault((was, now), ("graph.topology_changed", _text(path), -1, -1, words[0], words[1]))
        return list(found.values())

    def _contents(
        self, capture: _Capture, metadata: Any, batch: Batch, options: Mapping[str, Any], found: list[Any]
    ) -> _core.ReportHandle | None:
        """The report of `found` and of what the judge says of the captured buffers."""
        values, seen = [], set()
        for path, kind, value in _paths(metadata):
            if kind == _LEAF or id(value) in seen or path not in capture.tensors:
                continue
            seen.add(id(value))
            role = self._role(path)
            if role and _place(value, kind) == capture.tensors[path]:
                values.append((path, role, _copy(value, kind)))
        given = [(role, contents, 0, _text(path)) for path, role, contents in values if contents is not None]
        given += [(self._roles[path[-1]], n, 0, _text(path)) for path, n in capture.scalars.items() if self._roles.get(path[-1]) in SCALARS]
        if not capture.judged:
            names = ", ".join(self.skipped) or "it has none"
            warnings.warn(f"Guard: no tensor of this metadata has a role: {names}; guard.skipped says why", stacklevel=3)
        judged = _core.check(batch._handle, given, **options)
        first: dict[str, Finding] = {}
        for finding in Report(judged).findings:
            first.setdefault(finding.field, finding)
        stale: list[_Found] = []
        when = "in the replay before" if capture.read else "at the capture"
        capture.read = True
        for path, _, contents in values:
            f = first.get(_text(path))
            if f and f.row is not None and _same(contents, capture.contents.get(path)):  # without a row its size is wrong
                col = -1 if f.col is None else f.col
                stale.append(("mem.stale_input", f.field, f.row, col, f"{f.expected}, of this step", f"{f.got}, as {when}"))
            capture.contents[path] = contents
        handle = _core.report_new(found + stale) if found or stale else None
        if judged is None:
            return handle
        return judged if handle is None else _core.report_add(handle, judged)
