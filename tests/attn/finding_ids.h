// What a Status says, short enough to compare.
#pragma once

#include <string>
#include <vector>

#include "shadowgraph/status.h"

namespace shadowgraph {

using Ids = std::vector<std::string>;

/// "id field" of each finding.
inline Ids ids(const Status& status) {
  Ids all;
  for (const Finding& f : status.findings()) all.push_back(f.id + " " + f.where.field);
  return all;
}

}  // namespace shadowgraph
