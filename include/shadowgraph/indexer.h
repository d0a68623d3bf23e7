// The indexer of sparse attention (DeepSeek sparse attention): which keys a token attends to.
//
//   I(t, s) = k_scale_s sum_h w_th relu(q_th . k_s)
//
// of the keys s that token t may see; of these the `topk` with the largest I are kept. Index
// queries and keys are e4m3, of 128 channels; a scale belongs to 128 of them. Queries have theirs
// in the weights.
//
// Index keys lie in pages of 64 tokens: 64 * 128 bytes of e4m3, then 64 f32 scales. Formulas and
// layouts: spec backends-flashinfer-triton-linear-sparse, sections 9 and 11.9; vectors/linear 8.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

inline constexpr int64_t kIndexDim = 128;        // channels of an index key, and of a scale
inline constexpr int64_t kIndexPageTokens = 64;  // tokens of a page
inline constexpr int64_t kIndexPageBytes = kIndexPageTokens * (kIndexDim + 4);
inline constexpr float kLeastAmax = 1e-4F;  // what a block's largest magnitude is raised to

/// Blocks of 128 values as e4m3 and a scale: scale = max(|x|, 1e-4) / 448, y = x / scale, rounded.
struct ActQuant {
  ConstTensorView x;   // [tokens, dim], f32, f16 or bf16, dim a multiple of 128, contiguous
  bool ue8m0 = false;  // the scale is the least power of two that is not smaller
  TensorView y;        // e4m3 [tokens, dim]
  TensorView scale;    // f32 [tokens, dim / 128]
  CallOptions options;
};

/// The scale is the f32 product of the largest magnitude and 1 / 448 rounded, as the engine's
/// kernel has it; y is x / scale in f32, rounded to even, past 448 to that. A NaN is no magnitude
/// and stays one. Not ok: nothing is written.
Status act_quant(const ActQuant& call) noexcept;

/// Index keys into the pages of their slots: page slot / 64, token slot % 64 of it.
struct StoreIndexKeys {
  ConstTensorView k;        // e4m3 [tokens, 128], contiguous
  ConstTensorView k_scale;  // f32 [tokens]
  // [tokens] slots, each at most once; a slot below first_slot drops the token
  std::span<const int64_t> out_cache_loc;
  TensorView pages;  // u8 [num_pages, 8448], a page contiguous
  CallOptions options;
  // 64, where page 0 is for padding: then any number of tokens may name a slot of it
  int64_t first_slot = 0;

  bool drops(int64_t slot) const { return slot < 0 || slot < first_slot; }
};

/// Bit for bit. slot.range, slot.duplicate; not ok: nothing is written.
Status store_index_keys(const StoreIndexKeys& call) noexcept;

/// The first seq_lens[i] keys of each request, one request after the other.
struct GatherIndexKeys {
  ConstTensorView pages;                  // u8 [num_pages, 8448], a page contiguous
  ConstTensorView page_table;             // i32 [batch, any]
  std::span<const int32_t> cu_seqlens_k;  // [batch + 1], from 0
  TensorView k;        // e4m3 [keys, 128], keys >= cu_seqlens_k.back(), contiguous
  TensorView k_scale;  // f32 [keys]
  CallOptions options;
};

/// Bit for bit. Entries of the table beyond a request's keys are not looked at, and what k has
/// behind all of them stays. Not ok: nothing is written.
Status gather_index_keys(const GatherIndexKeys& call) noexcept;

/// Keys in pages, by a table; or one after the other, and then `pages` and `page_table` are
/// undefined. Token t sees keys ks[t] .. ke[t] - 1 of its row of the table, or of all.
struct IndexerLogits {
  ConstTensorView q;              // e4m3 [tokens, heads, 128], a head contiguous
  ConstTensorView weights;        // f32 [tokens, heads], heads contiguous
  ConstTensorView pages;          // u8 [num_pages, 8448], a page contiguous
  ConstTensorView page_table;     // i32 [rows, any]: pages of 64 tokens
  std::span<const int32_t> rows;  // [tokens] of the table; empty: t
  ConstTensorView k;              // e4m3 [keys, 128], a key contiguous
  ConstTensorView k_scale;        // f32 [keys]
  std::span<const int32_t> ks;    // [tokens]; empty: 0
  std::span<const int32_t> ke;    // [tokens]
  TensorView logits;              // f32 [tokens, width], width >= every ke; contiguous
  CallOptions options;

  int64_t tokens() const { return q.shape[0]; }
  int64_t first(int64_t token) const { return ks.empty() ? 0 : ks[static_cast<size_t>(token)]; }
  int64_t last(int64_t token) const { return ke[static_cast<size_t>(token)]; }
  int64_t row(int64_t token) const {
    return rows.empty() ? token : rows[static_cast<size_t>(token)];
  }
  bool is_paged() const { return page_table.defined(); }
};

/// Column s is I(t, s), and -inf where t does not see s. A dot of e4m3 is exact in double; heads
/// are added in their order in double, and the result is rounded to f32 once: the same bits
/// whatever the batch, the threads and the machine. Not ok: nothing is written.
Status indexer_logits(const IndexerLogits& call) noexcept;

/// Which keys of each token are kept: the `topk` largest of logits[t, ks .. ke), of equal ones
/// those at the lowest positions; NaN is as -inf. Where there are no more than topk, all of them.
struct SelectIndices {
  ConstTensorView logits;       // f32 [tokens, width], contiguous
  std::span<const int32_t> ks;  // [tokens]; empty: 0
  std::span<const int32_t> ke;  // [tokens]
  TensorView indices;           // i32 [tokens, topk]: s - ks, ascending, then -1; contiguous
  CallOptions options;
};

/// Not ok: nothing is written.
Status select_indices(const SelectIndices& call) noexcept;

/// Positions of chosen keys become slots, by a table of single slots, or places among packed keys;
/// what is below 0 becomes -1.
struct TransformIndices {
  ConstTensorView indices;           // i32 [tokens, topk], contiguous
  ConstTensorView page_table_1;      // i32 [rows, any], contiguous; undefined: offsets are given
  std::span<const int32_t> rows;     // [tokens] of the table; empty: t
  std::span<const int32_t> offsets;  // [tokens], where there is no table: out = index + offset
  TensorView out;                    // i32 [tokens, topk], contiguous
  CallOptions options;

  int64_t row(int64_t token) const {
    return rows.empty() ? token : rows[static_cast<size_t>(token)];
  }
};

/// table.capacity: an index beyond its row. Not ok: nothing is written.
Status transform_indices(const TransformIndices& call) noexcept;

/// Rows that are padded with -1 anywhere, one after the other without it.
struct CompactIndices {
  ConstTensorView indices;             // i32 [tokens, topk], contiguous; below 0: none
  std::span<const int32_t> kv_indptr;  // [tokens + 1], as many as each row has
  std::span<int32_t> kv_indices;       // what lies behind kv_indptr.back() stays
  CallOptions options;
};

/// len.q_extent: an offset that is not the sum of the rows before it. Not ok: nothing is written.
Status compact_indices(const CompactIndices& call) noexcept;

}  // namespace shadowgraph
