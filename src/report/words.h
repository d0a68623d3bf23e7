// What formats say in the same words: of findings, their place, order and text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/report.h"

namespace shadowgraph {

/// "flashattention decode eager page_table[2, 5]"; of a bad line "line 3"; may be empty.
std::string place_of(const Finding& finding);

/// Indices of the findings: errors before warnings before notes, what is waived last, else in the
/// order of discovery; at most so many.
std::vector<size_t> findings_in_order(const Report& report, size_t most);

/// What there is to say of a finding, line by line: {"where", ...}, {"expected", ...}, ...
std::vector<std::pair<const char*, std::string>> details_of(const Finding& finding);

/// The warnings that are about nothing passed over.
std::vector<std::string> other_warnings(const Report& report);

/// Three lines at most: the laws that could judge and judged nothing (a whole family as
/// "sparse.*"), the runs of those that cannot, and the features that no case had.
std::vector<std::string> not_looked_at(const Report& report);

/// The judged cases, those nearest to their bounds first.
std::vector<const CaseReport*> cases_by_error(const Report& report);

/// The figures of all cases as a picture; none where there are no cases.
std::optional<Heatmap> error_map(const Report& report);

/// "seed 5  check  isa generic  arith portable  threads 2  shadowgraph 9.8.7"; a campaign's report
/// has neither isa nor threads.
std::string head_of(const Report& report);

}  // namespace shadowgraph
