"""The judge of a step's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _core
from .batch import Batch
from .report import Report


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
    """Judges arrays and numbers by what they tell of the batch, and the batch itself.

    Names of arrays are roles: kv_lens, q_lens, cu_seqlens_q, cu_seqlens_k, page_table, kv_indptr, kv_indices,
    last_page_len, slots, custom_mask, max_seqlen_q, max_seqlen_k, and others of `shadowgraph list fields laws`. Rows
    behind the batch's are padding. None is left out.

    units            tokens of an array's column or entry: 1, or a page's, which is usual
    names            what an array is called in findings, if not by its role
    max_context_len  tokens of a request, drafts aside; 0: not known
    window_left      of layers with a window; -1: none
    pad_kv_lens      least and most kv_lens of padding
    engine           whose padding it is: "any", "sglang", "sglang_npu"

    Raises ShadowgraphError for what cannot be judged, such as an unknown role.
    """
    values = [(role, array, units.get(role, 0), names.get(role)) for role, array in arrays.items() if array is not None]
    handle = _core.check(
        batch._handle,
        values,
        max_context_len=max_context_len,
        window_left=window_left,
        pad_kv_lens=pad_kv_lens,
        engine=engine,
    )
    return Report(handle)
