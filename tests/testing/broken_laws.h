// What a Status says, by law alone.
#pragma once

#include <string>
#include <vector>

#include "shadowgraph/status.h"

namespace shadowgraph::testing {

using Ids = std::vector<std::string>;

inline Ids ids(const Status& status) {
  Ids all;
  for (const Finding& f : status.findings()) all.push_back(f.id);
  return all;
}

}  // namespace shadowgraph::testing
