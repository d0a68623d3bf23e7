// The machine, in the words that a table of figures is headed with.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shadowgraph::bench {

/// (what, value): cpu, cores, caches, memory, huge pages, OpenMP's waiting.
std::vector<std::pair<std::string, std::string>> describe_machine();

}  // namespace shadowgraph::bench
