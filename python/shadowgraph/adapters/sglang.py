"""SGLang: what its attention backends make of a forward batch, in both generations of their methods.

A backend that has a twin is judged by it, in every mode; another one by the roles of its fields, where no draft is underway.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .._copies import on_device
from ..batch import Batch
from ..roles import named_roles
from . import Hooks

if TYPE_CHECKING:
    from ..recorder import Recorder

ENGINE = "sglang.srt.layers.attention.base_attn_backend"
_TWINS = {
    "FlashAttentionBackend": "flashattention",
    "TRTLLMHAAttnBackend": "trtllm_mha",
    "TritonAttnBackend": "triton",
    "FlashInferAttnBackend": "flashinfer",
    "FlashInferMLAAttnBackend": "flashinfer_mla",
}
_PARTS = {
    "forward_metadata": "",
    "forward_metadata_spec_decode_expand": "expand.",
    "local_attn_metadata": "local.",
}
_FIELDS = frozenset(  # that twins judge: no windows, whose pool has a map of all slots, no splits, which depend on the device
    """
    cache_seqlens_int32 cu_seqlens_q cu_seqlens_k max_seq_len_q max_seq_len_k page_table
    query_start_loc seqused_k block_table max_query_len max_seq_len
    encoder_lens_int32 encoder_max_seq_len_k encoder_page_table
    kv_indptr kv_indices qo_indptr mask_indptr custom_mask max_extend_len use_ragged extend_no_prefix
    """.split()
)
_PLANNED = frozenset("qo_indptr kv_indptr kv_indices kv_last_page_len page_size custom_mask kv_len_arr".split())
_LISTED = {"indptr": "kv_indptr", "indices": "kv_indices", "last_page_len": "kv_last_page_len"}
_INPUTS = ("extend_seq_lens", "encoder_lens", "positions", "out_cache_loc", "custom_mask", "num_accept_tokens")
_LISTS = ("kv_indptr", "kv_indices", "last_page_len")  # of slots here, and in an extend of the prefixes alone
_INTEGERS = ("bool", "uint8", "int32", "int64")
_MODES = ("decode", "extend", "mixed")
_DRAFTS = ("target_verify", "draft_decode", "draft_extend")
_OF_TWINS = (*_DRAFTS, "cross_decode", "cross_extend")
_ACCEPTED = ("num_accept_tokens", "accept_length")  # of a draft extend's spec_info, by age
_NUMBERS = (  # of the backend, by the key of a trace
    ("max_context_len", "max_context_len"),
    ("chunk", "attention_chunk_size"),
)
_DRAFT_NUMBERS = (
    ("topk", "topk"),
    ("num_steps", "speculative_num_steps"),
    ("num_draft_tokens", "speculative_num_draft_tokens"),
    ("step_id", "speculative_step_id"),
)


def install(hooks: Hooks) -> None:
    base = sys.modules[ENGINE].AttentionBackend
    recorder = hooks.recorder

    def eager(backend: Any, _: None, forward_batch: Any) -> None:
        _record(recorder, backend, "eager", vars(forward_batch))

    def out_graph(backend: Any, _: None, forward_batch: Any, in_capture: bool = False) -> None:
        _record(recorder, backend, "capture" if in_capture else "replay", vars(forward_batch))

    def before(phase: str) -> Callable[..., None]:
        """Methods before 2026-06-02 took the parts of a batch."""

        def after(backend: Any, _: None, *args: Any, **kwargs: Any) -> None:
            method = getattr(backend, f"init_forward_metadata_{phase}_cuda_graph")
            _record(recorder, backend, phase, inspect.signature(method).bind(*args, **kwargs).arguments)

        return after

    methods: dict[str, Any] = {
        "init_forward_metadata": eager,
        "init_forward_metadata_out_graph": out_graph,
        "init_forward_metadata_capture_cuda_graph": before("capture"),
        "init_forward_metadata_replay_cuda_graph": before("replay"),
    }
    for name, after in methods.items():
        if hasattr(base, name):
            hooks.wrap(base, name, after, before=lambda _: recorder.plans.made.clear())
        else:
            recorder.skip(f"sglang.{name}", "this version has no such method")


MODULES = {ENGINE: install}


def _twin(backend: Any) -> str | None:
    return _TWINS.get(type(backend).__name__)  # a derived class may read other fields


def _mode(given: Mapping[str, Any]) -> str:
    mode = str(given["forward_mode"].name).lower()
    if given.get("encoder_lens") is not None and mode in ("decode", "extend"):
        return f"cross_{mode}"
    return "draft_decode" if mode == "decode" and given.get("spec_info") is not None else mode


def _narrow(value: Any, width: int) -> Any:
    """Columns of a table that a request of so many tokens can have: graphs have tables for the longest context."""
    return value[:, :width] if len(getattr(value, "shape", ())) == 2 else value


def _integers(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return isinstance(value, int) or hasattr(value, "shape") and str(dtype).rpartition(".")[2] in _INTEGERS


def _fields(backend: Any) -> dict[str, Any]:
    """Integers of a backend's metadata by the names of its twin."""
    found: dict[str, Any] = {}

    def take(metadata: Any, prefix: str) -> None:
        for name in [*getattr(metadata, "__dict__", {}), *getattr(type(metadata), "__slots__", ())]:
            value = getattr(metadata, name, None)
            if name in _PARTS:
                take(value, _PARTS[name])
            elif (own := name.removeprefix("local_" if prefix == "local." else "")) in _FIELDS and _integers(value):
                found[prefix + own] = value

    for part in ("forward_metadata", "forward_metadata_spec_decode_expand"):
        take(getattr(backend, part, None), _PARTS[part])
    return found


def _planned(recorder: Recorder, mode: str) -> dict[str, Any]:
    """The plans of this call as a twin of FlashInfer has them: decode[0].kv_indptr. A ragged wrapper's are numbered, of
    another one the last counts."""
    cross = mode.startswith("cross_")
    found: dict[str, Any] = {}
    places: dict[str, list[Any]] = {}
    for wrapper, plan in recorder.plans.made:
        name = type(wrapper).__name__
        kind = "ragged" if "Ragged" in name else "decode" if "Decode" in name else "mla" if "MLA" in name else "paged"
        there = places.setdefault(kind, [])
        if kind == "ragged" or not any(wrapper is other for other in there):
            there.append(wrapper)
            if kind != "ragged" and len(there) > 1 and not cross:
                raise NotImplementedError("two wrappers: what a window shows is not in the batch")
        at = next(i for i in reversed(range(len(there))) if there[i] is wrapper)
        for name, value in plan.items():
            name = _LISTED.get(name.removeprefix("paged_kv_"), name)
            if name in _PLANNED and _integers(value):
                found[name if kind == "mla" else f"{kind}[{at}].{name}"] = value
    return found


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


class _Step(NamedTuple):
    backend: Any
    mode: str  # of a twin
    phase: Any
    name: str


def _record(recorder: Recorder, backend: Any, phase: Any, given: Mapping[str, Any]) -> None:
    mode, twin = _mode(given), _twin(backend)
    if phase == "capture" and not twin:  # its rows are dummies
        return
    if mode not in _MODES and not (twin and mode in _OF_TWINS):
        recorder.skip(f"sglang {mode}", "what its lengths count is not in the batch")
        return
    if not recorder.is_due(given["seq_lens"]):
        return
    made = _planned(recorder, mode)
    pool = getattr(given.get("req_to_token_pool"), "req_to_token", None)
    table = backend.req_to_token if pool is None else pool
    bs = given.get("bs")
    rows, lens = (given[name][:bs] for name in ("req_pool_indices", "seq_lens"))
    host_lens = given.get("seq_lens_cpu") if on_device(lens) else lens
    drafts = sum(int(getattr(backend, name, 0) or 0) for _, name in _DRAFT_NUMBERS) if mode in _DRAFTS else 0
    width = table.shape[1] if host_lens is None or not len(host_lens) else max(host_lens.tolist()) + drafts
    if given.get("encoder_lens") is not None:
        width = table.shape[1]  # the encoder's tokens come first
    truth: dict[str, Any] = {"rows": rows, "lens": lens, "table": table[rows.long(), :width]}
    draft = given.get("spec_info")
    for name in ("extend_seq_lens", "encoder_lens", "positions", "out_cache_loc"):
        if given.get(name) is not None:
            truth[name] = given[name]
    mask = getattr(draft, "custom_mask", None)
    if mode == "target_verify" and mask is not None:
        truth["custom_mask"] = mask
    accepted = next((getattr(draft, name) for name in _ACCEPTED if getattr(draft, name, None) is not None), None)
    if mode == "draft_extend" and accepted is not None:
        truth["num_accept_tokens"] = accepted
    step = _Step(backend, mode, phase, recorder.last_name())

    def copy() -> Any:
        fields = _fields(backend) | made
        if twin is None:
            arrays, names = named_roles(backend.forward_metadata, scalars=phase != "replay")
            fields = {f"{names[role]} {role}": value for role, value in arrays.items()}
        values = truth | {f"field {name}": _narrow(value, width) for name, value in fields.items()}
        return recorder.copied(step.name, values, finish)

    def finish(host: Mapping[str, Any]) -> Any:
        fields = {name.removeprefix("field "): value for name, value in host.items() if name.startswith("field ")}
        real = _real_rows(backend, phase, given, host["rows"].tolist(), host["lens"].tolist())
        if twin is None:
            return _by_roles(recorder, step, host, real, fields)
        return _by_twin(recorder, step, twin, host, real, fields)

    if phase == "replay" and any(map(on_device, truth.values())):
        recorder.after_replay(copy)
    else:
        copy()


def _by_twin(recorder: Recorder, step: _Step, twin: str, host: Mapping[str, Any], real: int, fields: Mapping[str, Any]) -> Any:
    config: dict[str, int | str] = {"page_size": int(getattr(step.backend, "page_size", 1))}
    for key, attribute in (*_NUMBERS, *(_DRAFT_NUMBERS if step.mode in _DRAFTS else ())):
        value = getattr(step.backend, attribute, None)
        if isinstance(value, int) and not (key == "topk" and value == 0):
            config[key] = value
    import torch

    inputs = {
        "req_to_token": host["table"],
        "req_pool_indices": torch.arange(len(host["rows"]), device="cpu"),
        "seq_lens": host["lens"],
    } | {key: host[key] for key in _INPUTS if key in host}
    if step.phase == "replay":
        inputs["raw_bs"] = torch.tensor(real, device="cpu")
    return recorder.record_line(twin, step.mode, step.phase, config, inputs, fields, step.name)


def _by_roles(recorder: Recorder, step: _Step, host: Mapping[str, Any], real: int, fields: Mapping[str, Any]) -> Any:
    lens, extends = host["lens"].tolist(), host.get("extend_seq_lens")
    batch = Batch.from_table(
        step.mode,
        host["table"][:real, : max(lens[:real], default=1)],
        list(range(real)),
        lens[:real],
        None if extends is None else extends.tolist(),
        page_size=getattr(step.backend, "page_size", 1),
    )
    arrays, names, units = {}, {}, {}
    for told, value in fields.items():
        name, _, role = told.partition(" ")
        if role not in _LISTS or step.mode == "decode":
            arrays[role], names[role] = value, name
            if role in _LISTS[:2]:
                units[role] = 1
    if "out_cache_loc" in host:
        arrays["slots"], names["slots"] = host["out_cache_loc"], "out_cache_loc"
    return recorder.record_due(batch, step.phase, names, arrays, id=step.name, units=units)
