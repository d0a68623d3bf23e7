// Reports read back from their JSON form. Tested by tests/report/read_test.cc.
#pragma once

#include <string>
#include <string_view>

#include "report/report.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A report of ours: rendered again it says the same. Every fault of its form breaks io.report (of
/// a key's, io.key), and *report is then untouched; name is the file's.
Status parse_report(std::string_view text, const std::string& name, Report* report);

/// The same from a file; io.open and io.memory, too.
Status read_report(const std::string& path, Report* report);

}  // namespace shadowgraph
