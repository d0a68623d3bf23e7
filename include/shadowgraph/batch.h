// ForwardBatch: what the scheduler knows about one step; the only input of metadata.
// Tested by tests/attn/batch_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/status.h"

namespace shadowgraph {

enum class ForwardMode : uint8_t { kDecode, kExtend };

/// What seq_lens count. The same field meant both in one engine, and each reading was a bug in the
/// other's place (spec backends-flashattention-family 0.2); so the batch says it.
enum class SeqLensKind : uint8_t {
  kFull,    // all keys once this step has stored its own
  kPrefix,  // the keys that were cached before this step
};

/// The canonical triple of one request; kv_len = prefix_len + q_len.
struct RequestExtent {
  int32_t prefix_len = 0;  // keys cached before this step
  int32_t q_len = 0;       // new tokens: queries, and keys appended
  int32_t kv_len = 0;      // keys visible to attention

  bool operator==(const RequestExtent&) const = default;
};

/// Views only; the runtime owns the memory.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kDecode;
  SeqLensKind seq_lens_kind = SeqLensKind::kFull;
  std::span<const int32_t>
      req_pool_indices;               // [batch] row of each request in req_to_token; may be empty
  std::span<const int32_t> seq_lens;  // [batch] tokens, see seq_lens_kind
  std::span<const int32_t> extend_lens;  // [batch] new tokens; empty in decode: one each
  // [sum of new tokens] slot of each new token; may be empty
  std::span<const int64_t> out_cache_loc;

  int64_t size() const { return static_cast<int64_t>(seq_lens.size()); }
  /// Requires a batch that validate() accepts.
  RequestExtent extent(int64_t request) const;
};

/// Lengths non-negative, prefix + new = full, spans of equal length, no int32 overflow.
Status validate(const ForwardBatch& batch);

}  // namespace shadowgraph
