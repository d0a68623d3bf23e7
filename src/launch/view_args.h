// Views of any rank as arguments of a launch: their pointers, and their scalars.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "shadowgraph/kernel.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct ViewScalars {
  int64_t shape[ConstTensorView::kMaxRank], stride[ConstTensorView::kMaxRank];
  int32_t rank;
  DType dtype;
  uint8_t unused[3];
};
static_assert(sizeof(ViewScalars) == 10 * 8 + 8);

inline ViewScalars view_scalars(const ConstTensorView& t) {
  ViewScalars s{};
  s.rank = t.rank;
  s.dtype = t.dtype;
  std::copy_n(t.shape.begin(), t.rank, s.shape);
  std::copy_n(t.stride.begin(), t.rank, s.stride);
  return s;
}

inline TensorView any_view(void* data, const ViewScalars& s) {
  TensorView t;
  t.data = static_cast<std::byte*>(data);
  t.dtype = s.dtype;
  t.rank = s.rank;
  std::copy_n(s.shape, s.rank, t.shape.begin());
  std::copy_n(s.stride, s.rank, t.stride.begin());
  return t;
}

/// The pointers of all of them, then one scalar with the rest.
template <size_t n>
KernelArgs& add_views(KernelArgs& args, const std::array<ConstTensorView, n>& views) {
  std::array<ViewScalars, n> scalars;
  for (size_t i = 0; i < n; ++i) {
    args.pointer(views[i].data);
    scalars[i] = view_scalars(views[i]);
  }
  return args.scalar(scalars);
}
/// first: the argument that is the first view's pointer.
template <size_t n>
std::array<TensorView, n> views_of(const LaunchFrame& f, size_t first) {
  const auto scalars = f.scalar<std::array<ViewScalars, n>>(first + n);
  std::array<TensorView, n> views;
  for (size_t i = 0; i < n; ++i) views[i] = any_view(f.pointer<void>(first + i), scalars[i]);
  return views;
}

}  // namespace shadowgraph
