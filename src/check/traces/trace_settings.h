// Which keys of a line's `config` nothing reads, found by trial: another value changes nothing that
// is found. So no list says who reads what. Tested by tests/check/trace_settings_test.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check/traces/traces.h"

namespace shadowgraph {

using TraceJudge = std::function<TraceVerdict(const TraceLine&)>;

/// Keys that the line says in `config`, each of which may have any other value without a change of
/// the verdict, which is `verdict`.
std::vector<std::string> unread_settings(const TraceLine& line, const TraceVerdict& verdict,
                                         const TraceJudge& judge);

}  // namespace shadowgraph
