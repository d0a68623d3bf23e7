// Where the elements of one token and KV head lie, as few evenly spaced runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

/// Dim first_dim + i * dim_step lies at element first + i * stride from the plane's data.
struct KvRun {
  int64_t first_dim = 0, dim_step = 1;
  int64_t first = 0, stride = 1;
  int64_t count = 0;
};

template <class Fn>
void for_each_run(const KvPlane& p, int64_t page, int64_t token, int64_t head, const Fn& fn) {
  const int64_t pair = panel_pair(p.dtype), dims = p.head_dim;
  switch (p.order) {
    case KvOrder::kStrided: return fn(KvRun{0, 1, p.offset(page, token, head, 0), 1, dims});
    case KvOrder::kKeyPanels:
      for (int64_t d = 0; d < std::min(pair, dims); ++d) {
        fn(KvRun{d, pair, p.offset(page, token, head, d), kPanelTokens * pair,
                 (dims - d + pair - 1) / pair});
      }
      return;
    case KvOrder::kValuePanels:
      for (int64_t d = 0; d < dims; d += kValueBlockDims) {
        fn(KvRun{d, 1, p.offset(page, token, head, d), pair,
                 std::min<int64_t>(kValueBlockDims, dims - d)});
      }
      return;
  }
}

/// count elements of Size bytes, each side evenly spaced; strides count elements.
template <size_t Size>
void copy_spaced(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                 int64_t count) {
  constexpr auto kSize = static_cast<int64_t>(Size);
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * Size);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_stride * kSize, from + i * from_stride * kSize, Size);
}

inline void copy_spaced(DType t, std::byte* to, int64_t to_stride, const std::byte* from,
                        int64_t from_stride, int64_t count) {
  switch (size_of(t)) {
    case 1: return copy_spaced<1>(to, to_stride, from, from_stride, count);
    case 2: return copy_spaced<2>(to, to_stride, from, from_stride, count);
    default: return copy_spaced<4>(to, to_stride, from, from_stride, count);
  }
}

}  // namespace shadowgraph
