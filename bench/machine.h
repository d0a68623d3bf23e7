// The machine, in the words that a table of figures is headed with, and how much memory is cold on
// it. Tested by tests/bench/machine_test.cc.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace shadowgraph::bench {

/// The parts of a set of CPUs. 0: not told.
struct Topology {
  int sockets = 0, numa_nodes = 0, cores = 0;
  int most_threads_a_core = 0;               // of any core
  std::vector<std::string> last_level = {};  // size of each last-level cache: "32768K"
};
/// cpus: as Linux numbers them; sys: where it says so, /sys/devices/system.
Topology read_topology(const std::filesystem::path& sys, const std::vector<int>& cpus);

/// (what, value): cpu, cores, topology, instruction sets, caches, memory, huge pages, OpenMP's
/// waiting.
std::vector<std::pair<std::string, std::string>> describe_machine();

/// The instruction sets that the engine has a unit for, each a file of src/kernels/isa.
const std::vector<std::string>& built_isas();
/// Those of them that are not available_isas(): no test and no row of this machine runs them.
std::vector<std::string> missing_isas();

/// What calls rotate over so that no cache holds it, as no cache holds a model's layers; bytes.
struct ColdMemory {
  double wanted = 0;  // 8 times the last-level caches of our CPUs
  double bytes = 0;   // that, but 256 MiB at least, and no more than a 16th of available memory
};
/// A row has up to 7 pools and the probes' memory: they take half of what is available.
ColdMemory cold_memory(double last_level_caches, double available);
/// The memory of this machine that calls rotate over, read once.
const ColdMemory& cold_memory();

/// Bytes of a size as Linux writes it: "32768K", "5 kB", "1M", "7"; 0 if it is none.
double bytes_of(const std::string& size);

}  // namespace shadowgraph::bench
