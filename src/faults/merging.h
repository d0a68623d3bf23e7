// What a launch merges, whichever kernel it is.
#pragma once

#include <functional>
#include <vector>

#include "launch/partial_rows.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

struct Merging {
  /// The LSE of one partial result.
  struct State {
    AnyLse s;
    int64_t row = 0, head = 0;

    float natural() const { return load_lse<LseBase::kNatural>(s, row, head); }
    /// In its own base.
    float raw() const;
  };

  TensorView out;
  AnyLse lse;        // may be undefined
  int64_t rows = 0;  // without padding
  std::function<std::vector<State>(int64_t row, int64_t head)> states;

  /// What a launch that change_merge knows merges, by what memory holds now.
  static Merging of(const KernelLaunch& launch);

  /// What becomes of a row and head after all.
  void set_out(int64_t row, int64_t head, float value) const;
  void set_lse(int64_t row, int64_t head, float natural) const;
};

/// fn(row, head, states).
template <class Fn>
void for_merged(const Merging& m, Fn fn) {
  for (int64_t row = 0; row < m.rows; ++row)
    for (int64_t head = 0; head < m.out.shape[1]; ++head) fn(row, head, m.states(row, head));
}

}  // namespace shadowgraph
