// LaidCall: a call that is laid in guarded memory, and what it may have done to that. Tested by
// tests/fuzz/linear_laws_test.cc and tests/fuzz/sparse_laws_test.cc.
#pragma once

#include <vector>

#include "fuzz/call_memory.h"

namespace shadowgraph {

/// execute(call) and footprint_of(call) say what a call does. Who derives from this lays it.
template <class AnyCall>
class LaidCall {
 public:
  using Call = AnyCall;

  const Call& call() const { return call_; }
  /// Runs what was laid. Findings: what the engine refused, and writes elsewhere than in the places
  /// of its rows, or of its footprint.
  Status run() {
    Status status = execute(call_);
    if (status.ok()) status = check_writes();
    return status;
  }
  Status check_writes() const {
    Status status;
    const Footprint spans = footprint_of(call_);
    for (const CallMemory* m : {&memory_, &stored_memory_}) {
      status.add(m->check_written(written_));
      status.add(m->check_footprint(spans, written_));
    }
    return status;
  }
  /// After a call that was refused: num.write_set if anything changed.
  Status check_untouched() const {
    Status status = memory_.check_written({});
    status.add(stored_memory_.check_written({}));
    return status;
  }

 protected:
  LaidCall() = default;

  CallMemory stored_memory_, memory_;  // what later calls find, too; the call's own
  Call call_;
  std::vector<ConstTensorView> written_;  // the places of its rows
};

}  // namespace shadowgraph
