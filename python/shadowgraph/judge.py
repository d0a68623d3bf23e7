"""The judge of a step's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _core
from .batch import Batch
from .report import Report, refused


def given(arrays: Mapping[str, Any], **by_role: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that are not None. ValueError: an option by role speaks of a role that is not among the arrays."""
    for option, values in by_role.items():
        for role in values:
            if role not in arrays:
                raise ValueError(f"{option} has {role!r}, expected a role of this call: {', '.join(arrays) or 'it has none'}")
    return {role: array for role, array in arrays.items() if array is not None}


def check(
    batch: Batch,
    *,
    units: Mapping[str, int] = {},
    names: Mapping[str, str] = {},
    max_context_len: int = 0,
    window_left: int = -1,
    pad_kv_lens: tuple[int, int] = (0, 1),
    engine: str | None = None,
    **arrays: Any,
) -> Report:
    """Judges the batch itself, and arrays and numbers by what they tell of it. Without arrays only the batch.

    Names of arrays are roles: kv_lens, q_lens, cu_seqlens_q, cu_seqlens_k, page_table, kv_indptr, kv_indices,
    last_page_len, slots, positions, custom_mask, max_seqlen_q, max_seqlen_k, and others of `shadowgraph list fields laws`.
    Their values are judged, whatever integers hold them: a Guard sees a dtype that changes. None is left out.

    Rows behind the batch's are padding. The kernel runs as many rows as the first of cu_seqlens_q, q_lens, kv_lens,
    kv_indptr, cu_seqlens_k has: an array with fewer is a finding, one with more is the buffer of a larger batch.

    units            tokens of an element of page_table or kv_indices: 1 (a slot) or page_size (a page), which is usual
    names            what an array is called in findings, if not by its role
    max_context_len  tokens of a request, drafts aside; 0: not known
    window_left      keys that layers with a window see before the query; -1: no layer has one
    pad_kv_lens      the least and the most that kv_lens of padding may be
    engine           whose padding it is: "any" (None), "sglang", "sglang_npu"; `shadowgraph list engines` explains them

    Raises ShadowgraphError for what cannot be judged, such as an unknown role, or arrays that are all None.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"check: batch is a {type(batch)}, expected a shadowgraph.Batch")
    there = given(arrays, units=units, names=names)
    if arrays and not there:
        raise refused("skip.no_field", next(iter(arrays)), -1, "an array or a number in one of these roles", "None, and so are all others")
    values = [(role, array, units.get(role, 0), names.get(role)) for role, array in there.items()]
    handle = _core.check(
        batch._handle,
        values,
        max_context_len=max_context_len,
        window_left=window_left,
        pad_kv_lens=pad_kv_lens,
        engine=engine,
    )
    return Report(handle)
