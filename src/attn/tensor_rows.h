// Rows of a view. Tested by what stands on it.
#pragma once

#include <cstdint>

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

}  // namespace shadowgraph
