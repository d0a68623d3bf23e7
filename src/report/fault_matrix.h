// The matrix of faults and backends, in the forms that people look at.
#pragma once

#include <string>

#include "report/report.h"
#include "report/table.h"

namespace shadowgraph {

/// A mark for each pair, what the columns are, and why pairs were not found; empty without pairs.
std::string matrix_text(const Report& report, const Style& style);
std::string matrix_html(const Report& report);

}  // namespace shadowgraph
