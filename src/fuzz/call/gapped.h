// Tensors in guarded memory with gaps between their rows.
#pragma once

#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/choices.h"
#include "fuzz/call/guarded.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// A tensor full of poison, aligned to its type and no better; between the elements of every axis
/// but the last there may be a gap.
TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::initializer_list<int64_t> shape,
                       Rng& rng);

enum class AxisOrder : uint8_t { kAsNamed, kAny, kDense };
/// kAny: the axes lie in any order, so that the last one may have gaps, too. kDense: as named,
/// without gaps, from a boundary of 64 bytes.
TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::span<const int64_t> shape, Rng& rng,
                       AxisOrder order, std::byte poison = kPoison);

/// Elements from the first to the last, those in gaps too.
int64_t elements_between(const TensorView& t);

/// visit(address, bytes) of runs of a tensor's elements, in row-major order.
template <class Byte, class Visit>
void for_each_run(const BasicTensorView<Byte>& t, const Visit& visit, int axis = 0,
                  int64_t first = 0) {
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  const bool run = axis == t.rank - 1 && t.stride[static_cast<size_t>(axis)] == 1;
  if (run || axis == t.rank) {
    const int64_t count = run ? t.shape[static_cast<size_t>(axis)] : 1;
    visit(t.data + first * size, static_cast<size_t>(count * size));
    return;
  }
  const auto a = static_cast<size_t>(axis);
  for (int64_t i = 0; i < t.shape[a]; ++i)
    for_each_run(t, visit, axis + 1, first + i * t.stride[a]);
}

/// A tensor's elements, row-major, and back.
std::vector<std::byte> gather(const ConstTensorView& t);
void scatter(std::span<const std::byte> elements, const TensorView& t);

}  // namespace shadowgraph
