"""The C ABI (include/shadowgraph.h) as Python functions: names, shapes, units and errors are its own.

Tensors are torch's, NumPy's, or whatever has `__dlpack__`; short lists of numbers are taken, too, where an argument
wants integers or f32. Nothing is copied, any strides are taken that the argument allows, and a tensor on a device is
refused (`input.device`). NumPy has no bf16, e4m3 or e5m2: `dtype` and `kv_dtype` say what its uint16 and uint8 hold.

What is left out, None, or not given means the same. Input that a call refuses raises ShadowgraphError with every
finding, whose `field` is the argument's name here, and no tensor was written. An unknown name is a ValueError, an
object that is no tensor a TypeError; both name the argument. Calls that compute release the GIL.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NewType, Protocol, TypeAlias

from typing_extensions import NotRequired, Required, TypedDict, Unpack

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...

Tensor: TypeAlias = _DLPack  # torch.Tensor, numpy.ndarray, or another library's
Integers: TypeAlias = Tensor | Sequence[int] | Sequence[Sequence[int]]
Floats: TypeAlias = Tensor | Sequence[float] | Sequence[Sequence[float]]
DType: TypeAlias = Literal["f16", "bf16", "e4m3", "e5m2"]
Layout: TypeAlias = Literal["NHD", "HND", "STACKED_NHD", "STACKED_HND", "MLA_LATENT", "PANELS"]

# sg_cache: (k_cache, v_cache, layout, head_dim_vo, head_dim_qk, k_scales, v_scales, k_scale, v_scale), of which the
# tail may be missing: (k_cache, v_cache) is enough, and shadowgraph.Cache has names and defaults.
#   k_cache, v_cache   f32, f16, bf16, e4m3, e5m2 or int8, by layout:
#     "NHD"            k_cache [num_pages, page_size, num_kv_heads, head_dim_qk], v_cache [..., head_dim_vo]
#     "HND"            k_cache [num_pages, num_kv_heads, page_size, head_dim_qk], v_cache likewise
#     "STACKED_NHD"    k_cache [num_pages, 2, page_size, num_kv_heads, head_dim]; v_cache None
#     "STACKED_HND"    k_cache [num_pages, 2, num_kv_heads, page_size, head_dim]; v_cache None
#     "MLA_LATENT"     k_cache [num_pages, page_size, head_dim_qk], whose first head_dim_vo are V; v_cache None
#     "PANELS"         the engine's own order (shadowgraph/attention/kv_cache.h)
#   head_dim_vo        of MLA_LATENT and PANELS; head_dim_qk of PANELS; else 0
#   k_scales, v_scales of int8: f32 [num_pages, page_size, num_kv_heads]
#   k_scale, v_scale   key = stored value * k_scale, value = stored value * v_scale; 1
Cache: TypeAlias = tuple[Tensor, Tensor | None] | tuple[Any, ...]

class _Layer(TypedDict, total=False):
    """sg_params and sg_terms."""

    sm_scale: Required[float]  # multiplies q.k; 1 / sqrt(head_dim_qk) is usual, and there is no default
    logits_soft_cap: float  # a logit s becomes cap * tanh(s / cap); 0: off
    causal: bool  # query i of q_len stands at the key kv_len - q_len + i, and sees no later one; False
    window_left: int  # keys before a query's own that it sees; -1: all
    window_right: int  # keys behind it; -1: all
    sinks: Floats | None  # f32 [num_qo_heads]: one more logit a head, without a value
    custom_mask: Tensor | None  # request by request [q_len, kv_len]: bool, a byte a pair; uint8, bits of it
    mask_indptr: Integers | None  # int64 [batch + 1]: the first byte of each request's mask, and the end
    mask_heads: int  # num_qo_heads if each head has a mask; else 0 or 1
    lse_base2: bool  # lse is the logarithm to base 2 (FlashInfer), else to base e
    lse_sink: bool  # lse counts the sinks, too
    arith: Literal["portable", "fast"]  # portable: the same bits on every machine
    num_threads: int  # 0: what set_num_threads said
    max_seqlen_q: int  # computes only the first so many queries of a request; 0: all
    alibi: Literal["linear", "distance", "sqrt"]  # slope * (key - query), -slope * |distance|, -slope * sqrt(query - key)
    alibi_slopes: Floats | None  # f32 [num_qo_heads]
    key_bias: Tensor | None  # f32 [num_qo_heads, keys of all requests], added to logits
    qq_bias: Tensor | None  # f32 [n, n], of the first n new tokens of a request
    relative_bias: Tensor | None  # f32 [num_qo_heads, 2 n + 1], by the distance of key and query
    temperature_len: int  # logits of later queries grow with log(position); 0: off
    attention_chunk: int  # positions of a chunk that sees only itself; 0: off
    chunk_lookback: int  # chunks before a query's own that it sees
    request_causal: Tensor | None  # bool or uint8 [batch], instead of causal
    cache_leftpad: Integers | None  # int32 [batch]: keys before it are not seen
    bidirectional_ranges: Integers | None  # int32 [ranges, 2]: tokens of one see each other
    bidirectional_indptr: Integers | None  # int32 [batch + 1]: ranges of each request
    k_scales: Floats | None  # f32 [num_kv_heads] or [batch, num_kv_heads], of keys; v_scales of values
    v_scales: Floats | None
    q_scale: float  # multiplies q; 1
    out_scale: float  # multiplies out; 1
    seqused_q: Integers | None  # int32 [batch]: a request's first queries that are there; seqused_k its keys
    seqused_k: Integers | None
    dtype: DType | None  # what uint16 or uint8 hold: of q and out
    kv_dtype: DType | None  # the same of keys and values
    # out is allocated if it is not given: of q's dtype and library (torch's, else NumPy's). Rows that are not computed
    # (max_seqlen_q, seqused_q) then hold anything.
    out: NotRequired[Tensor | None]  # [total_q, num_qo_heads, head_dim_vo] f32, f16 or bf16

# Attention.
#
# They return out; with lse=True (allocated) or lse=TENSOR (f32 [total_q, num_qo_heads], any strides) they return
# (out, lse). A row that sees no key has out 0 and lse -inf.

def paged_attention(
    q: Tensor,  # [total_q, num_qo_heads, head_dim_qk] f32, f16 or bf16
    cache: Cache,
    *,
    page_table: Integers | None = None,  # int32 [batch, max_pages] page ids; rows may lie apart. With
    cache_seqlens: Integers | None = None,  # int32 [batch] keys of each request, its new ones included
    kv_indptr: Integers | None = None,  # or int32 [batch + 1] offsets into
    kv_indices: Integers | None = None,  # int32 page ids, with
    last_page_len: Integers | None = None,  # int32 [batch] tokens of a request's last page, from 1
    cu_seqlens_q: Integers | None = None,  # int32 [batch + 1] offsets of tokens; None: a decode, one query a request
    lse: Tensor | bool | None = None,
    **layer: Unpack[_Layer],
) -> Any:
    """Queries against a paged cache. Refuses: input.*, param.*, mask.*, len.*, table.page_id."""

def ragged_attention(
    q: Tensor,
    k: Tensor,  # [total_k, num_kv_heads, head_dim_qk]
    v: Tensor,  # [total_k, num_kv_heads, head_dim_vo]
    cu_seqlens_q: Integers,
    cu_seqlens_k: Integers,  # int32 [batch + 1]
    *,
    lse: Tensor | bool | None = None,
    **layer: Unpack[_Layer],
) -> Any:
    """Queries against K and V that are packed request after request. Refuses: input.*, param.*, mask.*, len.*."""

def judge_paged(
    q: Tensor,
    cache: Cache,
    *,
    page_table: Integers | None = None,
    cache_seqlens: Integers | None = None,
    kv_indptr: Integers | None = None,
    kv_indices: Integers | None = None,
    last_page_len: Integers | None = None,
    cu_seqlens_q: Integers | None = None,
    lse: Tensor | None = None,  # f32 [total_q, num_qo_heads], any strides
    arithmetic: str,  # a name of `shadowgraph list arithmetics`
    **layer: Unpack[_Layer],  # out is needed
) -> ReportHandle | None:
    """Judges what another kernel left in out and lse, by the error bound that is derived from its arithmetic. Finds:
    num.bound, num.lse_bound. Refuses: what such a call refuses."""

def judge_ragged(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Integers,
    cu_seqlens_k: Integers,
    *,
    lse: Tensor | None = None,
    arithmetic: str,
    **layer: Unpack[_Layer],
) -> ReportHandle | None: ...

def merge_states(
    v: Tensor,  # [rows, num_states, num_heads, head_dim]
    s: Tensor,  # f32 [rows, num_states, num_heads] logarithms
    *,
    base2: bool = False,  # to base 2, else to base e; lse too
    out: Tensor | None = None,  # [rows, num_heads, head_dim]
    lse: Tensor | bool | None = None,  # f32 [rows, num_heads]
    dtype: DType | None = None,  # of v and out
) -> Any:
    """Merges partial results over disjoint sets of keys, and returns as attention does. A state of lse -inf or +inf
    has no mass. Refuses: input.*."""

def store_kv(
    k: Tensor,  # [num_tokens, num_kv_heads, head_dim_qk]
    v: Tensor | None,  # [num_tokens, num_kv_heads, head_dim_vo]; of a latent cache None
    out_cache_loc: Integers,  # int64 [num_tokens]: page * page_size + offset
    cache: Cache,
    *,
    first_slot: int = 0,  # a token whose slot is below it, or below 0, is dropped
    dtype: DType | None = None,  # of k and v
    kv_dtype: DType | None = None,  # of the cache
) -> None:
    """Stores new keys and values, rounded to the cache's type by its scales. Refuses: input.*, param.scale,
    slot.range, slot.duplicate."""

def copy_kv(
    source: Cache,
    target: Cache,
    source_pages: Integers | None = None,  # int32
    target_pages: Integers | None = None,
    *,
    kv_dtype: DType | None = None,  # of both caches
) -> None:
    """Copies page source_pages[i] to target_pages[i]; without both every page to the same id. Layouts may differ;
    sizes, types and scales may not. Refuses: input.*, table.page_id; caches are "source k_cache", "target v_cache"."""

# Batches: what a scheduler knows of a step. shadowgraph.Batch has these as attributes.

BatchHandle = NewType("BatchHandle", object)  # freed with its last reference
ReportHandle = NewType("ReportHandle", object)

def batch_new(
    mode: str,  # "extend", "decode", "target_verify", ... (`shadowgraph list modes`)
    *,
    page_size: int = 1,  # tokens of a page, a power of two
    pool_pages: int = 0,  # ids of pages are below it; 0: not known
    req_to_token: Integers | None = None,  # [rows, width] slot of each token, and
    req_pool_indices: Integers | None = None,  # [batch] the row of each request, and
    seq_lens: Integers | None = None,  # [batch] tokens, by seq_lens_kind
    key_indptr: Integers | None = None,  # or [batch + 1] offsets into keys, and
    keys: Integers | None = None,  # the slot of each key, the new ones last
    q_lens: Integers | None = None,  # [batch] new tokens; None where the mode implies them
    out_cache_loc: Integers | None = None,  # [tokens] slot of each new token; None: those of its key
    positions: Integers | None = None,  # [tokens]
    orig_seq_lens: Integers | None = None,  # [batch] tokens of whole prompts that come in chunks
    encoder_lens: Integers | None = None,  # [batch] tokens of the encoder, first in a row of req_to_token
    full_to_swa: Integers | None = None,  # [slots] of the sliding-window pool, 0 where evicted
    custom_mask: Integers | None = None,  # of target_verify with topk > 1: request by request [q_len, kv_len]
    seq_lens_kind: Literal["usual", "full", "prefix"] = "usual",  # do seq_lens count the new tokens
    topk: int = 0,
    num_steps: int = 0,
    num_draft_tokens: int = 0,
    draft_step: int = 0,
) -> BatchHandle:
    """Arrays are integers of any width and any strides, copied. Refuses: input.*, len.*, table.pool_row,
    table.row_width, mask.size, pool.shape."""

def history_draw(options: str | None, choose: Callable[[int], int]) -> list[BatchHandle]:
    """Draws the legal steps of a scheduler: `choose(bound)` returns a number below bound, again and again; 0 is the
    simplest. options: a JSON object (sg_history_new in shadowgraph.h). Empty: the choices lead to no step of these
    modes. What choose raises is raised here. Refuses: test.options, pool.shape."""

def property_check(
    options: str | None,  # a JSON object (sg_property_check in shadowgraph.h)
    begin: Callable[[], Callable[[BatchHandle], ReportHandle | None]],  # of each history; what it returns judges a step
) -> ReportHandle | None:
    """Tries every small batch, then histories, and shrinks the first in which something is found; the last history that
    ran is the smallest. None: nothing was. What begin or a judge raises is raised here. Refuses: test.options,
    pool.shape, test.nothing."""

def batch_mode(batch: BatchHandle) -> str: ...
def batch_text(batch: BatchHandle) -> str: ...
def batch_number(batch: BatchHandle, name: str) -> int:
    """page_size, pool_pages, requests, rows, topk, num_steps, num_draft_tokens, draft_step, seq_lens_are_prefixes."""

def batch_array(batch: BatchHandle, name: str) -> memoryview:
    """A read-only copy of prefix_lens, q_lens, kv_lens, cu_seqlens_q, key_indptr, keys, stored, mask, req_to_token
    (two axes), req_pool_indices, seq_lens, extend_lens, orig_seq_lens, encoder_lens, out_cache_loc, positions,
    full_to_swa or custom_mask; empty if the batch has none."""

# The judge.

def check(
    batch: BatchHandle,
    values: Sequence[tuple[Any, ...]],  # (role, array or int[, unit[, name]]): unit in tokens, 0: a page's; the
    *,  # name in findings is the role's if there is none
    max_context_len: int = 0,  # tokens of a request, drafts aside; 0: not known
    window_left: int = -1,  # of layers with a window; -1: none
    pad_kv_lens: tuple[int, int] = (0, 1),  # least and most kv_lens of padding
    engine: str | None = None,  # whose padding it is: "any", "sglang", "sglang_npu"
) -> ReportHandle | None:
    """The findings of a step's metadata and of the batch itself; None: there are none. Refuses what cannot be judged:
    input.*, test.options, left_out.*, skip.*."""

# Recorded steps: a line of engine traces (docs/traces.md), built from tensors.

StepHandle = NewType("StepHandle", object)

def step_new(backend: str, mode: str, phase: Literal["eager", "capture", "replay"]) -> StepHandle: ...
def step_id(step: StepHandle, id: str) -> None: ...
def step_config(step: StepHandle, key: str, value: int | str) -> None: ...
def step_role(step: StepHandle, field: str, role: str) -> None: ...
def step_input(step: StepHandle, key: str, tensor: Integers) -> None:
    """Integers or truths of any width, strides and 0 to 4 axes, copied; also step_pages and step_field."""

def step_pages(step: StepHandle, key: str, tensor: Integers) -> None: ...
def step_field(step: StepHandle, key: str, value: Integers | int) -> None: ...
def step_batch(step: StepHandle, batch: BatchHandle) -> None:
    """The `input` of a batch, and of `config` its page size, pool and speculation."""

def step_judge(step: StepHandle) -> ReportHandle | None:
    """The findings; None: there are none, and nothing to note. A report without findings has notes in its text.
    Refuses: io.line, skip.*."""

def step_line(step: StepHandle) -> str:
    """The step as a line for `shadowgraph check`."""

# Reports. None is a report without findings.

def report_findings(report: ReportHandle | None) -> list[tuple[Any, ...]]:
    """(id, title, mend, field, index, expected, got, refs, text, severity, row or None, col or None, diagnosis) of each."""

def report_add(report: ReportHandle | None, more: ReportHandle | None, case_id: str | None = None) -> ReportHandle | None:
    """A new report: the cases of the first, and one more."""

def report_new(findings: Sequence[tuple[str, str, int, int, str, str]]) -> ReportHandle | None:
    """A report of what the caller judged: (law, field, row or -1, col or -1, expected, got) of each finding."""

def report_text(report: ReportHandle | None, format: str = "text") -> str:
    """The whole report as text, json, junit, sarif, github or html."""

# The program and the machine.

def main(argv: Sequence[str]) -> int:
    """Runs the program `shadowgraph`; argv[0] is a name. Returns its exit code."""

def set_num_threads(num_threads: int) -> None:
    """Threads of calls that name no number; 0: the default, min(CPUs of this process, torch.get_num_threads()). A forked
    process has one thread whatever it asks for: OpenMP's threads did not come along."""

def isa() -> str: ...
def set_isa(name: str) -> None: ...
def version() -> str: ...
def abi_version() -> int: ...
