// Is what a changed call left right? By the oracle of the call that it now is, whatever it was made
// from. Tested by tests/fuzz/call_grid_test.cc.
#pragma once

#include <deque>
#include <vector>

#include "fuzz/call/kernel_calls.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A call as it is before it runs: with copies of what it reads and overwrites.
template <class AnyCall>
class CallBefore {
 public:
  /// Requires a call whose copied() is backed by memory.
  explicit CallBefore(const AnyCall& call);
  /// The memory that is copied: whole tensors, also where the call names a part of them.
  static Footprint copied(const AnyCall& call);
  CallBefore(const CallBefore&) = delete;
  CallBefore& operator=(const CallBefore&) = delete;
  const AnyCall& call() const { return call_; }

 private:
  void keep(TensorView* t);

  std::deque<std::vector<std::byte>> bytes_;
  AnyCall call_;
};

/// call: was taken, and has run. before: that call.
Status judge_mutant(const AttentionCall& call, const AttentionCall& before);
Status judge_mutant(const MergeCall& call, const MergeCall& before);
Status judge_mutant(const StateCall& call, const StateCall& before);
Status judge_mutant(const GateCall& call, const GateCall& before);
Status judge_mutant(const SparseCall& call, const SparseCall& before);
Status judge_mutant(const CacheCall& call, const CacheCall& before);

/// The engine's answer to a call before it runs.
Status validate_any(const AttentionCall& call);
Status validate_any(const MergeCall& call);
Status validate_any(const StateCall& call);
Status validate_any(const GateCall& call);
Status validate_any(const SparseCall& call);
Status validate_any(const CacheCall& call);

}  // namespace shadowgraph
