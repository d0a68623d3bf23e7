// What one layer of a step must compute, said without any backend: each request's canonical triple,
// its keys slot by slot, and the mask pair by pair where a tree, a chunk, both or items decide. A
// backend's metadata is right if its launches give what this call gives. Facts: docs/metadata.md
// "Lengths", "Drafts", "FlashAttention", "Siblings". Tested by tests/check/canonical_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attn/dual_chunk.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Keys of each row by slot, one row a request; of a draft decode one a branch. Of a rank
/// (ModelConfig::dcp_size) its own keys alone, with a mask that says which query sees which.
struct CanonicalRows {
  std::vector<int32_t> cu_seqlens_q;       // [rows + 1]
  std::vector<int32_t> kv_lens;            // [rows]
  std::vector<std::vector<int32_t>> keys;  // [rows][kv_lens] slots of the pool that the layer uses
  // [tokens] where each new one is stored, which is the last of keys; -1: on another rank. Empty of
  // layers that store nothing
  std::vector<int32_t> stored;
  std::vector<uint8_t> mask;         // row by row [q_len, kv_len]; empty: causal and window
  std::vector<int64_t> mask_indptr;  // [rows + 1]
  // [rows] what keys are multiplied by, in f32, before they are stored; empty: 1
  std::vector<float> key_factors;

  /// The slots of a row's tokens.
  std::span<const int32_t> stored_by(size_t row) const;
  /// The first keys of a row: those that this step does not store.
  std::span<const int32_t> old_keys(size_t row) const;
};

/// Requires a batch that validate() accepts, with req_to_token.
CanonicalRows canonical_rows(const ForwardBatch& batch, const LayerKind& kind,
                             const ModelConfig& model);

/// The call over a layer's tensors, in host memory or a device's that the host can read. Owns what
/// it points to.
class CanonicalCall {
 public:
  CanonicalCall(const ForwardBatch& batch, const ModelConfig& model, const LayerIo& io);
  CanonicalCall(const CanonicalCall&) = delete;
  CanonicalCall& operator=(const CanonicalCall&) = delete;

  /// Keys are these tokens of this cache, in pages of one token, instead of the pool's; keys: as
  /// CanonicalRows::keys.
  void read_from(const KvCache& cache, const std::vector<std::vector<int32_t>>& keys);

  /// q and out without padding rows. The cache is seen in pages of one token.
  const PagedAttention& call() const { return call_; }
  const CanonicalRows& rows() const { return rows_; }
  /// The queries of a dual-chunk layer's call; nothing for other layers.
  const std::optional<DualChunkQueries>& dual_chunk() const { return dual_chunk_; }

 private:
  std::optional<DualChunkQueries> dual_chunk_;
  CanonicalRows rows_;
  std::vector<int32_t> page_table_;
  PagedAttention call_;
};

}  // namespace shadowgraph
