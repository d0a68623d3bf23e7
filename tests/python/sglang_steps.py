"""Steps that SGLang's own builders made (tests/data/traces), as a backend and a forward batch that have them.

The classes have SGLang's names and attributes; what a builder computed is in the recording.
"""

import functools
import json
import sys
import types

import engine
import torch
from problems import ROOT

DTYPES = {"int32": torch.int32, "int64": torch.int64, "bool": torch.bool, "uint8": torch.uint8}
CLASSES = {
    "flashattention": "FlashAttentionBackend",
    "trtllm_mha": "TRTLLMHAAttnBackend",
    "triton": "TritonAttnBackend",
    "flashinfer": "FlashInferAttnBackend",
}
_BACKEND = {  # of a line's config
    "max_context_len": "max_context_len",
    "page_size": "page_size",
    "topk": "topk",
    "num_steps": "speculative_num_steps",
    "num_draft_tokens": "speculative_num_draft_tokens",
    "step_id": "speculative_step_id",
    "chunk": "attention_chunk_size",
}


def lines(name):
    with open(ROOT / "tests" / "data" / "traces" / f"{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def value(field):
    """A tensor or number; recordings leave out columns that nothing reads."""
    if not isinstance(field, dict):
        return field if isinstance(field, int) else torch.tensor(field)
    if not field["shape"]:
        return int(field["data"])
    data = torch.tensor(field["data"], dtype=DTYPES[field["dtype"]])
    if data.numel() == torch.Size(field["shape"]).numel():
        return data.reshape(field["shape"])
    whole = torch.zeros(field["shape"], dtype=data.dtype)
    whole[..., : field["cols"]] = data.reshape(*field["shape"][:-1], field["cols"])
    return whole


def step(line):
    """(backend, forward_batch) whose hooked method leaves the line's metadata."""
    config, given = line["config"], {key: value(field) for key, field in line["input"].items() if field is not None}
    methods = {"init_forward_metadata": made, "init_forward_metadata_out_graph": made}
    methods |= {"init_forward_metadata_capture_cuda_graph": made_at_capture, "init_forward_metadata_replay_cuda_graph": made_at_replay}
    backend = type(CLASSES[line["backend"]], (engine.AttentionBackend,), methods)()
    backend.line, backend.req_to_token = line, given["req_to_token"]
    for key, name in _BACKEND.items():
        setattr(backend, name, config.get(key))
    backend.topk = config.get("topk", 0)
    mode = line["mode"]
    drafts = mode in ("target_verify", "draft_decode", "draft_extend")
    real = given.get("raw_bs", len(given["seq_lens"]))
    batch = types.SimpleNamespace(
        forward_mode=types.SimpleNamespace(name={"draft_decode": "DECODE"}.get(mode, mode.removeprefix("cross_").upper())),
        spec_info=types.SimpleNamespace(**{key: given.get(key) for key in ("custom_mask", "num_accept_tokens")}) if drafts else None,
        num_padding=len(given["seq_lens"]) - real,
        **{key: given.get(key) for key in ("req_pool_indices", "seq_lens", "out_cache_loc", "positions", "extend_seq_lens", "encoder_lens")},
    )
    return backend, batch


class BatchDecodeWithPagedKVCacheWrapper:
    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size):
        pass

    begin_forward = plan


class BatchPrefillWithPagedKVCacheWrapper:
    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim_qk, page_size,
        custom_mask=None,
    ):
        pass

    begin_forward = plan


class BatchPrefillWithRaggedKVCacheWrapper:
    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk):
        pass

    begin_forward = plan


def fast_decode_plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size):
    pass


def imported(monkeypatch):
    """Puts the classes where SGLang and FlashInfer have them."""
    engine.imported(monkeypatch)
    module = types.ModuleType("flashinfer")
    for thing in (BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper):
        setattr(module, thing.__name__, thing)
    module.fast_decode_plan = fast_decode_plan
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    using = types.ModuleType("sglang.srt.layers.attention.flashinfer_backend")
    using.partial = functools.partial
    monkeypatch.setitem(sys.modules, using.__name__, using)


def plan(call):
    names = {key: value(field) for key, field in call.items() if key not in ("wrapper", "call") and field is not None}
    sizes = [names["num_qo_heads"], names["num_kv_heads"], names["head_dim"]]
    lists = [names.get(key) for key in ("kv_indptr", "kv_indices", "kv_last_page_len")]
    if "ragged" in call["wrapper"]:
        BatchPrefillWithRaggedKVCacheWrapper().begin_forward(names["qo_indptr"], lists[0], *sizes)
    elif "decode" in call["wrapper"]:
        wrapper = BatchDecodeWithPagedKVCacheWrapper()
        if call["call"] == "fast_decode_plan":  # SGLang puts it in place of the method when it captures
            wrapper.begin_forward = sys.modules["sglang.srt.layers.attention.flashinfer_backend"].partial(fast_decode_plan, wrapper)
            assert wrapper.begin_forward.func == fast_decode_plan
        wrapper.begin_forward(*lists, *sizes, names["page_size"])
    else:
        wrapper = BatchPrefillWithPagedKVCacheWrapper()
        wrapper.begin_forward(names["qo_indptr"], *lists, *sizes, names["page_size"], custom_mask=names.get("custom_mask"))


def made_at_capture(backend, bs, num_tokens, req_pool_indices, seq_lens, encoder_lens, forward_mode, spec_info):
    """The methods of graphs before 2026-06-02."""
    made(backend, None)


def made_at_replay(
    backend, bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu, out_cache_loc=None
):
    made(backend, None)


def graph_before(backend, batch, phase):
    bs, lens, of_batch = len(batch.seq_lens), batch.seq_lens, (batch.forward_mode, batch.spec_info)
    if phase == "capture":
        backend.init_forward_metadata_capture_cuda_graph(bs, bs, batch.req_pool_indices, lens, batch.encoder_lens, *of_batch)
    else:
        of_all = bs, batch.req_pool_indices, lens, int(lens.sum()), batch.encoder_lens
        backend.init_forward_metadata_replay_cuda_graph(*of_all, *of_batch, lens, batch.out_cache_loc)


def made(backend, forward_batch, in_capture=False):
    for call in backend.line["expect"].get("calls", []):
        plan(call)
    parts = {"": types.SimpleNamespace(), "expand": types.SimpleNamespace(), "local": types.SimpleNamespace()}
    for name, field in backend.line["expect"].items():
        part, _, own = name.rpartition(".")
        if part in parts and (isinstance(field, int) or isinstance(field, dict) and field["dtype"] in (*DTYPES, "pyint", "pybool")):
            setattr(parts[part], f"local_{own}" if part == "local" else own, value(field))
    backend.forward_metadata = parts[""]
    if vars(parts["local"]):
        backend.forward_metadata.local_attn_metadata = parts["local"]
    backend.forward_metadata_spec_decode_expand = parts["expand"] if vars(parts["expand"]) else None
