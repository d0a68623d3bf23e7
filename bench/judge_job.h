// The cost of judging: jobs that are timed like calls, an item at a time. Tested by
// tests/bench/judge_job_test.cc.
#pragma once

#include <memory>
#include <string>

#include "bench/shapes.h"
#include "shadowgraph/status.h"

namespace shadowgraph::bench {

class JudgeJob {
 public:
  virtual ~JudgeJob() = default;
  /// Judges the same items again. Not ok: what was found, which nothing should be.
  virtual Status run() = 0;
  /// How many one run judges: lines, steps, cases, replays.
  virtual double items() const = 0;
  /// Whether its threads may be more than the processors.
  virtual bool is_crowded() const { return false; }
};

/// Empty, or why there is no such job here.
std::string missing_job(Judging judging);
/// Requires that it is not missing. On one thread.
std::unique_ptr<JudgeJob> make_job(Judging judging, uint64_t seed);

}  // namespace shadowgraph::bench
