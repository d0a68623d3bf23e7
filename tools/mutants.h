// Mutants of a folder of `./dev recall`: one program has all of them, and runs with one. They are
// hunted with the verdicts of planted faults. Tested by tests/tools/faults_test.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"

namespace shadowgraph::cli {

struct MutantsCommand {
  std::string folder;            // of plan.json and mutant_verdict; empty: none are hunted
  std::vector<std::string> ids;  // empty: all
  std::string backend;           // of all histories; empty: all of them
  uint64_t cases = 1000;         // histories of each
  double seconds = 600;          // a mutant that lasts longer hangs
};

/// Hunts each, several at once, and adds a row for each, and findings. A process that dies, or
/// hangs, has shown its mutant. Throws UsageError.
void run_mutants(const MutantsCommand& options, const Common& common, Report* report);

}  // namespace shadowgraph::cli
