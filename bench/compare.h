// Two runs of the bench, row by row: what the newer one lost. Tested by
// tests/bench/compare_test.cc.
#pragma once

#include "report/report.h"

namespace shadowgraph::bench {

/// How far a row of the same build may move from one run to the next, beyond the quartiles of both:
/// a share of its ratio. The memory of a shared host moves decode rows by up to 3 %.
inline constexpr double kRunNoise = 0.02;
/// A loss that no row with a verdict hides: where the quartiles would, the verdict is "wide".
inline constexpr double kLeastLoss = 0.05;

/// Judges the rows that both have a quiet figure of, made of the same limit with the same options.
/// A row is lost if its better quartile is worse than the old row's worse quartile by more than
/// kRunNoise of the old ratio; gained likewise.
BenchComparison compare(const Report& old_run, const Report& new_run);

/// The same, into the newer report: a finding (bench.lost) for each row that is lost, a warning for
/// each thing that makes the two runs different (machine, threads, arithmetic), and a void verdict
/// where no row could be compared. path: of the older report.
void compare_with(const Report& old_run, const std::string& path, Report* new_run);

}  // namespace shadowgraph::bench
