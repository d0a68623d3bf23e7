// The indexer of sparse attention (DeepSeek sparse attention): it chooses the keys of each token.
//
//   I(t, s) = k_scale_s sum_h w_th relu(q_th . k_s)
//
// scores every key s that token t may see; the `topk` keys with the largest I are kept. Index
// queries and keys are e4m3, of 128 channels, with one scale per 128 channels. The scales of
// queries are part of the weights.
//
// Index keys lie in pages of 64 tokens: 64 * 128 bytes of e4m3, then 64 f32 scales. Facts:
// docs/metadata.md "DSA"; recorded kernels: tests/data/README.md.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

inline constexpr int64_t kIndexDim = 128;        // channels of an index key; one scale covers them
inline constexpr int64_t kIndexPageTokens = 64;  // edge: keys; tokens of a page
inline constexpr int64_t kIndexPageBytes = kIndexPageTokens * (kIndexDim + 4);
inline constexpr float kLeastAmax = 1e-4F;  // a block's largest magnitude is raised to this

/// Quantises blocks of 128 values to e4m3 with a scale: scale = max(|x|, 1e-4) / 448, y = x /
/// scale.
struct ActQuant {
  ConstTensorView x;   // [tokens, dim], f32, f16 or bf16, dim a multiple of 128, contiguous
  bool ue8m0 = false;  // rounds the scale up to a power of two
  TensorView y;        // e4m3 [tokens, dim]
  TensorView scale;    // f32 [tokens, dim / 128]
  CallOptions options;
};

/// As in the engine's kernel, the scale is the f32 product of the largest magnitude and the rounded
/// 1 / 448; y is x / scale in f32, rounded to nearest even and saturated at 448. A NaN is ignored
/// when the largest magnitude is sought, and stays NaN in y. Not ok: nothing is written.
Status act_quant(const ActQuant& call) noexcept;

/// Stores index keys: slot s is token s % 64 of page s / 64.
struct StoreIndexKeys {
  ConstTensorView k;        // e4m3 [tokens, 128], contiguous
  ConstTensorView k_scale;  // f32 [tokens]
  // [tokens] slots, each at most once; a token whose slot is below first_slot is dropped
  std::span<const int64_t> out_cache_loc;
  TensorView pages;  // u8 [num_pages, 8448], a page contiguous
  CallOptions options;
  // Set it to 64 where page 0 is for padding; then several tokens may name the same slot of page 0
  int64_t first_slot = 0;

  bool drops(int64_t slot) const { return slot < 0 || slot < first_slot; }
};

/// Copies bits unchanged. slot.range, slot.duplicate. Not ok: nothing is written.
Status store_index_keys(const StoreIndexKeys& call) noexcept;

/// Gathers the first keys of each request, cu_seqlens_k[i + 1] - cu_seqlens_k[i] of request i, one
/// request after the other.
struct GatherIndexKeys {
  ConstTensorView pages;                  // u8 [num_pages, 8448], a page contiguous
  ConstTensorView page_table;             // i32 [batch, any]
  std::span<const int32_t> cu_seqlens_k;  // [batch + 1], from 0
  TensorView k;        // e4m3 [keys, 128], keys >= cu_seqlens_k.back(), contiguous
  TensorView k_scale;  // f32 [keys]
  CallOptions options;
};

/// Copies bits unchanged. Entries of the table beyond a request's keys are not read; rows of k
/// behind the last request's keep what they hold. Not ok: nothing is written.
Status gather_index_keys(const GatherIndexKeys& call) noexcept;

/// Scores keys. Keys lie in `pages`, found by `page_table`, or one after the other in `k`; in the
/// second form `pages` and `page_table` are undefined. Token t sees the keys ks[t] to ke[t] - 1 of
/// its table row, or of k.
struct IndexerLogits {
  ConstTensorView q;              // e4m3 [tokens, heads, 128], a head contiguous
  ConstTensorView weights;        // f32 [tokens, heads], heads contiguous
  ConstTensorView pages;          // u8 [num_pages, 8448], a page contiguous
  ConstTensorView page_table;     // i32 [rows, any]: pages of 64 tokens
  std::span<const int32_t> rows;  // [tokens] table row of each token; empty: row t
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

/// Column s is I(t, s), or -inf where t does not see s. The dot of two e4m3 vectors is exact in
/// double; heads are added in order in double, and the sum is rounded to f32 once. So the bits do
/// not depend on the batch, the threads or the machine. Not ok: nothing is written.
Status indexer_logits(const IndexerLogits& call) noexcept;

/// Chooses the keys of each token: the `topk` largest of logits[t, ks .. ke). Among equal scores
/// the lower position wins; NaN counts as -inf. If there are at most topk keys, all are chosen.
struct SelectIndices {
  ConstTensorView logits;       // f32 [tokens, width], contiguous
  std::span<const int32_t> ks;  // [tokens]; empty: 0
  std::span<const int32_t> ke;  // [tokens]
  TensorView indices;           // i32 [tokens, topk]: s - ks, ascending, then -1; contiguous
  CallOptions options;
};

/// Not ok: nothing is written.
Status select_indices(const SelectIndices& call) noexcept;

/// Turns positions of chosen keys into slots, by a table of slots, or into places among packed
/// keys, by offsets. An index below 0 becomes -1.
struct TransformIndices {
  ConstTensorView indices;           // i32 [tokens, topk], contiguous
  ConstTensorView page_table_1;      // i32 [rows, any], contiguous; undefined: use offsets
  std::span<const int32_t> rows;     // [tokens] table row of each token; empty: row t
  std::span<const int32_t> offsets;  // [tokens], without a table: out = index + offset
  TensorView out;                    // i32 [tokens, topk], contiguous
  CallOptions options;

  int64_t row(int64_t token) const {
    return rows.empty() ? token : rows[static_cast<size_t>(token)];
  }
};

/// table.capacity: an index lies beyond its row. Not ok: nothing is written.
Status transform_indices(const TransformIndices& call) noexcept;

/// Packs rows one after the other and leaves out their -1 entries, which may stand anywhere.
struct CompactIndices {
  ConstTensorView indices;             // i32 [tokens, topk], contiguous; below 0: no key
  std::span<const int32_t> kv_indptr;  // [tokens + 1] offsets by each row's number of keys
  std::span<int32_t> kv_indices;       // entries from kv_indptr.back() on keep what they hold
  CallOptions options;
};

/// len.q_extent: an offset is not the sum of the rows before it. Not ok: nothing is written.
Status compact_indices(const CompactIndices& call) noexcept;

}  // namespace shadowgraph
