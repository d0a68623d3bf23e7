"""What a scheduler of a test may do, and the choices that repeat what it did: of strategies and of testing.check."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from . import _core
from .batch import Batch
from .report import refused


class Scheduler(TypedDict, total=False):
    """Options of a scheduler. Those of speculation, diffusion and encoders are for modes that need them."""

    max_requests: int  # of a step; 4
    max_context_len: int  # tokens of a request; 32
    max_extend_len: int  # new tokens of a request; 8
    shared_prefixes: bool  # requests with the same beginning share its pages; False
    window_left: int  # keys behind it are given back to the pool; -1: none
    topk: int  # above 1: arrays are judged of target_verify alone
    num_steps: int  # of drafts
    num_draft_tokens: int
    dllm_block: int
    max_encoder_len: int  # above 0: a batch is drawn, and its arrays are not judged
    steps: int  # of a history, at most; of those before a single batch


# What a scheduler needs to make steps of a mode.
_NEEDED = {"target_verify": ("num_steps", 1), "draft_extend": ("num_steps", 1), "draft_extend_v2": ("num_steps", 1)}
_NEEDED |= {"draft_decode": ("num_steps", 2), "dllm_extend": ("dllm_block", 1)}

Names = str | Sequence[str]
Sizes = int | Sequence[int]


def marked() -> dict[str, Any]:
    """The modes and page sizes that the marker of the running test names."""
    plugin: Any = sys.modules.get("_shadowgraph_pytest")
    return dict(plugin.drawn_in_this_test()) if plugin else {}


def options(mode: Names | None, page_sizes: Sizes | None, scheduler: Scheduler, **more: Any) -> str:
    """As the generator takes them; None is the running test's marker, else decodes over pages of 1, 2 and 4."""
    unknown = scheduler.keys() - Scheduler.__annotations__.keys()
    if unknown:
        known = ", ".join(["mode", "page_sizes", *Scheduler.__annotations__])
        raise TypeError(f"no option of a scheduler: {', '.join(sorted(unknown))}, expected some of {known}")
    given = {"modes": "decode", "page_sizes": (1, 2, 4)} | marked()
    modes = given["modes"] if mode is None else mode
    sizes = given["page_sizes"] if page_sizes is None else page_sizes
    more |= {"prefix_cache" if name == "shared_prefixes" else name: value for name, value in scheduler.items()}
    more["modes"] = [modes] if isinstance(modes, str) else list(modes)
    for name in more["modes"]:
        option, least = _NEEDED.get(name, ("", 0))
        if (got := more.get(option) or 0) < least:
            raise refused("test.options", option, -1, f"at least {least} for steps of {name}", got)
    more["page_sizes"] = [sizes] if isinstance(sizes, int) else list(sizes)
    return json.dumps(more)


def history(options: str, choose: Callable[[int], int]) -> list[Batch]:
    """The steps of a history, each of which knows the choices that draw it again."""
    made: list[int] = []

    def chosen(bound: int) -> int:
        made.append(choose(bound))
        return made[-1]

    handles = _core.history_draw(options, chosen)
    while made and made[-1] == 0:
        made.pop()  # which is what none means
    return [Batch._of(handle, ".".join(map(str, made)) or "0") for handle in handles]


def given_choices() -> Callable[[int], int] | None:
    """The choices that the environment gives, if it does: SHADOWGRAPH_CHOICES=3.0.1."""
    text = os.environ.get("SHADOWGRAPH_CHOICES")
    if not text:
        return None
    if not text.replace(".", "").isdecimal():
        raise ValueError(f"SHADOWGRAPH_CHOICES is {text!r}, expected numbers: 3.0.1")
    numbers = iter([int(number or 0) for number in text.split(".")])
    return lambda bound: next(numbers, 0) % bound
