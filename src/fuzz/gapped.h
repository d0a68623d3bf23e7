// Tensors in guarded memory with gaps between their rows, and what a call may have left of such
// memory.
#pragma once

#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/choices.h"
#include "fuzz/guarded.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// A tensor full of poison, aligned to its type and no better; between the elements of every axis
/// but the last there may be a gap.
TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::initializer_list<int64_t> shape,
                       Rng& rng);

enum class AxisOrder : uint8_t { kAsNamed, kAny };
/// kAny: the axes lie in any order, so that the last one may have gaps, too.
TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::span<const int64_t> shape, Rng& rng,
                       AxisOrder order);

/// [rows, heads], row by row or head by head.
TensorView make_gapped_lse(GuardedBuffer& buffer, int64_t rows, int64_t heads, Rng& rng);

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

/// num.write_set unless all but the tensor's own elements is still poison. Nothing is asked of an
/// undefined tensor.
Status check_write_set(const GuardedBuffer& buffer, const ConstTensorView& written,
                       const char* field);

}  // namespace shadowgraph
