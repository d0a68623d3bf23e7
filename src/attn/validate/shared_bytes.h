// Do two tensors share a byte? Tested by tests/attn/shared_bytes_test.cc.
#pragma once

#include <cstdint>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Steps of the search, one each for an index of an axis that is tried; then it gives up.
inline constexpr int64_t kSharedBytesSteps = int64_t{1} << 20;

enum class SharedBytes : uint8_t {
  kNone,
  kSome,
  kUndecided,  // after kSharedBytesSteps: strides that fit no common grid
};

/// By bytes, not by the first and the last address: what lies in the gaps of the other shares none.
/// Require extents within 63 bits. A null tensor, or one without elements, shares nothing. Tensors
/// whose ranges of addresses are apart cost nothing; where the axes of both nest, as those of
/// fields in one record do, the search tries one or two indices an axis.
SharedBytes shares_bytes(const ConstTensorView& a, const ConstTensorView& b);

/// First and last element, counted from data. False where their distance in bytes is far from what
/// memory has, and two such distances do not add up within 63 bits.
bool element_range(const ConstTensorView& t, int64_t* first, int64_t* last);

}  // namespace shadowgraph
