// Plots of what the bench measured, as SVG documents. Tested by tests/bench/plots_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/run_rows.h"
#include "report/bench_report.h"

namespace shadowgraph::bench {

/// Bars: the rows that divide by a limit of the machine, their quartiles, their goals as ticks. A
/// row that is void or not quiet is grey and says so.
std::string share_plot(const std::vector<BenchRow>& rows, std::string_view machine);

struct Curve {
  std::string name;
  std::vector<SeriesPoint> points;
};

/// Time of a call against its length, both logarithmic; dashed: what the machine's limit allows.
std::string time_plot(std::string_view title, const std::vector<Curve>& curves,
                      std::string_view machine);

}  // namespace shadowgraph::bench
