// The cost of judging: jobs that are timed like calls, an item at a time. Tested by
// tests/bench/judge_job_test.cc.
#pragma once

#include <memory>
#include <string>

#include "bench/shapes.h"
#include "bench/timed_call.h"

namespace shadowgraph::bench {

/// run() judges the same items again: lines, steps, cases, replays.
class JudgeJob : public TimedCall {
 public:
  Status check() override { return {}; }  // run() says what it finds
  int threads() const override { return 1; }
  bool starts_threads() const override { return true; }
};

/// Empty, or why there is no such job here.
std::string missing_job(Judging judging);
/// Requires that it is not missing. On one thread.
std::unique_ptr<JudgeJob> make_job(Judging judging, uint64_t seed);

}  // namespace shadowgraph::bench
