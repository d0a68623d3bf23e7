// merge_states: partial results over disjoint keys into one, by their LSE (recursive attention;
// arXiv:2501.01005 2.2). Tested by tests/kernels/merge_states_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/lse.h"
#include "kernels/isa/units.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// Merges the states of one row, in the order they are added. Reused from row to row; allocates
/// only when made.
template <LseBase Base>
class StateMerger {
 public:
  explicit StateMerger(int64_t most_states) : weights_(most_states) {
    states_.reserve(most_states);
    values_.reserve(most_states);
  }

  void clear() { states_.clear(), values_.clear(); }
  /// values: of the state, f32, f16 or bf16; must live until they are written; not read where the
  /// state is empty.
  void add(const SoftmaxState<Base>& state, const std::byte* values, DType dtype) {
    states_.push_back(state);
    values_.push_back({values, dtype, 0});
  }
  /// The merged state; write() then has its values.
  SoftmaxState<Base> merge();
  /// Their weighted sum times weight over d, `count` of them; 0 where the state is empty. One state
  /// alone comes back with its values (-0 as 0), if weight and d are 1.
  void write(const Isa& isa, float weight, float d, int64_t count, std::byte* out,
             DType dtype) const;

 private:
  std::vector<SoftmaxState<Base>> states_;
  std::vector<WeightedRow> values_;  // after merge(): of states that have mass
  std::vector<float> weights_;
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
