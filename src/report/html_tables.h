// Tables of an HTML report; each is "" where there is nothing to show.
#pragma once

#include <string>

#include "report/report.h"

namespace shadowgraph {

/// Planted faults, and who noticed them.
std::string html_faults(const Report& report);

/// What was covered: files, backends by mode and phase, programs, shapes, histograms.
std::string html_tables(const Report& report);

}  // namespace shadowgraph
