"""SGLang: what its attention backends make of a forward batch, in both generations of their methods."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from ..batch import Batch
from ..roles import ROLES, SCALARS
from . import Hooks

ENGINE = "sglang.srt.layers.attention.base_attn_backend"

_MODES = ("decode", "extend", "mixed", "idle")  # of others the truth is in spec_info


def install(hooks: Hooks) -> None:
    base = sys.modules[ENGINE].AttentionBackend
    recorder = hooks.recorder
    methods = {
        "init_forward_metadata": _eager,
        "init_forward_metadata_out_graph": _out_graph,
        "init_forward_metadata_capture_cuda_graph": _before("capture"),
        "init_forward_metadata_replay_cuda_graph": _before("replay"),
    }
    for name, take in methods.items():
        if hasattr(base, name):
            hooks.wrap(base, name, lambda backend, _, *args, take=take, **kwargs: take(recorder, backend, *args, **kwargs))
        else:
            recorder.skip(f"sglang.{name}", "this version has no such method")


def _eager(recorder: Any, backend: Any, forward_batch: Any) -> None:
    _record(recorder, backend, "eager", vars(forward_batch), forward_batch.forward_mode)


def _out_graph(recorder: Any, backend: Any, forward_batch: Any, in_capture: bool = False) -> None:
    _record(recorder, backend, "capture" if in_capture else "replay", vars(forward_batch), forward_batch.forward_mode)


def _before(phase: str) -> Any:
    """Methods of before 2026-06-02, which took the parts of a batch."""

    def take(recorder: Any, backend: Any, *args: Any, **kwargs: Any) -> None:
        method = getattr(backend, f"init_forward_metadata_{phase}_cuda_graph")
        given = inspect.signature(method).bind(*args, **kwargs).arguments
        _record(recorder, backend, phase, given, given["forward_mode"])

    return take


def _record(recorder: Any, backend: Any, phase: Any, given: Any, forward_mode: Any) -> None:
    mode = forward_mode.name.lower()
    if mode not in _MODES:
        recorder.skip(f"sglang {mode}", "only its own backend's twin knows its lengths")
        return
    if not recorder.is_due():
        return
    pool = getattr(given.get("req_to_token_pool"), "req_to_token", None)
    table = getattr(backend, "req_to_token", None) if pool is None else pool
    rows, lens = (given[name].cpu() for name in ("req_pool_indices", "seq_lens"))
    real = int(given.get("raw_bs") or given.get("bs") or len(rows))
    named = table[given["req_pool_indices"][:real].long()][:, : int(lens[:real].max())].cpu()
    extends = given.get("extend_seq_lens")
    batch = Batch.from_table(
        mode, named, list(range(real)), lens[:real], None if extends is None else extends.cpu(), page_size=getattr(backend, "page_size", 1)
    )
    metadata = backend.forward_metadata
    arrays = {}
    for name in _names(metadata):
        role, value = ROLES.get(name), getattr(metadata, name)
        if role and value is not None and not (phase == "replay" and role in SCALARS):
            arrays[role] = value, name
    slots = given.get("out_cache_loc")
    if slots is not None:
        arrays["slots"] = slots, "out_cache_loc"
    recorder.record_due(batch, phase, {role: name for role, (_, name) in arrays.items()}, {role: a for role, (a, _) in arrays.items()})


def _names(metadata: Any) -> list[str]:
    return [*getattr(metadata, "__dict__", {}), *getattr(type(metadata), "__slots__", ())]
