// TimedCall: a shape with its memory, ready to be called again and again. Attention (problem.h),
// recurrent states (state_problem.h), merges (merge_problem.h) and judging (judge_job.h) are such.
#pragma once

#include "shadowgraph/status.h"

namespace shadowgraph::bench {

class TimedCall {
 public:
  virtual ~TimedCall() = default;
  /// Not ok: what was refused, or what a judge found, which nothing should be.
  virtual Status run() = 0;
  /// Holds the last run's result against the oracle. Not ok: what is wrong with it.
  virtual Status check() = 0;
  virtual int threads() const = 0;
  /// Does a cache level hold what it reads?
  virtual bool hot() const { return false; }
  /// A run may be of many items, and is timed by the item.
  virtual double items() const { return 1; }
  /// Does it start threads of its own, which inherit where this one may run?
  virtual bool starts_threads() const { return false; }
  /// May its threads be more than the processors?
  virtual bool is_crowded() const { return false; }
};

}  // namespace shadowgraph::bench
