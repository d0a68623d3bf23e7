// What the drivers (kernels/*.cc) hand to the instruction-set units (kernels/isa/*.cc): plain data,
// and constexpr arithmetic that inlining leaves no symbol of, so that nothing compiled with special
// flags can be picked up elsewhere (scripts/internal_linkage.py).
#pragma once

#include <cstddef>
#include <cstdint>

#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// Sixteen tokens are one panel on every instruction set.
constexpr int kPanel = 16;  // edge: keys, head_dim

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// K or V of one request, at one KV head. Strided: token t starts at element
///   page_ids[t / page_size] * page_stride + (t % page_size) * token_stride
/// or, where page_ids is null, at t * token_stride; its head_dim elements are contiguous. In panels
/// (KvOrder), which are always paged: the panel of tokens 16 i .. 16 i + 15 starts where token i
/// would, were pages page_size / 16 tokens long.
struct KvTokens {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  KvOrder order = KvOrder::kStrided;
  int64_t page_stride = 0, token_stride = 0, head_stride = 0;  // elements
  int32_t head_dim = 0;
  // i8: token t's elements times scales[scale_offset(..., t)], else null
  const float* scales = nullptr;
  int64_t scale_page_stride = 0, scale_token_stride = 0, scale_head_stride = 0;
};

/// Element at which a token starts, from kv.data; of panels, the token's panel.
constexpr int64_t token_offset(const KvTokens& kv, const int32_t* page_ids, int32_t page_size,
                               int64_t token) {
  if (page_ids == nullptr) return token * kv.token_stride;
  const int64_t in_page = token % page_size;
  return page_ids[token / page_size] * kv.page_stride +
         (kv.order == KvOrder::kStrided ? in_page : in_page / kPanel) * kv.token_stride;
}

/// The place of an i8 token's scale in kv.scales; always paged.
constexpr int64_t scale_offset(const KvTokens& kv, const int32_t* page_ids, int32_t page_size,
                               int64_t token) {
  return page_ids[token / page_size] * kv.scale_page_stride +
         token % page_size * kv.scale_token_stride;
}

/// Bytes from one KV head to the head-th after it.
constexpr int64_t head_bytes(const KvTokens& kv, int64_t head) {
  return head * kv.head_stride * static_cast<int64_t>(size_of(kv.dtype));
}

/// The same tokens, of the head-th KV head after it.
constexpr KvTokens at_head(KvTokens kv, int64_t head) {
  kv.data += head_bytes(kv, head);
  if (kv.scales != nullptr) kv.scales += head * kv.scale_head_stride;
  return kv;
}

/// Keys that a thread reads next: what a unit may ask the memory for while it still computes. A
/// hint; empty where begin == end.
struct KvAhead {
  KvTokens k, v;
  const int32_t* page_ids = nullptr;
  int32_t page_size = 1;
  int32_t begin = 0, end = 0;
};

/// Rows of q or of the result, at `at` + token * token_stride + head * head_stride bytes, that a
/// thread touches when it is done with a unit. A hint; empty where tokens is 0.
struct RowsAhead {
  const std::byte* at = nullptr;
  int64_t token_stride = 0, head_stride = 0, bytes = 0;
  int32_t tokens = 0;
};

/// The keys that one query sees: begin <= k < end, and, with a custom mask, pair first_pair + k not
/// hidden.
struct RowMask {
  int32_t begin = 0, end = 0;
  int64_t first_pair = 0;
};

/// Attention of a block of queries of one request over a range of its keys, for one KV head or
/// several neighbours: the online softmax of each row. Row r belongs to KV head r / (tokens group);
/// in it, row i is query token i / group, query head i % group of the head's group.
struct AttendUnit {
  // Element (token, head, dim) at token * q_token_stride + head * q_head_stride + dim
  const std::byte* q = nullptr;
  DType q_dtype = DType::kF32;
  int64_t q_token_stride = 0, q_head_stride = 0;
  int32_t tokens = 0, group = 0, heads = 1;
  int32_t block_rows = 0;  // that a full block of the call has in one KV head
  bool same_rows = false;  // as those of the unit before, whose q the scratch still holds

  KvTokens k, v;  // of the first head
  const int32_t* page_ids = nullptr;
  int32_t page_size = 0;

  int32_t begin = 0, end = 0;  // the keys of this unit, as absolute positions
  // Keys between two looks at the running maximum; tiles start at multiples of it
  int32_t tile = 0;
  const RowMask* masks = nullptr;  // [tokens]
  CustomMask::Kind mask_kind = CustomMask::Kind::kNone;
  const uint8_t* custom_mask = nullptr;

  // Base-2 logit = scale * q.k, or soft_cap * tanh(scale * q.k) where soft_cap is not 0
  float scale = 0;
  float soft_cap = 0;

  // Results, per row: largest base-2 logit (-inf: saw no key), sum of weights, and the weighted sum
  // of values.
  float* m = nullptr;  // [rows]
  float* d = nullptr;  // [rows]
  float* o = nullptr;  // [rows, o_stride]; o_stride = head_dim_vo rounded up to 16
  int64_t o_stride = 0;

  // The processor asks for memory that is read in order, and well: where many rows read it, asking
  // beside it costs more than it brings
  bool asked_by_processor = false;
  KvAhead ahead;
  RowsAhead next_q, out;     // of the next unit, of this one; with heads as this unit has them
  float* scratch = nullptr;  // attend_scratch(...).total floats, on a cache line of its own
};

constexpr bool all_bf16(const AttendUnit& u) {
  return u.q_dtype == DType::kBF16 && u.k.dtype == DType::kBF16 && u.v.dtype == DType::kBF16;
}

/// Rows of one softmax state each: m, d and o as in AttendUnit.
struct RowStates {
  float* m = nullptr;
  float* d = nullptr;
  float* o = nullptr;
};

/// into becomes the state over both sets of keys: `part` follows `into` in the order of the row. A
/// state without mass (m = -inf) changes nothing.
struct FoldRows {
  RowStates into, part;
  int64_t rows = 0, o_stride = 0;
};

/// out[i] = o[i] * weight / d * v_scale + 0 (so -0 becomes 0), rounded to nearest even.
struct FinishRow {
  const float* o = nullptr;  // [round_up(count, 16)]
  int64_t count = 0;
  float weight = 1, d = 1, v_scale = 1;
  std::byte* out = nullptr;
  DType dtype = DType::kF32;  // f32, f16 or bf16
};

/// States of 16 rows to merge, side by side: part p of row i at [p * 16 + i].
struct MergeRows {
  const float* lse = nullptr;  // [num_parts, 16], none NaN; either infinity: no mass
  int64_t num_parts = 0;
  float to_base2 = 1;     // of a difference of LSEs
  double of_natural = 1;  // base of the LSEs: of a natural logarithm
  // Results
  float* weights = nullptr;  // [num_parts, 16]
  float* d = nullptr;        // [16]: their sum
  float* merged = nullptr;   // [16]: the LSE of all parts; -inf: no mass
};

/// Elements f32, f16 or bf16, and what each counts.
struct WeightedRow {
  const std::byte* at = nullptr;
  DType dtype = DType::kF32;
  float weight = 0;
};

/// out[i] = weight * s / d, rounded to nearest even, where s is 0 + the parts' weight * element,
/// one after the other.
struct SumRows {
  const WeightedRow* parts = nullptr;  // [num_parts]
  int64_t num_parts = 0, count = 0;    // elements of each
  float weight = 1, d = 1;
  std::byte* out = nullptr;
  DType dtype = DType::kF32;  // f32, f16 or bf16
  // The result goes past the caches. Whole cache lines of one type with all parts; before another
  // thread reads it there must be a fence.
  bool stream = false;
};

/// Rows and bytes of a row of a tile of AMX; rows that are computed together.
constexpr int kAmxRows = 16, kAmxRowBytes = 64, kAmxStripRows = 2 * kAmxRows;  // edge: query_rows
/// A KV head with fewer rows is not worth tiles: most of one would be empty.
constexpr int kLeastAmxRows = 5;  // edge: group

/// c[r][0 .. 16 columns) = (or += where add) the products of a's rows with tiles of b, step by
/// step: of a a step is 32 bf16, of b a tile of 16 pairs by 16 columns.
struct TileProduct {
  const std::byte* a = nullptr;
  int64_t a_stride = 0;        // bytes
  const std::byte* b[2] = {};  // of each 16 columns
  int64_t b_step = 0;          // bytes
  int64_t steps = 0;
  float* c = nullptr;
  int64_t c_stride = 0;  // floats
  bool add = false;
};

/// Limits that every instruction set keeps: rows that are computed side by side in vectors, keys of
/// a tile.
constexpr int kMostStripRows = 8;  // edge: query_rows
constexpr int kMostTile = 256;     // edge: keys

/// Layout of a unit's scratch, in floats. A tile's panels are packed into k and v where the cache
/// does not hold them as the kernel reads them.
struct AttendScratch {
  int64_t q, k, v, logits, d, row, total;
};
/// Rows of a strip.
constexpr int64_t logit_rows(int64_t rows) {
  constexpr int64_t kMost = kAmxStripRows;  // no edge: kAmxStripRows
  return rows < kMostStripRows ? kMostStripRows : rows < kMost ? rows : kMost;
}
constexpr AttendScratch attend_scratch(int64_t rows, int64_t head_dim_qk, int64_t head_dim_vo,
                                       int64_t tile) {
  AttendScratch s{};
  s.q = 0;                                                // [rows, head_dim_qk], strip by strip
  s.k = s.q + round_up(rows * head_dim_qk, kPanel);       // [tile / 16] panels
  s.v = s.k + tile * round_up(head_dim_qk, 2);            // [tile / 16] panels
  s.logits = s.v + tile * round_up(head_dim_vo, kPanel);  // [logit_rows(rows), kMostTile]
  // [rows, 16]: the sum of weights, by lane
  s.d = s.logits + logit_rows(rows) * kMostTile;
  s.row = s.d + rows * kPanel;  // a strip's rows of q
  s.total = s.row + kMostStripRows * round_up(head_dim_qk, kPanel);
  return s;
}

}  // namespace shadowgraph
