"""vLLM: what its builders make of CommonAttentionMetadata."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..batch import Batch
from ..roles import named_roles
from . import Hooks

if TYPE_CHECKING:
    from ..recorder import Recorder

ENGINE = "vllm.v1.attention.backend"


def install(hooks: Hooks) -> None:
    base = sys.modules[ENGINE].AttentionMetadataBuilder
    recorder = hooks.recorder

    def build(builder: Any, metadata: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> None:
        if recorder.is_due():
            _record(recorder, builder, metadata, common_attn_metadata)

    if hasattr(base, "build"):
        hooks.wrap(base, "build", build)
    else:
        recorder.skip("vllm.build", "this version has no such method")


def _record(recorder: Recorder, builder: Any, metadata: Any, common: Any) -> None:
    page_size = builder.kv_cache_spec.block_size
    offsets = common.query_start_loc.cpu().tolist()
    q_lens = [b - a for a, b in zip(offsets, offsets[1:])]
    while q_lens and q_lens[-1] == 0:  # rows of padding
        q_lens.pop()
    lens = common.seq_lens[: len(q_lens)].cpu().tolist()
    pages = [row[: -(-n // page_size)] for row, n in zip(common.block_table_tensor[: len(q_lens)].cpu().tolist(), lens)]
    mode = "decode" if all(n == 1 for n in q_lens) else "extend"
    batch = Batch.from_pages(mode, pages, lens, q_lens, page_size=page_size)
    arrays, names = named_roles(metadata)
    recorder.record_due(batch, "eager", names, arrays)
