// The part of a text report that `bench` fills.
#pragma once

#include <string>

#include "report/bench_report.h"
#include "report/table.h"

namespace shadowgraph {

std::string bench_text(const BenchReport& report, const Style& style);

}  // namespace shadowgraph
