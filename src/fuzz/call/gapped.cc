#include "fuzz/call/gapped.h"

#include <array>
#include <numeric>
#include <utility>

namespace shadowgraph {
namespace {

/// Half of all end at a closed page, some begin there, others lie between.
GuardedBuffer place(int64_t bytes, int64_t size, bool dense, Rng& rng, std::byte poison) {
  constexpr int64_t kLine = 64;
  if (dense) return {bytes, (kLine - bytes % kLine) % kLine, poison, Side::kBack};
  const uint32_t off = rng.below(8);
  if (off >= 4) return {bytes, 0, poison, Side::kBack};
  return {bytes, off == 0 ? 0 : kLine + off * size, poison};
}

}  // namespace

int64_t elements_between(const TensorView& t) {
  int64_t last = 0;
  for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i) {
    if (t.shape[i] == 0) return 0;
    last += (t.shape[i] - 1) * t.stride[i];
  }
  return last + 1;
}

TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::initializer_list<int64_t> shape,
                       Rng& rng) {
  return make_gapped(buffer, dtype, std::span(shape.begin(), shape.size()), rng,
                     AxisOrder::kAsNamed);
}

TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::span<const int64_t> shape, Rng& rng,
                       AxisOrder order, std::byte poison) {
  TensorView t(nullptr, dtype, {});
  t.rank = static_cast<int>(shape.size());
  std::array<size_t, TensorView::kMaxRank> axes{};  // outermost first
  std::iota(axes.begin(), axes.end(), size_t{0});
  for (size_t i = shape.size(); order == AxisOrder::kAny && i > 1; --i)
    std::swap(axes[i - 1], axes[rng.below(static_cast<uint32_t>(i))]);
  const uint32_t widest = order == AxisOrder::kDense || rng.below(3) == 0 ? 1 : 4;
  int64_t extent = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const size_t axis = axes[i];
    t.shape[axis] = shape[axis], t.stride[axis] = extent;
    extent = extent * shape[axis] + (i > 0 ? rng.below(widest) : 0);
  }
  const auto size = static_cast<int64_t>(size_of(dtype));
  buffer = place(elements_between(t) * size, size, order == AxisOrder::kDense, rng, poison);
  t.data = buffer.data();
  return t;
}

std::vector<std::byte> gather(const ConstTensorView& t) {
  std::vector<std::byte> elements;
  elements.reserve(static_cast<size_t>(t.numel()) * size_of(t.dtype));
  for_each_run(t, [&](const std::byte* at, size_t bytes) {
    elements.insert(elements.end(), at, at + bytes);
  });
  return elements;
}

void scatter(std::span<const std::byte> elements, const TensorView& t) {
  if (elements.empty()) return;  // rows of no elements have no memory
  for_each_run(t, [&](std::byte* at, size_t bytes) {
    std::memcpy(at, elements.data(), bytes);
    elements = elements.subspan(bytes);
  });
}

}  // namespace shadowgraph
