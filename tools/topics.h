// What `explain` can explain: each thing that a report, a list or a reference names.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace shadowgraph::cli {

struct Topic {
  std::string id;
  std::string text;
  Listing listing;  // the same for programs
};

/// Everything that a list prints or a finding names: laws, programs, faults, mistakes, backends,
/// engines, modes, fields and keys of traces, references, kernels, grids, arithmetics, targets.
/// An id may come twice: the first is meant.
std::vector<Topic> all_topics();

}  // namespace shadowgraph::cli
