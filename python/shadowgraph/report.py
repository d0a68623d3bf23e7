"""Findings, reports and the error that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from . import _core


@dataclass(frozen=True)
class Finding:
    """One broken law."""

    id: str  # the law's stable name: "table.page_id"
    title: str  # the law in one sentence
    mend: str  # how to mend a violation
    field: str  # the argument: "page_table"
    index: str  # its element: "[2, 5]"
    expected: str
    got: str
    refs: tuple[str, ...]  # sources: "fa.I-28", "sglang#25045"
    text: str  # all of it in a line
    severity: str  # "error", "warning", "note"
    row: int | None
    col: int | None
    diagnosis: tuple[str, ...] = ()  # of wrong outputs: known mistakes that would give them, the likeliest first

    def __str__(self) -> str:
        refs = f"\n  refs {' '.join(self.refs)}" if self.refs else ""
        mistakes = "".join(f"\n  {'or ' * (i > 0)}as if {mistake}" for i, mistake in enumerate(self.diagnosis[:3]))
        return f"{self.text}\n  {self.title}{mistakes}{refs}"


class Report:
    """The findings of a judge; `ok` if there are none. not_judged: why a recorder did not judge at all, else empty."""

    __slots__ = ("findings", "not_judged", "_handle")
    findings: list[Finding]

    def __init__(self, handle: _core.ReportHandle | None, not_judged: str = ""):
        self._handle = handle
        self.not_judged = not_judged
        self.findings = [
            Finding(id, title, mend, field, index, expected, got, tuple(refs.split()), text, severity, row, col, tuple(as_if.splitlines()))
            for id, title, mend, field, index, expected, got, refs, text, severity, row, col, as_if in _core.report_findings(handle)
        ]

    @property
    def ok(self) -> bool:
        return not self.findings

    def to(self, format: str) -> str:
        """The report as the program writes it: text, json, junit, sarif, github or html."""
        return _core.report_text(self._handle, format)

    def raise_(self) -> None:
        """Raises ShadowgraphError if there are findings."""
        __tracebackhide__ = True
        if self.findings:
            raise ShadowgraphError(self)

    def __str__(self) -> str:
        unsaid = f"not judged: {self.not_judged}" if self.not_judged else "clean"
        return "\n".join(map(str, self.findings)) or unsaid

    def __repr__(self) -> str:
        return f"<Report: {len(self.findings)} findings>" if self.findings else f"<Report: {self}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Report stays in its process: send report.to('json') or report.findings")


class ShadowgraphError(AssertionError, RuntimeError):
    """A call refused its input, or a judge found something; `report` and `findings` say what.

    Input is what arrays, lengths and other numbers say, and which role they have. An argument that does not exist, a word
    that is no choice, or a value of another kind is a TypeError or ValueError, as everywhere in Python.
    """

    def __init__(self, report: Report | str):
        super().__init__(str(report))
        self.report = None if isinstance(report, str) else report

    @property
    def findings(self) -> list[Finding]:
        return self.report.findings if self.report else []

    def __reduce__(self) -> tuple[type[ShadowgraphError], tuple[str]]:
        return ShadowgraphError, (str(self),)


def refused(law: str, field: str, row: int, expected: str, got: object) -> ShadowgraphError:
    """The error of one finding."""
    return refusal(_core.report_new([(law, field, row, -1, expected, str(got))]))


def refusal(handle: _core.ReportHandle | None) -> ShadowgraphError:
    """The error of a refused call, for the extension."""
    return ShadowgraphError(Report(handle))
