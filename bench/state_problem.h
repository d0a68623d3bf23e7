// StateProblem: a Shape of recurrent states with its memory, ready to be called again and again.
// Tested by tests/bench/state_problem_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/machine.h"
#include "bench/shapes.h"
#include "bench/timed_call.h"
#include "shadowgraph/huge_memory.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph::bench {

class StateProblem : public TimedCall {
 public:
  /// threads: for a shape that does not say. Calls rotate over states of cold_bytes together, as a
  /// model's layers do. Throws std::bad_alloc.
  StateProblem(const Shape& shape, uint64_t seed, int threads,
               double cold_bytes = cold_memory().bytes);

  const Shape& shape() const { return shape_; }
  int threads() const override { return call_.options.num_threads; }
  bool hot() const override { return shape_.hot; }
  int64_t num_sets() const { return num_sets_; }

  /// One call, on the next set of slots.
  Status run() override;
  /// The call that run() made last.
  const LinearAttention& call() const { return call_; }

  /// Makes the last call once more and holds it against the oracle: out and state of the first
  /// request's first head and of the last one's last. `spoil` may change the results before they
  /// are judged.
  Status check(void (*spoil)(const LinearAttention&));
  Status check() override { return check(nullptr); }

 private:
  struct OneHead;
  void make_inputs(uint64_t seed);

  Shape shape_;
  HugeMemory q_, k_, v_, out_, states_;
  std::vector<float> log_decay_, beta_, skip_;
  std::vector<int32_t> cu_seqlens_q_, slots_;  // slots_: [num_sets, batch]
  int64_t num_sets_ = 1, next_ = 0;
  LinearAttention call_;
};

}  // namespace shadowgraph::bench
