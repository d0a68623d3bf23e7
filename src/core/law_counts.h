// How often each law was judged. A run without findings says by this what it looked at: a law that
// judged nothing was not kept, it did not run. Tested by tests/core/law_counts_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "core/laws.h"

namespace shadowgraph {

class LawCounts {
 public:
  void add(LawId law, int64_t times) { counts_[law.index()] += times; }
  void add(const LawCounts& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }
  int64_t of(LawId law) const { return counts_[law.index()]; }
  /// In the order of kLaws.
  std::span<const int64_t> all() const { return counts_; }

 private:
  std::array<int64_t, std::size(kLaws)> counts_{};
};

/// While it lives, what this thread judges is counted there, and nowhere else. Threads that it
/// starts count nothing.
class CountsJudgements {
 public:
  explicit CountsJudgements(LawCounts* counts);
  ~CountsJudgements();
  CountsJudgements(const CountsJudgements&) = delete;
  CountsJudgements& operator=(const CountsJudgements&) = delete;

 private:
  LawCounts* const before_;
};

/// Counts of several threads together.
class SharedLawCounts {
 public:
  /// Runs fn, counts what it judges, and returns its result.
  template <class Fn>
  auto count(const Fn& fn) {
    LawCounts mine;
    const CountsJudgements counts(&mine);
    auto result = fn();
    const std::lock_guard lock(mutex_);
    sum_.add(mine);
    return result;
  }
  /// The counts since the last call.
  LawCounts take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(sum_, {});
  }

 private:
  std::mutex mutex_;
  LawCounts sum_;
};

}  // namespace shadowgraph
