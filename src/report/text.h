// Reports for people: aligned tables, the worst first, a plain sentence at the end.
#pragma once

#include <string>

#include "report/report.h"

namespace shadowgraph {

std::string render_text(const Report& report, const RenderOptions& options);
std::string render_text(const Listing& listing, const RenderOptions& options);

}  // namespace shadowgraph
