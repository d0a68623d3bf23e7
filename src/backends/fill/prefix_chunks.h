// A prefill over latents attends to ragged K and V: the step's own tokens, and the prefix in
// chunks; or, where all keys fit in one, to all of them at once. Facts: docs/metadata.md "Prefix in
// chunks". Tested by tests/backends/prefix_chunks_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attn/page_table.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// The layer's prefix is read in chunks, in modes that do.
constexpr bool reads_chunks(const LayerKind& k) {
  return k.mla && !k.cross && !k.local && k.params.window_left < 0;
}

/// Prefills without speculation.
constexpr bool reads_chunks(ForwardMode m) {
  return m == ForwardMode::kExtend || m == ForwardMode::kMixed || m == ForwardMode::kSplitPrefill;
}

/// Tokens [first, end) of a request.
struct ChunkKeys {
  int32_t first = 0, end = 0;
  bool operator==(const ChunkKeys&) const = default;
};

struct PrefixChunks {
  int32_t count = 0;      // 0: there is nothing that reads them
  int32_t len = 0;        // tokens of each request in each
  bool one_shot = false;  // one chunk, and in it the step's own tokens too

  /// Enough for every batch that fits; chunks that no request reaches have no keys.
  static PrefixChunks of(const Limits& limits) {
    const ModelConfig& m = limits.model;
    const bool any =
        std::ranges::any_of(m.layers, [](const LayerKind& k) { return reads_chunks(k); });
    if (m.prefix_chunk_tokens == 0 || !any || !reads_chunks(limits.mode)) return {};
    if (limits.most_keys() <= m.prefix_chunk_tokens) return {1, limits.max_kv_len, true};
    const int32_t len = std::max(1, m.prefix_chunk_tokens / limits.rows);
    return {static_cast<int32_t>(pages_for(limits.max_kv_len, len)), len, false};
  }

  /// What chunk c has of a request.
  ChunkKeys keys(int32_t c, const RequestExtent& e) const {
    const int64_t all = one_shot ? e.kv_len : e.prefix_len, first = int64_t{c} * len;
    return {static_cast<int32_t>(std::min(first, all)),
            static_cast<int32_t>(std::min(first + len, all))};
  }
  /// Results that are merged into one, of a request: its own tokens' and those of its chunks.
  int32_t parts(const RequestExtent& e) const {
    return one_shot || count == 0 ? 1 : 1 + static_cast<int32_t>(pages_for(e.prefix_len, len));
  }
};

}  // namespace shadowgraph
