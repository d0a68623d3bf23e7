// A line's own names for fields (`roles`), and where an engine without a twin records what the
// scheduler said. Tested by tests/check/trace_laws_test.cc.
#pragma once

#include <map>
#include <string>

#include "check/traces/traces.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A line as its backend's fields are named.
struct NamedLine {
  TraceLine line;
  std::map<std::string, std::string, std::less<>> own;  // name of a field -> the line's own
  Status refused;                                       // io.line: two fields have one role

  /// Findings and what is left out tell the line's own names again.
  void tell_own_names(TraceVerdict* verdict) const;
};

/// Backend `laws` takes recorded slots and positions for the batch's, unless `input` has them, and
/// offsets for ends where the engine has them inclusive.
NamedLine name_fields(const TraceLine& line, const BackendInfo& backend);

}  // namespace shadowgraph
