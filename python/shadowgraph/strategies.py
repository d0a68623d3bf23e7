"""Hypothesis draws batches and histories: the generator is the engine's own (`shadowgraph fuzz`), the shrinker
Hypothesis's."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from hypothesis import reject
from hypothesis import strategies as st

from . import _core, _draws
from .batch import Batch

if TYPE_CHECKING:
    from typing_extensions import Unpack


@functools.lru_cache(maxsize=None)
def _below(bound: int) -> st.SearchStrategy[int]:
    return st.integers(0, bound - 1)


_MOST_HISTORIES = 16  # one in six that are drawn has a decode; Hypothesis wants most examples to be taken


def _steps(draw: Any, mode: Any, page_sizes: Any, scheduler: _draws.Scheduler) -> list[Batch]:
    options = _draws.options(mode, page_sizes, scheduler)
    given = _draws.given_choices()
    for _ in range(_MOST_HISTORIES if given is None else 1):
        steps = _draws.history(options, given or (lambda bound: int(draw(_below(bound))) if bound > 1 else 0))
        if steps:
            return steps
    if given is not None:
        raise ValueError(f"SHADOWGRAPH_CHOICES is {os.environ['SHADOWGRAPH_CHOICES']!r}: no step of the modes that this test draws")
    reject()  # the choices lead to no step of these modes


@st.composite
def _history(draw: Any, *arguments: Any) -> list[Batch]:
    return _steps(draw, *arguments)


@st.composite
def _batch(draw: Any, *arguments: Any) -> Batch:
    return _steps(draw, *arguments)[-1]


def _checked(mode: Any, page_sizes: Any, scheduler: Any) -> tuple[Any, Any, _draws.Scheduler]:
    """Wrong options are refused here, not while drawing."""
    _core.history_draw(_draws.options(mode, page_sizes, scheduler), lambda bound: 0)
    return mode, page_sizes, scheduler


def histories(
    mode: _draws.Names | None = None,
    page_sizes: _draws.Sizes | None = None,
    **scheduler: Unpack[_draws.Scheduler],
) -> st.SearchStrategy[list[Batch]]:
    """A scheduler's legal steps, one after the other: requests join, grow, finish and are retracted, and those that
    come take their slots. For builders whose buffers live from step to step. The simplest is one step of one request
    with one token.

    mode        one or several: "decode", "extend", "target_verify", ...; steps of other modes are played, and left out
    page_sizes  one or several
    Both are what the test's marker says, if they are left out: @pytest.mark.metadata(modes="extend", page_sizes=[16]);
    else decodes over pages of 1, 2 and 4 tokens. scheduler: see _draws.Scheduler; steps 40.

    Where the environment has SHADOWGRAPH_CHOICES=3.0.1, only the history is drawn that these choices make.
    """
    return _history(*_checked(mode, page_sizes, {"steps": 40, **scheduler}))


def batches(
    mode: _draws.Names | None = None,
    page_sizes: _draws.Sizes | None = None,
    **scheduler: Unpack[_draws.Scheduler],
) -> st.SearchStrategy[Batch]:
    """Single steps: the last of a short history, so that slots are those of requests that came and went. Arguments are
    those of histories; steps 3."""
    return _batch(*_checked(mode, page_sizes, {"steps": 3, **scheduler}))
