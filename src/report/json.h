// JSON reports. Pure ASCII: whatever a file name holds reaches a terminal only as \u escapes.
#pragma once

#include <string>

#include "report/report.h"

namespace shadowgraph {

/// "schema": "shadowgraph.report/1".
std::string render_json(const Report& report, const RenderOptions& options);
/// "schema": "shadowgraph.list/1": kind, and items with the columns as keys.
std::string render_json(const Listing& listing);

}  // namespace shadowgraph
