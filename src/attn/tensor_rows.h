// Rows and elements of a view. Tested by what stands on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Rows of the first axis from `first` on, `step` rows apart. What is undefined stays so.
template <class Byte>
BasicTensorView<Byte> rows_of(BasicTensorView<Byte> t, int64_t first, int64_t count,
                              int64_t step = 1) {
  if (t.data != nullptr) t.data = t.at(first);
  t.shape[0] = count;
  t.stride[0] *= step;
  return t;
}

/// The index of element number i in the order of the axes. Requires a view with elements.
template <class Byte>
std::vector<int64_t> index_of(const BasicTensorView<Byte>& t, int64_t i) {
  std::vector<int64_t> index(static_cast<size_t>(t.rank));
  for (size_t axis = index.size(); axis-- > 0; i /= t.shape[axis]) index[axis] = i % t.shape[axis];
  return index;
}

}  // namespace shadowgraph
