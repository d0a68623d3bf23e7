// A line's own names for fields (`roles`), and where an engine without a twin records what the
// scheduler said. Tested by tests/check/trace_laws_test.cc.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "check/traces/traces.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A line as its backend's fields are named.
struct NamedLine {
  /// Another field of a role: the host's copy, say.
  struct Again {
    std::string role, own;
    RecordedField field;
  };

  TraceLine line;
  std::map<std::string, std::string, std::less<>> own = {};  // name of a field -> the line's own
  std::vector<Again> again = {};
  std::vector<std::string> other_nulls = {};  // own names of nulls beside a field of their role
  std::set<std::string> moved = {};           // keys of input that are fields of the line's expect
  bool judges_input = false;                  // fields of expect became the batch's
  Status refused = {};                        // io.line: a role that the backend has not

  /// The line with the other field in its role.
  TraceLine with(const Again& other) const;
  /// Findings and what is left out tell the line's own names again.
  void tell_own_names(TraceVerdict* verdict) const;
};

/// Backend `laws` takes recorded slots and positions for the batch's, unless `input` has them, and
/// offsets for ends where the engine has them inclusive.
NamedLine name_fields(TraceLine&& line, const BackendInfo& backend);

}  // namespace shadowgraph
