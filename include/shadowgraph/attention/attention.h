// The attention engine, one function for each call. Every call checks its input first; a Status
// that is not ok means that nothing was written. No exception leaves these functions. Calls with
// distinct outputs may run in parallel threads.
//
// Bits. With Arith::kPortable (the default) the bits of a row depend only on the row's own query
// and on the keys that it sees, in order. They do not depend on the batch, the row's place in it,
// the thread count, page ids, padding or the instruction set. So a prefill in chunks has the bits
// of the whole prefill. With Arith::kFast the same holds within one instruction set. Tested by
// tests/kernels/*, and by `shadowgraph fuzz`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

enum class Arith : uint8_t {
  kPortable,  // f32 fused multiply-add in one fixed order: the same bits on every instruction set
  // May round P to bf16 and use the machine's bf16 products where q, K and V are bf16
  kFast,
};

struct CallOptions {
  Arith arith = Arith::kPortable;
  int num_threads = 0;        // 0: OpenMP's default
  std::string_view isa = {};  // one of available_isas(), or "amx_soft"; empty: current_isa()
  LseSink lse_sink = LseSink::kExcluded;
  // Scratch memory of an attention call, see attention_scratch_size; only one call may use it at a
  // time. Empty: the calling thread keeps memory of its own from call to call, which grows when a
  // call needs more and is freed when the thread ends
  std::span<std::byte> scratch = {};
};

/// Queries against a paged cache (flash_attn_with_kvcache; FlashInfer paged prefill and decode).
struct PagedAttention {
  ConstTensorView q;  // [total_q, num_qo_heads, head_dim_qk], f32 | f16 | bf16, last dim contiguous
  KvCache cache;
  PageTable pages;
  // [batch + 1] token offsets; empty: a decode batch, one query per request
  std::span<const int32_t> cu_seqlens_q;
  // Made by plan_attention; empty: the call makes its own
  std::span<const int32_t> plan;
  AttentionParams params;
  TensorView out;  // [total_q, num_qo_heads, head_dim_vo], f32 | f16 | bf16, last dim contiguous
  NaturalLse lse;  // [total_q, num_qo_heads], optional
  CallOptions options;
  // A call computes only the first max_seqlen_q queries of each request; out and lse of the others
  // keep what they hold, as on a GPU whose grid ends there (FlashAttention's max_seqlen_q). 0: all
  // queries
  int32_t max_seqlen_q = 0;
};

/// Queries against K and V that are packed one request after the other (flash_attn_varlen_func;
/// FlashInfer ragged prefill). K and V may not be i8: this call takes no scales per token.
struct RaggedAttention {
  ConstTensorView q;                      // as in PagedAttention
  ConstTensorView k;                      // [total_k, num_kv_heads, head_dim_qk]
  ConstTensorView v;                      // [total_k, num_kv_heads, head_dim_vo]
  std::span<const int32_t> cu_seqlens_q;  // [batch + 1] tokens
  std::span<const int32_t> cu_seqlens_k;  // [batch + 1] tokens
  float k_scale = 1, v_scale = 1;  // key = stored value * k_scale, value = stored value * v_scale
  AttentionParams params;
  TensorView out;
  NaturalLse lse;
  CallOptions options;
  int32_t max_seqlen_q = 0;  // as in PagedAttention
};

/// Merges num_states partial results per row, over disjoint sets of keys, into one (FlashInfer
/// merge_states). States are merged in index order. A state without mass (lse is -inf or +inf) is
/// skipped and its v is not read; if all states are empty, out is 0 and lse is -inf.
template <LseBase Base>
struct MergeStates {
  ConstTensorView v;  // [rows, num_states, num_heads, head_dim], f32 | f16 | bf16
  ConstTensorView s;  // f32 [rows, num_states, num_heads], logarithm to Base
  TensorView out;     // [rows, num_heads, head_dim]
  LseView<Base> lse;  // [rows, num_heads], optional
  CallOptions options;
};

/// Merges two partial results per row: v_a, v_b [rows, num_heads, head_dim], s_a, s_b f32 [rows,
/// num_heads].
template <LseBase Base>
struct MergeState {
  ConstTensorView v_a, s_a, v_b, s_b;
  TensorView out;
  LseView<Base> lse;
  CallOptions options;
};

/// Stores new keys and values in their slots. Values are rounded to nearest even where the cache is
/// narrower than k and v. An fp8 cache stores value / k_scale (or v_scale), saturated to the
/// largest finite number.
///
/// An i8 cache: let x = value / k_scale (or v_scale) in f32. A token and head has the scale z = max
/// |x| / 127; its codes are x / z in f32, rounded to the nearest integer (ties to even) and clamped
/// to +-127. If z is 0, all codes are 0. If any x is not finite, z is NaN and all codes are 0, so
/// every element of that token and head reads as NaN.
struct StoreKv {
  ConstTensorView k;  // [num_tokens, num_kv_heads, head_dim_qk]
  // [num_tokens, num_kv_heads, head_dim_vo]. For a cache of latents: the beginning of k, or
  // undefined; then V is stored and scaled together with k
  ConstTensorView v;
  // [num_tokens] slots, each at most once; a token whose slot is below first_slot is dropped
  std::span<const int64_t> out_cache_loc;
  KvCache cache;
  CallOptions options;
  // Set it to page_size where page 0 is for padding; then several tokens may name the same slot of
  // page 0
  int64_t first_slot = 0;

  bool drops(int64_t slot) const { return slot < 0 || slot < first_slot; }
  /// True if V is the beginning of K, both in the cache (KvCache::mla_latent) and in k and v.
  bool is_latent() const;
};

/// Copies pages from one pool into another of any layout: a caller's NHD or HND cache becomes
/// panels, or the reverse. It copies the bits of every token of a page, written or not; so both
/// pools have the same page size, heads, head dims, types, k_scale and v_scale. The scales of i8
/// tokens are copied too; the padding of panels is not. The pools share no byte.
struct CopyKv {
  KvCache source, target;
  // Page source_pages[i] is copied to target_pages[i]; a target page appears at most once
  std::span<const int32_t> source_pages = {}, target_pages = {};
  bool whole_pool = false;  // copies every page to the same id; both lists must be empty
  CallOptions options = {};
};

Status attention_with_kvcache(const PagedAttention& call) noexcept;
Status attention_varlen(const RaggedAttention& call) noexcept;

/// A plan says which runs of keys, of which queries, are one piece of work, the most costly piece
/// first. It is metadata of a step: int32, made once for all layers that have the same lengths,
/// group size, causal and window; their KV heads, head dims, types and layouts may differ. No bit
/// of a result depends on the plan, nor on the number of threads that it was made for. A call
/// checks its plan completely, whatever the memory holds: a plan for other lengths, which would
/// leave a key out or read it twice, is refused with input.plan.
///
/// Returns how many int32 are enough for a plan of any lengths, given the shapes of the call: its
/// batch, rows of q, heads and threads. Reads no element.
int64_t attention_plan_size(const PagedAttention& call) noexcept;
/// Checks the call as attention_with_kvcache does, except its own plan. Writes a header and 4 int32
/// per piece; the rest of plan keeps what it holds and is never read. plan must share no memory
/// with what the call reads or writes. If plan is too short, nothing is written.
Status plan_attention(const PagedAttention& call, std::span<int32_t> plan) noexcept;

/// Returns how many bytes of scratch are enough for any lengths, given the shapes of the call (and
/// so the most keys that a request can have). The call's plan must be made for these shapes and for
/// no more threads; a plan for other heads or another layout may share out more blocks, and if
/// scratch is then too small the call fails with input.memory. No term grows with the square of a
/// length:
///   threads * (a unit's q, tile and 2 states, in whole pages of 4096 bytes)
///   + min(blocks, more) * num_kv_heads * (keys / 512 * state + 64)
///   + 96 * blocks + 8 * batch + 48 * more
/// and up to two pages.
///   unit   one KV head; in a decode over NHD or panels as many KV heads as divide num_kv_heads
///          and have at most 128 query heads, or fewer, so that all threads have work
///   units  their number
///   state  of one KV head: 4 * (rows * head_dim_vo + 2 * rows) bytes; head_dim_vo, and the rows
///          of the second term, are rounded up to 16; rows = its query heads, in a prefill times
///          the queries of a block, of which there are `blocks`
///   more   4 * threads / units + 1, for one thread 0: the most pieces beyond one per block
/// The second line holds the states of blocks that several threads share.
int64_t attention_scratch_size(const PagedAttention& call) noexcept;
int64_t attention_scratch_size(const RaggedAttention& call) noexcept;

Status merge_states(const MergeStates<LseBase::kNatural>& call) noexcept;
Status merge_states(const MergeStates<LseBase::kLog2>& call) noexcept;
Status merge_state(const MergeState<LseBase::kNatural>& call) noexcept;
Status merge_state(const MergeState<LseBase::kLog2>& call) noexcept;
Status store_kv(const StoreKv& call) noexcept;
Status copy_kv(const CopyKv& call) noexcept;

/// The instruction sets that this machine can run, best last: "generic", "avx2", "avx512",
/// "avx512bf16", "amx". A call may also name "amx_soft": in software, slowly, the bits of "amx",
/// which in fast arithmetic multiplies tiles (of q, K and V in bf16, if head_dim_qk is a multiple
/// of 32 and head_dim_vo of 16: a prefill, or a decode with 5 query heads or more a KV head).
std::span<const std::string_view> available_isas();
/// The set that a call uses if CallOptions::isa is empty: the best one, or the one that the
/// environment variable SHADOWGRAPH_ISA names. If this machine does not have the named one, every
/// such call fails with input.isa.
std::string_view current_isa();
/// Sets the default (`--isa`). An unknown or unavailable name gives a Status, and nothing changes.
Status set_isa(std::string_view name);

}  // namespace shadowgraph
