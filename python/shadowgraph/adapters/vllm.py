"""vLLM: what its builders make of CommonAttentionMetadata."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..batch import Batch
from ..roles import ROLES
from . import Hooks

ENGINE = "vllm.v1.attention.backend"


def install(hooks: Hooks) -> None:
    base = sys.modules[ENGINE].AttentionMetadataBuilder
    recorder = hooks.recorder

    def build(builder: Any, metadata: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> None:
        _record(recorder, builder, metadata, "eager", common_attn_metadata)

    def capture(builder: Any, metadata: Any, common_attn_metadata: Any) -> None:
        _record(recorder, builder, metadata, "capture", common_attn_metadata)

    hooked: dict[str, Callable[..., None]] = {"build": build, "build_for_cudagraph_capture": capture}
    for name, after in hooked.items():
        if hasattr(base, name):
            hooks.wrap(base, name, after)
        else:
            recorder.skip(f"vllm.{name}", "this version has no such method")


def _record(recorder: Any, builder: Any, metadata: Any, phase: Any, common: Any) -> None:
    if not recorder.is_due():
        return
    page_size = builder.kv_cache_spec.block_size
    offsets = common.query_start_loc.cpu().tolist()
    q_lens = [b - a for a, b in zip(offsets, offsets[1:])]
    while q_lens and q_lens[-1] == 0:  # rows of padding
        q_lens.pop()
    lens = common.seq_lens[: len(q_lens)].cpu().tolist()
    pages = [row[: -(-n // page_size)] for row, n in zip(common.block_table_tensor[: len(q_lens)].cpu().tolist(), lens)]
    mode = "decode" if all(n == 1 for n in q_lens) else "extend"
    batch = Batch.from_pages(mode, pages, lens, q_lens, page_size=page_size)
    arrays, names = {}, {}
    for name in getattr(metadata, "__dict__", {}):
        role, value = ROLES.get(name), getattr(metadata, name)
        if role and value is not None:
            arrays[role], names[role] = value, name
    recorder.record_due(batch, phase, names, arrays)
