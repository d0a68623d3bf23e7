// MergeProblem: two partial results of many rows, merged again and again. Tested by
// tests/bench/merge_problem_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/shapes.h"
#include "bench/timed_call.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/huge_memory.h"

namespace shadowgraph::bench {

class MergeProblem : public TimedCall {
 public:
  /// threads: for a shape that does not say. Throws std::bad_alloc.
  MergeProblem(const Shape& shape, uint64_t seed, int threads);

  Status run() override;
  /// Judges the first row, the middle one and the last.
  Status check() override;
  int threads() const override { return call_.options.num_threads; }
  const MergeState<LseBase::kNatural>& call() const { return call_; }

 private:
  HugeMemory v_a_, v_b_, out_;
  std::vector<float> s_a_, s_b_, lse_;
  MergeState<LseBase::kNatural> call_;
};

}  // namespace shadowgraph::bench
