// Dual-chunk attention (Qwen-1M): positions come in chunks, and a token has three queries, each
// with rotary positions of its own: one for the keys of its chunk, one for those of the chunk
// before, one for all before that. One softmax over the three. The only home of its chunk
// arithmetic: the predicate part(query, key), which the oracle asks for every pair, and the closed
// form range(part, query), of which metadata is made. Facts: docs/metadata.md "Dual chunks". Tested
// by tests/attn/dual_chunk_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "attn/mask.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Which of a token's queries meets a key: by how many chunks the key stands before it.
enum class ChunkPart : uint8_t { kIntra, kSucc, kInter };
inline constexpr ChunkPart kChunkParts[] = {ChunkPart::kIntra, ChunkPart::kSucc, ChunkPart::kInter};

struct DualChunk {
  int32_t chunk_len = 1;  // chunk_size - local_size, from 1; a multiple of the page size

  constexpr int32_t chunk(int32_t position) const { return position / chunk_len; }
  /// Requires 0 <= key <= query, positions.
  constexpr ChunkPart part(int32_t query, int32_t key) const {
    const int32_t before = chunk(query) - chunk(key);
    return before == 0 ? ChunkPart::kIntra : before == 1 ? ChunkPart::kSucc : ChunkPart::kInter;
  }
  /// The keys that a part of this query sees; intra: up to itself. The others are the same for all
  /// queries of its chunk.
  constexpr KvRange range(ChunkPart of, int32_t query) const {
    const int32_t first = chunk(query) * chunk_len, before = std::max(first - chunk_len, 0);
    switch (of) {
      case ChunkPart::kIntra: return {first, query + 1};
      case ChunkPart::kSucc: return before < first ? KvRange{before, first} : KvRange{};
      case ChunkPart::kInter: break;
    }
    return before > 0 ? KvRange{0, before} : KvRange{};
  }
  /// How many parts of this query see keys: so many results are merged into its own.
  constexpr int32_t parts(int32_t query) const { return std::min(chunk(query), 2) + 1; }
};

/// What logits are multiplied by where a request is longer than the model was trained for:
/// max(1, 0.1 ln(len / original) + 1); original 0: 1.
inline double dual_chunk_factor(int64_t len, int32_t original) {
  if (original <= 0 || len <= original) return 1;
  return 0.1 * std::log(static_cast<double>(len) / original) + 1;
}

/// The queries of a call whose own q is not looked at.
struct DualChunkQueries {
  std::array<ConstTensorView, 3> q;  // by ChunkPart, each as the call's
  DualChunk chunks;
  std::span<const float> scales = {};  // [batch] instead of sm_scale; empty: that
};

/// A call (PagedAttention, RaggedAttention) of causal rows that is dual-chunk attention. A query's
/// position is the number of keys before it.
template <class Call>
struct DualChunkCall {
  Call call;
  DualChunkQueries queries;
};

}  // namespace shadowgraph
