// TensorView: a typed, strided window on memory that the caller owns. Strides count elements.
// Tested by tests/core/tensor_view_test.cc.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// Byte is std::byte (writable) or const std::byte. A writable view converts to a read-only one.
template <class Byte>
struct BasicTensorView {
  static constexpr int kMaxRank = 5;

  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  // Counts elements; may be 0 or negative in inputs
  std::array<int64_t, kMaxRank> stride{};

  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;

  BasicTensorView() = default;

  /// Dense, row-major.
  BasicTensorView(Void* memory, DType type, std::initializer_list<int64_t> dims)
      : data(static_cast<Byte*>(memory)), dtype(type), rank(static_cast<int>(dims.size())) {
    assert(rank <= kMaxRank);
    int i = 0;
    for (int64_t d : dims) shape[i++] = d;
    // Wraps on absurd shapes, which validate() refuses; unsigned so that the wrap is defined.
    uint64_t step = 1;
    for (i = rank - 1; i >= 0; --i) {
      stride[i] = static_cast<int64_t>(step);
      step *= static_cast<uint64_t>(shape[i]);
    }
  }

  /// Any strides, in elements.
  BasicTensorView(Void* memory, DType type, std::initializer_list<int64_t> dims,
                  std::initializer_list<int64_t> strides)
      : BasicTensorView(memory, type, dims) {
    assert(strides.size() == dims.size());
    int i = 0;
    for (int64_t s : strides) stride[i++] = s;
  }

  operator BasicTensorView<const std::byte>() const requires(!std::is_const_v<Byte>) {
    BasicTensorView<const std::byte> r;
    r.data = data, r.dtype = dtype, r.rank = rank, r.shape = shape, r.stride = stride;
    return r;
  }

  bool defined() const { return rank > 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  /// Offset in elements of (i0, i1, ...). Unchecked.
  template <class... Index>
  int64_t offset(Index... index) const {
    int64_t at = 0;
    int axis = 0;
    ((at += static_cast<int64_t>(index) * stride[axis++]), ...);
    return at;
  }
  /// Address of (i0, i1, ...). Unchecked.
  template <class... Index>
  Byte* at(Index... index) const {
    return data + offset(index...) * static_cast<int64_t>(size_of(dtype));
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

}  // namespace shadowgraph
