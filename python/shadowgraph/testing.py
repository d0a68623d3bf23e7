"""A property test of a metadata builder without pytest: testing.check.

docs/builder.md begins with an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import _core, _draws
from .batch import Batch
from .judge import check as judged
from .report import Report, ShadowgraphError, refused
from .shadows import red_zones

if TYPE_CHECKING:
    from typing_extensions import Unpack

Arrays = Mapping[str, Any]
_OPTIONS = (judged.__kwdefaults__ or {}).keys()  # which are no arrays


class _Trial:
    """One history of a builder. The error is that of the builder itself, if it raised."""

    def __init__(self, builder: Callable[..., Any]):
        self.build: Callable[[Batch], Arrays] = builder() if isinstance(builder, type) else builder
        if not callable(self.build):
            raise TypeError(f"check: a {type(self.build).__name__} cannot be called; a builder is called with a batch (__call__)")
        self.steps: list[Batch] = []
        self.error: Exception | None = None

    def judge(self, handle: _core.BatchHandle) -> _core.ReportHandle | None:
        """What is found of the next step."""
        batch = Batch._of(handle)
        self.steps.append(batch)
        try:
            arrays = self.build(batch)
        except Exception as error:
            self.error = error
            what = f"{type(error).__name__}: {error}"
            return _core.report_new([("trace.exception", "builder", -1, -1, "metadata", what)])
        if not isinstance(arrays, Mapping):
            raise TypeError(f"check: the builder returns {arrays!r:.80}, expected arrays by role, as shadowgraph.check takes them")
        if not arrays.keys() - _OPTIONS:
            raise refused("skip.no_field", "builder", -1, "arrays by role, as shadowgraph.check takes them", f"one that returns {arrays}")
        return _core.report_add(red_zones(), judged(batch, **arrays)._handle)


def check(
    builder: Callable[[Batch], Arrays] | type,
    mode: _draws.Names = ("decode", "extend"),
    page_sizes: _draws.Sizes = (1, 2, 4),
    *,
    histories: int = 200,
    small_requests: int = 2,
    seed: int = 1,
    choices: str = "",
    **scheduler: Unpack[_draws.Scheduler],
) -> int:
    """Tries a builder on every small batch, then on histories of a scheduler; returns how many steps it judged.

    builder         a function that gets a Batch and returns arrays by role, as shadowgraph.check takes them (its
                    options, too); or a class, made anew for each history, whose instance is that function (__call__)
    mode            one or several, each of which must come up
    histories       how many are tried, each of `steps` steps at most (20)
    small_requests  every batch of up to so many requests is tried: of page size P a request has 0 to 2 P + 1 tokens,
                    and 1 or 2 new ones; 0: none
    choices         tries only what these make, as an error names them: "3.0.1"; else the environment's
                    SHADOWGRAPH_CHOICES, if there are any
    scheduler       see _draws.Scheduler

    Raises ShadowgraphError with the findings of the smallest history that breaks a law, and its steps; of an exception
    of the builder it is the cause (trace.exception). Writes around arrays of shadowgraph.shadowed are found, too
    (mem.red_zone).
    """
    __tracebackhide__ = True
    more = {"histories": histories, "small_requests": small_requests, "seed": seed, "choices": choices}
    options = _draws.options(mode, page_sizes, scheduler, **more)
    last, steps = _Trial(lambda batch: {}), 0

    def begin() -> Callable[[_core.BatchHandle], _core.ReportHandle | None]:
        nonlocal last, steps
        steps += len(last.steps)
        last = _Trial(builder)
        return last.judge

    report = Report(_core.property_check(options, begin))
    if report.ok:
        return steps + len(last.steps)
    # The last that ran is the smallest
    error = ShadowgraphError(report)
    error.args = ("\n".join([str(report), *(f"  step {i} {batch!r}" for i, batch in enumerate(last.steps))]),)
    raise error from last.error
