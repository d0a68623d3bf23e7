"""Hypothesis draws batches: the generator is the engine's own (`shadowgraph fuzz`), the shrinker Hypothesis's."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from . import _core
from .batch import Batch


@functools.lru_cache(maxsize=None)
def _below(bound: int) -> st.SearchStrategy[int]:
    return st.integers(0, bound - 1)


_MOST_HISTORIES = 16  # one in six that are drawn has a decode; Hypothesis wants most examples to be taken


@st.composite
def _drawn(draw: Any, options: str) -> Batch:
    for _ in range(_MOST_HISTORIES):
        handle = _core.batch_draw(options, lambda bound: int(draw(_below(bound))) if bound > 1 else 0)
        if handle is not None:
            return Batch._of(handle)
    reject()  # the choices lead to no step of these modes


def batches(
    mode: str | Sequence[str] = "decode",
    page_sizes: Sequence[int] = (1, 2, 4),
    *,
    max_requests: int = 4,
    max_context_len: int = 32,
    max_extend_len: int = 8,
    shared_prefixes: bool = False,
    window_left: int = -1,
    topk: int = 1,
    num_steps: int = 0,
    num_draft_tokens: int = 0,
    dllm_block: int = 0,
    max_encoder_len: int = 0,
    steps: int = 3,
) -> st.SearchStrategy[Batch]:
    """Legal steps of a scheduler, whose slots are those of requests that came and went; the simplest is one request
    with one token.

    mode             one or several: "decode", "extend", "target_verify", ...
    page_sizes       one of them
    max_context_len  tokens of a request; max_extend_len: new ones
    shared_prefixes  requests with the same beginning share its pages
    window_left      keys behind it are given back to the pool
    topk, num_steps, num_draft_tokens, dllm_block, max_encoder_len  what the modes of speculation, diffusion, encoders need
    steps            of the scheduler before this one, at most
    """
    options = {
        "modes": [mode] if isinstance(mode, str) else list(mode),
        "page_sizes": list(page_sizes),
        "max_requests": max_requests,
        "max_context_len": max_context_len,
        "max_extend_len": max_extend_len,
        "prefix_cache": shared_prefixes,
        "window_left": window_left,
        "topk": topk,
        "num_steps": num_steps,
        "num_draft_tokens": num_draft_tokens,
        "dllm_block": dllm_block,
        "max_encoder_len": max_encoder_len,
        "steps": steps,
    }
    _core.batch_draw(json.dumps(options), lambda bound: 0)  # wrong options are refused here, not while drawing
    return _drawn(json.dumps(options))
