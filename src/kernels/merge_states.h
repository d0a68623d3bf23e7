// merge_states: partial results over disjoint keys into one, by their LSE (recursive attention;
// arXiv:2501.01005 2.2). Tested by tests/kernels/merge_states_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/lse.h"
#include "shadowgraph/access.h"
#include "shadowgraph/attention.h"

namespace shadowgraph {

/// Merges the states of one row, in the order they are added. Reused from row to row; allocates
/// only when made.
template <LseBase Base>
class StateMerger {
 public:
  StateMerger(int64_t most_states, int64_t head_dim) : weights_(most_states), o_(head_dim) {
    states_.reserve(most_states);
    values_.reserve(most_states);
  }

  void clear() { states_.clear(), values_.clear(); }
  /// values: head_dim floats, the state's weighted sum; must live until merge(); not read where the
  /// state is empty.
  void add(const SoftmaxState<Base>& state, const float* values) {
    states_.push_back(state);
    values_.push_back(values);
  }
  /// The merged state; its weighted sum is then o(). One state alone comes back with its values (-0
  /// as 0).
  SoftmaxState<Base> merge();
  const float* o() const { return o_.data(); }

 private:
  std::vector<SoftmaxState<Base>> states_;
  std::vector<const float*> values_;
  std::vector<float> weights_, o_;
};

/// The states to merge, as one view each, however the caller holds them.
template <LseBase Base>
struct StateViews {
  std::vector<ConstTensorView> v;  // each [rows, num_heads, head_dim]
  std::vector<ConstTensorView> s;  // each [rows, num_heads]
  TensorView out, lse;
  CallOptions options;

  static StateViews of(const MergeStates<Base>& call);
  static StateViews of(const MergeState<Base>& call);
};

/// Requires a call that validate() accepts. Throws std::bad_alloc before anything is written.
template <LseBase Base>
void merge_states_kernel(const StateViews<Base>& call);

/// Values of a state without mass are not in it.
template <LseBase Base>
Footprint merge_states_footprint(const StateViews<Base>& call);

}  // namespace shadowgraph
