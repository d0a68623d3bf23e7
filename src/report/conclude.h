// The conclusion of a run, once all its cases are counted. Parts of a run are joined without it
// (merge.h), and the sum says it anew. Tested by tests/report/conclude_test.cc.
#pragma once

#include <string>

#include "report/report.h"

namespace shadowgraph {

/// How to give a plant more to act on.
inline constexpr const char* kMoreCases = "give it more cases: --cases, --seconds, another --seed";

/// The run proves nothing: the verdict, "K31 never acted", and a warning that begins with it.
void add_void(const std::string& verdict, const std::string& why, Report* report);

/// Judges what was planted. A run must not look clean whose fault never acted or was inert
/// (add_void), or changed something and was not noticed (fault.missed). more: how to give it more
/// to act on.
void judge_plants(const std::string& more, Report* report);

/// Judges the rows of Report::faults: of those that are inert or never acted nothing is proved
/// (add_void).
void judge_faults(Report* report);

/// Both; and neither must a run that judged nothing. nothing: why it did not.
void conclude(const std::string& nothing, const std::string& more, Report* report);

/// Takes back what these said.
void take_back(Report* report);

}  // namespace shadowgraph
