// Lists of AttentionTerms in which a request has entries of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shadowgraph {

/// The index of a request and KV head in scales [num_kv_heads], or [batch, num_kv_heads].
inline size_t scale_index(std::span<const float> scales, int64_t request, int64_t kv_head,
                          int64_t num_kv_heads) {
  const bool shared = static_cast<int64_t>(scales.size()) == num_kv_heads;
  return static_cast<size_t>(shared ? kv_head : request * num_kv_heads + kv_head);
}
/// The scale there; 1 where there are no scales.
inline float head_scale(std::span<const float> scales, int64_t request, int64_t kv_head,
                        int64_t num_kv_heads) {
  return scales.empty() ? 1 : scales[scale_index(scales, request, kv_head, num_kv_heads)];
}

/// The rows that a request uses of the rows between its offsets.
inline int32_t used_rows(std::span<const int32_t> seqused, size_t request, int32_t rows) {
  return seqused.empty() ? rows : seqused[request];
}

}  // namespace shadowgraph
