// Scales that KV heads have for themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shadowgraph {

/// Where a request and KV head's scale stands in scales [num_kv_heads], or [batch, num_kv_heads].
inline size_t scale_index(std::span<const float> scales, int64_t request, int64_t kv_head,
                          int64_t num_kv_heads) {
  const bool shared = static_cast<int64_t>(scales.size()) == num_kv_heads;
  return static_cast<size_t>(shared ? kv_head : request * num_kv_heads + kv_head);
}

}  // namespace shadowgraph
