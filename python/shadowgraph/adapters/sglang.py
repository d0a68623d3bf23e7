"""SGLang: what its attention backends make of a forward batch, in both generations of their methods."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..batch import Batch
from ..roles import named_roles
from . import Hooks

if TYPE_CHECKING:
    from ..recorder import Recorder

ENGINE = "sglang.srt.layers.attention.base_attn_backend"

_MODES = ("decode", "extend", "mixed")  # of others the truth is in spec_info


def install(hooks: Hooks) -> None:
    base = sys.modules[ENGINE].AttentionBackend
    recorder = hooks.recorder

    def eager(backend: Any, _: None, forward_batch: Any) -> None:
        _record(recorder, backend, "eager", vars(forward_batch))

    def out_graph(backend: Any, _: None, forward_batch: Any, in_capture: bool = False) -> None:
        if not in_capture:  # rows of a capture are dummies
            _record(recorder, backend, "replay", vars(forward_batch))

    def replay(backend: Any, _: None, *args: Any, **kwargs: Any) -> None:
        """The method before 2026-06-02 took the parts of a batch."""
        method = backend.init_forward_metadata_replay_cuda_graph
        _record(recorder, backend, "replay", inspect.signature(method).bind(*args, **kwargs).arguments)

    methods: dict[str, Any] = {
        "init_forward_metadata": eager,
        "init_forward_metadata_out_graph": out_graph,
        "init_forward_metadata_replay_cuda_graph": replay,
    }
    for name, after in methods.items():
        if hasattr(base, name):
            hooks.wrap(base, name, after)
        else:
            recorder.skip(f"sglang.{name}", "this version has no such method")


def _real_rows(backend: Any, phase: str, given: Mapping[str, Any], rows: list[int], lens: list[int]) -> int:
    """How many rows are requests. Where nobody says so, padding is what the runner fills its buffers with."""
    real = len(rows)
    if phase != "replay":
        return real
    if given.get("num_padding") is not None:
        return real - int(given["num_padding"])
    fill = getattr(backend, "get_cuda_graph_seq_len_fill_value", lambda: 1)()
    while real > 0 and rows[real - 1] == 0 and lens[real - 1] == fill:
        real -= 1
    return real


def _record(recorder: Recorder, backend: Any, phase: Any, given: Mapping[str, Any]) -> None:
    mode = given["forward_mode"].name.lower()
    if mode not in _MODES or given.get("spec_info") is not None:
        recorder.skip(f"sglang {mode}", "speculation: what its lengths count is not in the batch")
        return
    if not recorder.is_due():
        return
    pool = getattr(given.get("req_to_token_pool"), "req_to_token", None)
    table = backend.req_to_token if pool is None else pool
    rows, lens = (given[name].tolist()[: given.get("bs")] for name in ("req_pool_indices", "seq_lens"))
    real = _real_rows(backend, phase, given, rows, lens)
    width = max(lens[:real], default=1)
    extends = given.get("extend_seq_lens")
    batch = Batch.from_table(
        mode,
        table[rows[:real], :width].cpu(),
        list(range(real)),
        lens[:real],
        None if extends is None else extends.tolist(),
        page_size=getattr(backend, "page_size", 1),
    )
    arrays, names = named_roles(backend.forward_metadata, scalars=phase != "replay")
    if given.get("out_cache_loc") is not None:
        arrays["slots"], names["slots"] = given["out_cache_loc"], "out_cache_loc"
    recorder.record_due(batch, phase, names, arrays)
