// What `explain` can explain: each thing that a report, a list or a reference names.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace shadowgraph::cli {

struct Topic {
  std::string id;
  std::string text;
  Listing listing;       // the same for programs
  bool besides = false;  // printed behind another thing of this name, not in its place
};

/// Everything that a list prints or a finding names, but buffers: laws and their families
/// ("sparse.*"), programs, faults, mistakes, backends, engines, modes, fields and keys of traces,
/// keys of recordings, references, kernels, grids, arithmetics, targets, features. An id may come
/// twice: the first is meant, and those that are besides.
std::vector<Topic> all_topics();
/// Buffers that backends bind, by their own names and the engines'. Plays histories for a second.
std::vector<Topic> buffer_topics();

}  // namespace shadowgraph::cli
