// Any small convolution, drawn.
#pragma once

#include <rapidcheck.h>

#include <initializer_list>
#include <vector>

#include "kernels/small_conv.h"

namespace shadowgraph {

template <class T>
T pick(std::initializer_list<T> of) {
  return *rc::gen::elementOf(std::vector<T>(of));
}
inline int64_t between(int64_t low, int64_t high) { return *rc::gen::inRange(low, high + 1); }

/// Rows of any kind: some without tokens, some padding, some that start from zero, some a tree.
inline SmallConv any_conv() {
  SmallConv s;
  s.type = pick({DType::kF32, DType::kF16, DType::kBF16});
  s.dim = between(1, 5), s.width = between(2, 8);
  s.with_bias = *rc::gen::arbitrary<bool>(), s.channels_first = *rc::gen::arbitrary<bool>();
  s.pad = pick({PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero});
  s.options.num_threads = static_cast<int>(between(1, 3));
  const int64_t rows = between(0, 4);
  std::vector<int32_t> free_slots = {4, 0, 5, 2, 1};
  for (int64_t r = 0; r < rows; ++r) {
    const bool pad = between(0, 4) == 0;
    s.add_row(static_cast<int32_t>(between(0, 12)), pad ? -1 : free_slots.back(),
              *rc::gen::arbitrary<bool>());
    if (!pad) free_slots.pop_back();
  }
  if (*rc::gen::arbitrary<bool>()) s.has.clear();
  if (*rc::gen::arbitrary<bool>()) {
    s.places = rows + 1, s.steps = 13;
    s.windows_of_padding = *rc::gen::arbitrary<bool>();
    for (int64_t r = 0; r < rows; ++r) s.draft_indices.push_back(static_cast<int32_t>(rows - r));
  }
  if (*rc::gen::arbitrary<bool>()) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t tokens = s.cu[static_cast<size_t>(r) + 1] - s.cu[static_cast<size_t>(r)];
      for (int64_t j = 0; j < tokens; ++j)
        s.parents.push_back(j == 0 ? -7 : static_cast<int32_t>(between(0, j - 1)));
    }
  }
  return s;
}

}  // namespace shadowgraph
