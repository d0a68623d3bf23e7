// One renderer a format, each in the file of its name. JSON and SARIF are pure ASCII: whatever a
// file name holds reaches a terminal only as \u escapes.
#pragma once

#include <string>

#include "report/report.h"

namespace shadowgraph {

#define SG_FORMAT(constant, name) \
  std::string render_##name(const Report& report, const RenderOptions& options);
#include "report/formats.inc"
#undef SG_FORMAT

/// "schema": "shadowgraph.list/1": kind, and items with the columns as keys.
std::string render_json(const Listing& listing);
std::string render_text(const Listing& listing, const RenderOptions& options);

}  // namespace shadowgraph
