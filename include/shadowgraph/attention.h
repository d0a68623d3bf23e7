// The attention engine: one call each. Every call checks its input first; a Status that is not ok
// means that nothing was written. No exception leaves these functions. Thread-safe for distinct
// outputs.
//
// Bits. With Arith::kPortable (the default) a row's result is a function of the row's own query and
// of the keys it sees, in order: never of the batch, the row's place in it, thread count, page ids,
// padding or instruction set; so a prefill in chunks has the bits of the whole. With Arith::kFast
// the same holds within one instruction set. Tested by tests/kernels/*, and by `shadowgraph fuzz`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "shadowgraph/kv_cache.h"
#include "shadowgraph/lse.h"
#include "shadowgraph/params.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

enum class Arith : uint8_t {
  kPortable,  // f32 fused multiply-add in one fixed order: the same bits on every instruction set
  kFast,  // may round P to bf16 and use the machine's bf16 dot product where q, K and V are bf16
};

struct CallOptions {
  Arith arith = Arith::kPortable;
  int num_threads = 0;        // 0: OpenMP's default
  std::string_view isa = {};  // one of available_isas(); empty: current_isa()
  LseSink lse_sink = LseSink::kExcluded;
  // Of an attention call, see attention_scratch_size; used by one call at a time. Empty: memory
  // that the calling thread keeps from call to call, grown where a call needs more, freed when it
  // ends
  std::span<std::byte> scratch = {};
};

/// Queries against a paged cache (flash_attn_with_kvcache; FlashInfer paged prefill and decode).
struct PagedAttention {
  ConstTensorView q;  // [total_q, num_qo_heads, head_dim_qk], f32 | f16 | bf16, last dim contiguous
  KvCache cache;
  PageTable pages;
  // [batch + 1] tokens; empty: a decode batch, one query a request
  std::span<const int32_t> cu_seqlens_q;
  // Of plan_attention; empty: derived by the call
  std::span<const int32_t> plan;
  AttentionParams params;
  TensorView out;  // [total_q, num_qo_heads, head_dim_vo], f32 | f16 | bf16, last dim contiguous
  NaturalLse lse;  // [total_q, num_qo_heads], optional
  CallOptions options;
  // Queries of a request from this one on are not computed, and their out and lse stay what they
  // were: a GPU's grid is no larger (FlashAttention's max_seqlen_q). 0: all are
  int32_t max_seqlen_q = 0;
};

/// Queries against K and V packed one request after the other (flash_attn_varlen_func; FlashInfer
/// ragged prefill). Not i8: its scales have no place here.
struct RaggedAttention {
  ConstTensorView q;                      // as above
  ConstTensorView k;                      // [total_k, num_kv_heads, head_dim_qk]
  ConstTensorView v;                      // [total_k, num_kv_heads, head_dim_vo]
  std::span<const int32_t> cu_seqlens_q;  // [batch + 1] tokens
  std::span<const int32_t> cu_seqlens_k;  // [batch + 1] tokens
  float k_scale = 1, v_scale = 1;         // the stored value times this is the key / value
  AttentionParams params;
  TensorView out;
  NaturalLse lse;
  CallOptions options;
  int32_t max_seqlen_q = 0;  // as above
};

/// num_states partial results per row, over disjoint key sets, become one (FlashInfer
/// merge_states). Merged in index order. States without mass (lse -inf or +inf) are skipped, their
/// v is not read; if all are empty the result is out 0, lse -inf.
template <LseBase Base>
struct MergeStates {
  ConstTensorView v;  // [rows, num_states, num_heads, head_dim], f32 | f16 | bf16
  ConstTensorView s;  // f32 [rows, num_states, num_heads], logarithm to Base
  TensorView out;     // [rows, num_heads, head_dim]
  LseView<Base> lse;  // [rows, num_heads], optional
  CallOptions options;
};

/// Two partial results a row: v_a, v_b [rows, num_heads, head_dim], s_a, s_b f32 [rows, num_heads].
template <LseBase Base>
struct MergeState {
  ConstTensorView v_a, s_a, v_b, s_b;
  TensorView out;
  LseView<Base> lse;
  CallOptions options;
};

/// New keys and values into their slots. Rounds to nearest even where the cache is narrower than k
/// and v; an fp8 cache stores value / k_scale (v_scale), saturated to the largest finite.
///
/// An i8 cache: with x = value / k_scale (v_scale) in f32, the scale of a token and head is
/// z = max |x| / 127, and its codes are x / z, both in f32, rounded to the nearest integer, ties to
/// even, and clamped to +-127. Where z is 0 all codes are 0. Where some x is not finite z is NaN,
/// so that every element of the token and head is, and all codes are 0.
struct StoreKv {
  ConstTensorView k;  // [num_tokens, num_kv_heads, head_dim_qk]
  // [num_tokens, num_kv_heads, head_dim_vo]; where the cache is of latents the beginning of k, or
  // undefined: it is stored with k, and scaled as k is
  ConstTensorView v;
  // [num_tokens] slot, each at most once; a slot below first_slot drops the token
  std::span<const int64_t> out_cache_loc;
  KvCache cache;
  CallOptions options;
  // page_size, where page 0 is for padding: then any number of tokens may name a slot of it
  int64_t first_slot = 0;

  bool drops(int64_t slot) const { return slot < 0 || slot < first_slot; }
  /// Is V the beginning of K, in the cache (KvCache::mla_latent) as in what is given?
  bool is_latent() const;
};

/// Pages from one pool into another, whatever the layouts of the two: a caller's NHD or HND cache
/// becomes panels, and back. Bits are copied, of every token of a page, written or not; so page
/// size, heads, head dims, types, k_scale and v_scale are those of the source. The scales of i8
/// tokens go with them. The padding of panels is left alone. The pools share no memory.
struct CopyKv {
  KvCache source, target;
  // Page source_pages[i] is copied to target_pages[i], each of these at most once
  std::span<const int32_t> source_pages = {}, target_pages = {};
  bool whole_pool = false;  // every page, to the same id; both lists are empty then
  CallOptions options = {};
};

Status attention_with_kvcache(const PagedAttention& call) noexcept;
Status attention_varlen(const RaggedAttention& call) noexcept;

/// The plan: which runs of keys of which queries are one piece of work, the most costly first. It
/// is metadata of a step: int32, made once, for every layer with the same lengths, group size,
/// causal and window, whatever its KV heads, head dims, types and layout. No bit of a result
/// depends on it, nor on the number of threads that it was made for. A call checks it whole,
/// whatever it holds: one that was made for other lengths, so that a key would be left out or read
/// twice, is refused with input.plan.
///
/// How many int32 a plan needs, whatever the lengths, given the call's shapes: its batch, rows of
/// q, heads and threads. Looks at no element.
int64_t attention_plan_size(const PagedAttention& call) noexcept;
/// Checks the call as attention_with_kvcache does, its own plan aside. Writes a header and 4 int32
/// for each piece; the rest of plan keeps what it holds, and is never read. plan shares no memory
/// with what the call reads or writes; where it is too short, nothing is written.
Status plan_attention(const PagedAttention& call, std::span<int32_t> plan) noexcept;

/// How many bytes of scratch suffice, whatever the lengths, given the call's shapes (and so the
/// most keys a request may have), with a plan made for a call of these shapes and for no more
/// threads (a plan of other heads or another layout may share more blocks out: what is missing then
/// is said with input.memory). Nothing in it grows with the square of a length:
///   threads * (a unit's q, tile and 2 states, in whole pages of 4096 bytes)
///   + min(blocks, more) * num_kv_heads * (keys / 512 * state + 64)
///   + 96 * blocks + 8 * batch + 48 * more
/// and up to two pages. A unit is a KV head; in a decode over NHD or panels, as many KV heads as
/// divide num_kv_heads and have at most 128 query heads, or fewer, so that all threads have work.
/// units is their number. state, of a KV head, = 4 * (rows * head_dim_vo + 2 * rows) bytes, where
/// head_dim_vo, and the rows of the second term, are rounded up to 16; rows = its query heads, in a
/// prefill times the queries of a block, of which there are `blocks`. more = 4 * threads / units +
/// 1, of one thread 0: so many pieces there are beyond one a block. The second line is the states
/// of blocks that several threads share.
int64_t attention_scratch_size(const PagedAttention& call) noexcept;
int64_t attention_scratch_size(const RaggedAttention& call) noexcept;

Status merge_states(const MergeStates<LseBase::kNatural>& call) noexcept;
Status merge_states(const MergeStates<LseBase::kLog2>& call) noexcept;
Status merge_state(const MergeState<LseBase::kNatural>& call) noexcept;
Status merge_state(const MergeState<LseBase::kLog2>& call) noexcept;
Status store_kv(const StoreKv& call) noexcept;
Status copy_kv(const CopyKv& call) noexcept;

/// Instruction sets this machine can run, best last: "generic", "avx2", "avx512", "avx512bf16".
std::span<const std::string_view> available_isas();
/// What a call uses that names none: the best, or the one that the environment variable
/// SHADOWGRAPH_ISA names; a name that this machine does not have makes every such call fail with
/// input.isa.
std::string_view current_isa();
/// Chooses another default (`--isa`). Unknown or unavailable: a Status, and nothing changes.
Status set_isa(std::string_view name);

}  // namespace shadowgraph
