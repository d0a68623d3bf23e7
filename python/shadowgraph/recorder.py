"""Records the steps of a live engine, and judges them in its process.

docs/engine.md begins with an example.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, Literal

from . import _core
from ._copies import Copies, Finish, on_device
from .adapters.flashinfer import Plans
from .batch import Batch
from .judge import given
from .report import Report, ShadowgraphError

Phase = Literal["eager", "capture", "replay"]

# Roles of shadowgraph.check that `shadowgraph list fields laws` calls otherwise; of slots where the unit is 1.
_FIELDS = {"slots": "out_cache_loc", "last_page_len": "kv_last_page_len"}
_SLOT_FIELDS = {"page_table": "slot_table", "kv_indices": "slot_indices"}
_MOST_REPORTS = 1000  # steps with findings that are kept; all are counted and written
_EVERY_ON_DEVICE = 16


def _capturing() -> bool:
    """Whether a graph is being captured: then nothing may wait for the device."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


def _config(max_context_len: int, window_left: int, pad_kv_lens: tuple[int, int], engine: str | None) -> dict[str, int | str]:
    """Options of shadowgraph.check as a line of traces says them."""
    config: dict[str, int | str] = {"padding_len": pad_kv_lens[0], "max_padding_len": pad_kv_lens[1]}
    if max_context_len:
        config["max_context_len"] = max_context_len
    if window_left != -1:
        config["window"] = window_left
    return config if engine is None else config | {"engine": engine}


def _in_capture() -> Report:
    return Report(None, not_judged="a CUDA graph is being captured: its arrays cannot be read now")


class Recorder:
    """Writes steps to a file, judges each, and never raises in the engine.

    Arrays of a device are copied in the order of its stream, and judged by a thread when they have arrived; wait() returns
    when all are.

    steps    that were recorded and judged
    failed   of them, and of graphs, those with findings
    skipped  {name: why} of what could not be recorded or hooked
    refused  {name: report} of the steps among them
    hooked   {name: engine's method} of what is
    """

    def __init__(self, path: str | os.PathLike[str], every: int | None = None):
        """path: of the file, of JSON lines (docs/traces.md). %p is the process's id; a forked process has a file of its
        own in any case. every: only every so many steps are recorded; None is all, but of a device every 16th, if this is
        no test of pytest."""
        if every is not None and every < 1:
            raise ValueError(f"record: every is {every}, expected at least 1")
        self._path = os.fspath(path)
        self._every = every
        self._pid = self._owner = os.getpid()
        self._file: IO[str] | None = None
        self._lock = threading.Lock()
        self._seen = 0
        self._copies = Copies(self.skip)
        self.plans = Plans()
        self._pending = threading.local()
        self._captures = 0  # underway
        self._no_capture = threading.Lock()
        self._reports: list[tuple[str, _core.ReportHandle | None]] = []
        self.steps = self.failed = 0
        self.skipped: dict[str, str] = {}
        self.refused: dict[str, Report] = {}
        self.hooked: dict[str, str] = {}
        self._hooks: Any = None

    def __enter__(self) -> Recorder:
        """Hooks every engine that is imported."""
        from .adapters import Hooks

        self._hooks = Hooks(self)
        self._hooks.install()
        return self

    def __exit__(self, *_: object) -> None:
        if self._hooks is not None:
            self._hooks.remove()
        self._copies.close()
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def step(
        self,
        batch: Batch,
        phase: Phase = "eager",
        *,
        id: object = None,
        units: Mapping[str, int] = {},
        names: Mapping[str, str] = {},
        max_context_len: int = 0,
        window_left: int = -1,
        pad_kv_lens: tuple[int, int] = (0, 1),
        engine: str | None = None,
        config: Mapping[str, int | str] = {},
        **arrays: Any,
    ) -> Report:
        """Records and judges a step: arrays by role and options as shadowgraph.check has them.

        phase   "eager", or of a graph "capture" or "replay". Rows behind the batch's are padding
        id      its name in findings and in the file, as str() has it; else step0, step1 ...
        config  other keys of docs/traces.md, such as padding_page

        Never raises. Returns what was found. A step that could not be recorded is a finding, too (and in `skipped`); of one
        that is not judged now, since it is not due, a graph is being captured, or its arrays are on a device, the report's
        `not_judged` says so.
        """
        if not self.is_due(*arrays.values()):
            return Report(None, not_judged=f"only one of every {self._every_of(arrays.values())} steps is recorded")
        options = (max_context_len, window_left, pad_kv_lens, engine)
        return self.record_due(batch, phase, names, arrays, id=id, units=units, options=options, config=config)

    def record_due(
        self,
        batch: Batch,
        phase: Phase,
        names: Mapping[str, str],
        arrays: Mapping[str, Any],
        *,
        id: object = None,
        units: Mapping[str, int] = {},
        options: tuple[int, int, tuple[int, int], str | None] = (0, -1, (0, 1), None),
        config: Mapping[str, int | str] = {},
    ) -> Report:
        """The same of a step that is_due() has counted, for adapters. options: those of step, in its order."""
        name = str(id) if id not in (None, "") else self.last_name()

        def finish(host: Mapping[str, Any]) -> Report:
            return self._record(batch, phase, name, units, names, _config(*options) | dict(config), host)

        return self.copied(name, arrays, finish)

    def copied(self, name: str, values: Mapping[str, Any], finish: Finish) -> Report:
        """finish(values on the host), and what it returns; of values on a device a thread calls it, and in a capture nothing
        may be read: `not_judged` says so. name: of the step."""
        try:
            if not any(map(on_device, values.values())):
                report: Report = _in_capture() if _capturing() else finish(values)
                return report
            with self._no_capture:
                if self._captures or _capturing():
                    return _in_capture()
                if self._copies.take(values, lambda host: self._finish(name, host, finish)):
                    return Report(None, not_judged="its arrays are on a device: a thread judges them, `report` has it")
            self.skip(name, full := "too many steps are waiting for their copies")
            return Report(None, not_judged=full)
        except Exception as error:
            return self._not_recorded(name, error)

    def _finish(self, name: str, host: Mapping[str, Any], finish: Finish) -> None:
        try:
            finish(host)
        except Exception as error:
            self._not_recorded(name, error)

    def _not_recorded(self, name: str, error: Exception) -> Report:
        self.skip(name, error)
        report = error.report if isinstance(error, ShadowgraphError) else None
        why = f"{type(error).__name__}: {error}"
        report = report or Report(_core.report_new([("skip.bad_input", name, -1, -1, "", f"not recorded: {why}")]))
        if len(self.refused) < _MOST_REPORTS:
            self.refused.setdefault(name, report)
        return report

    def capture_begins(self) -> None:
        """Waits for copies underway: a thread that asks for an event breaks a capture, of whichever thread."""
        with self._no_capture:
            self._captures += 1
        self.wait()

    def capture_ends(self) -> None:
        with self._no_capture:
            self._captures -= 1

    def after_replay(self, copy: Callable[[], Any]) -> None:
        """Calls copy() behind this thread's next replay of a graph: then buffers hold what the graph read."""
        if getattr(self._pending, "copy", None) is not None:
            self.skip("replay", "its buffers were filled, and no graph was replayed")
        self._pending.copy = copy

    def replayed(self) -> None:
        copy, self._pending.copy = getattr(self._pending, "copy", None), None
        if copy is not None:
            copy()

    def wait(self) -> None:
        """Returns when every step that was copied is judged."""
        self._copies.wait()

    def last_name(self) -> str:
        """The name of the step that is_due() counted last."""
        return f"step{self._seen - 1}"

    def is_due(self, *values: Any) -> bool:
        """Counts a step, and tells whether it is one of every so many. values: some of its arrays."""
        with self._lock:
            self._seen += 1
            return (self._seen - 1) % self._every_of(values) == 0

    def _every_of(self, values: Iterable[Any]) -> int:
        if self._every is not None:
            return self._every
        return _EVERY_ON_DEVICE if any(map(on_device, values)) and "PYTEST_CURRENT_TEST" not in os.environ else 1

    def planned(self, wrapper: Any) -> dict[str, Any]:
        """Arrays of the last plan of a FlashInfer wrapper by role, for step(batch, **planned(wrapper)); {} without one,
        and `skipped` says so."""
        try:
            roles = self.plans.roles(wrapper)
        except TypeError:  # an object that no dictionary of wrappers takes
            roles = {}
        if not roles:
            self.skip(f"planned({type(wrapper).__name__})", "no plan of it was seen: plan a FlashInfer wrapper within record")
        return roles

    def found(self, name: str, report: Report) -> None:
        """Keeps the findings of a step, or of a graph."""
        if not report.ok:
            with self._lock:
                self.failed += 1
                if len(self._reports) < _MOST_REPORTS:
                    self._reports.append((name, report._handle))

    def skip(self, name: str, why: object) -> None:
        """Notes what is not recorded; the first reason of a name stays."""
        if len(self.skipped) < _MOST_REPORTS:
            self.skipped.setdefault(name, str(why).partition("\n")[0] or type(why).__name__)

    def _record(
        self,
        batch: Batch,
        phase: Phase,
        name: str,
        units: Mapping[str, int],
        names: Mapping[str, str],
        config: Mapping[str, int | str],
        arrays: Mapping[str, Any],
    ) -> Report:
        arrays = given(arrays, units=units, names=names)
        step = _core.step_new("laws", batch.mode, phase)
        _core.step_id(step, name)
        _core.step_batch(step, batch._handle)
        for key, value in config.items():
            _core.step_config(step, key, value)
        for role, array in arrays.items():
            law_name = _SLOT_FIELDS.get(role, role) if units.get(role) == 1 else _FIELDS.get(role, role)
            field = names.get(role, role)
            _core.step_role(step, field, law_name)
            _core.step_field(step, field, array)
        return self._judged(name, step)

    def record_line(
        self,
        backend: str,
        mode: str,
        phase: Phase,
        config: Mapping[str, int | str],
        inputs: Mapping[str, Any],
        fields: Mapping[str, Any],
        name: str,
    ) -> Report:
        """Records and judges a step of a backend that has a twin, by the keys and fields of docs/traces.md, on the host. For
        adapters, within copied()."""
        step = _core.step_new(backend, mode, phase)
        _core.step_id(step, name)
        for key, number in config.items():
            _core.step_config(step, key, number)
        for key, value in inputs.items():
            _core.step_input(step, key, value)
        for key, value in fields.items():
            _core.step_field(step, key, value)
        return self._judged(name, step)

    def _judged(self, name: str, step: _core.StepHandle) -> Report:
        """What is refused is not written."""
        handle = _core.step_judge(step)
        report = Report(handle)
        self._write(_core.step_line(step))
        with self._lock:
            self.steps += 1
        self.found(name, report)
        return report

    def _write(self, line: str) -> None:
        with self._lock:
            if self._pid != os.getpid():  # forked: the other process's file is not ours
                self._pid, self._file = os.getpid(), None
            if self._file is None:
                path = self._path.replace("%p", str(self._pid))
                if "%p" not in self._path and self._pid != self._owner:
                    path += f".{self._pid}"
                self._file = open(path, "w", encoding="utf-8")
            self._file.write(line + "\n")
            self._file.flush()

    @property
    def report(self) -> Report:
        """The findings of all steps, each under its step's name."""
        self.wait()
        handle = None
        for name, more in self._reports:
            handle = _core.report_add(handle, more, name)
        return Report(handle)

    def summary(self) -> str:
        """How many steps, how many with findings, and what was skipped, in lines."""
        self.wait()
        head = f"{self.steps} steps recorded and judged, {self.failed} with findings"
        return "\n".join([head, *(f"not recorded: {name}: {why}" for name, why in self.skipped.items())])


def record(path: str | os.PathLike[str], every: int | None = None) -> Recorder:
    """with shadowgraph.record("steps.jsonl") as rec: records every engine that is imported, and rec.step(...)."""
    return Recorder(path, every)
