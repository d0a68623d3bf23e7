#include "bench/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "bench/contention.h"
#include "bench/team.h"
#include "bench/units/best.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::bench {
namespace {

/// The value of the first line "key : value" of a file; empty if there is none.
std::string value_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

struct Cache {
  std::string level, type, size, shared_by;
};

constexpr char kSys[] = "/sys/devices/system";

/// A CPU's caches of data, the last level last.
std::vector<Cache> caches_of(const std::filesystem::path& sys, int cpu) {
  std::vector<Cache> caches;
  for (int i = 0; i < 8; ++i) {
    const auto read = [&](const char* what) {
      return first_line(sys / fmt::format("cpu/cpu{}/cache/index{}/{}", cpu, i, what));
    };
    Cache cache{read("level"), read("type"), read("size"), read("shared_cpu_list")};
    if (!cache.level.empty() && cache.type != "Instruction") caches.push_back(std::move(cache));
  }
  return caches;
}

/// "generic, avx2; not here: avx512"
std::string isas() {
  const std::vector<std::string> missing = missing_isas();
  return fmt::format("{}{}{}", fmt::join(available_isas(), ", "),
                     missing.empty() ? "" : "; not here: ", fmt::join(missing, ", "));
}

/// "L1d 32K, L2 1024K, L3 32768K" of the first CPU.
std::string caches() {
  std::string list;
  for (const Cache& c : caches_of(kSys, 0)) {
    list += fmt::format("{}L{}{} {}", list.empty() ? "" : ", ", c.level,
                        c.type == "Data" ? "d" : "", c.size);
  }
  return list;
}

/// The memory node of a CPU: "node0"; empty: not told.
std::string node_of(const std::filesystem::path& sys, int cpu) {
  std::error_code error;
  const std::filesystem::path folder = sys / fmt::format("cpu/cpu{}", cpu);
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    if (name.starts_with("node")) return name;
  }
  return "";
}

/// Bytes of all last-level caches that our CPUs have; 0 where that is not told.
double last_level_caches() {
  double bytes = 0;
  for (const std::string& size : read_topology(kSys, cpus()).last_level) bytes += bytes_of(size);
  return bytes;
}

std::string count_of(int n, const char* what) {
  return n == 0 ? fmt::format("{}s not told", what)
                : fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

/// "1 socket, 1 NUMA node, 2 cores, 1 thread a core, 1 last-level cache (32768K)"
std::string words_of(const Topology& t) {
  std::string sizes;
  for (const std::string& size : t.last_level)
    if (sizes.find(size) == std::string::npos) sizes += (sizes.empty() ? " (" : ", ") + size;
  return fmt::format("{}, {}, {}, {} a core, {}{}", count_of(t.sockets, "socket"),
                     count_of(t.numa_nodes, "NUMA node"), count_of(t.cores, "core"),
                     count_of(t.most_threads_a_core, "thread"),
                     count_of(static_cast<int>(t.last_level.size()), "last-level cache"),
                     sizes.empty() ? "" : sizes + ')');
}

/// Bytes that this process may take without anybody swapping: the machine's, and its container's.
double available_memory() {
  const double machine = bytes_of(value_in("/proc/meminfo", "MemAvailable"));
  const double container = bytes_of(first_line("/sys/fs/cgroup/memory.max"));  // 0: "max", or none
  return container > 0 ? std::min(container, machine) : machine;
}

/// The processor's name, or where it has none its kind: "aarch64".
std::string cpu_name() {
  std::string name = value_in("/proc/cpuinfo", "model name");
  struct utsname kernel {};
  if (name.empty() && uname(&kernel) == 0) name = kernel.machine;
  return name;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "unset";
}

/// The word in brackets: "always [madvise] never".
std::string chosen(const std::string& choices) {
  const size_t begin = choices.find('['), end = choices.find(']');
  if (begin == std::string::npos || end == std::string::npos) return choices;
  return choices.substr(begin + 1, end - begin - 1);
}

}  // namespace

Topology read_topology(const std::filesystem::path& sys, const std::vector<int>& cpus) {
  std::set<std::string> sockets, nodes;
  std::map<std::string, int> cores;         // threads of each, by its siblings
  std::map<std::string, std::string> last;  // size of each cache, by the CPUs that share it
  for (const int cpu : cpus) {
    const std::filesystem::path topology = sys / fmt::format("cpu/cpu{}/topology", cpu);
    sockets.insert(first_line(topology / "physical_package_id"));
    nodes.insert(node_of(sys, cpu));
    ++cores[first_line(topology / "thread_siblings_list")];
    const std::vector<Cache> caches = caches_of(sys, cpu);
    if (!caches.empty()) last[caches.back().shared_by] = caches.back().size;
  }
  // If one CPU does not tell it, no CPU does.
  sockets.erase(""), nodes.erase(""), cores.erase("");
  Topology t{static_cast<int>(sockets.size()), static_cast<int>(nodes.size()),
             static_cast<int>(cores.size()), 0};
  for (const auto& [siblings, threads] : cores)
    t.most_threads_a_core = std::max(t.most_threads_a_core, threads);
  for (const auto& [shared_by, size] : last) t.last_level.push_back(size);
  return t;
}

const std::vector<std::string>& built_isas() {
  static const std::vector<std::string> names = [] {
    std::istringstream list(SG_BENCH_ISAS);
    return std::vector<std::string>(std::istream_iterator<std::string>(list), {});
  }();
  return names;
}

std::vector<std::string> missing_isas() {
  std::vector<std::string> missing;
  for (const std::string& isa : built_isas())
    if (!has_isa(isa)) missing.push_back(isa);
  return missing;
}

std::vector<std::pair<std::string, std::string>> describe_machine() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  return {
      {"cpu", cpu_name()},
      {"cores", fmt::format("{} ({} CPUs)", num_cores(), cpus().size())},
      {"topology", words_of(read_topology(kSys, cpus()))},
      {"instruction_sets", isas()},
      {"caches", caches()},
      {"memory", fmt::format("{:.0f} GiB", gib)},
      {"huge_pages", chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled"))},
      {"OMP_WAIT_POLICY", environment("OMP_WAIT_POLICY")},
      {"OMP_PROC_BIND", environment("OMP_PROC_BIND")},
  };
}

double bytes_of(const std::string& size) {
  char* unit = nullptr;
  const double number = std::strtod(size.c_str(), &unit);
  while (*unit == ' ') ++unit;
  switch (std::toupper(static_cast<unsigned char>(*unit))) {
    case 'K': return number * (1 << 10);
    case 'M': return number * (1 << 20);
    case 'G': return number * (1 << 30);
    default: return number;
  }
}

ColdMemory cold_memory(double last_level_caches, double available) {
  constexpr double kLeast = 256.0 * (1 << 20), kTimes = 8, kShare = 1.0 / 16;
  const double wanted = kTimes * last_level_caches;
  return {wanted, std::max(kLeast, std::min(wanted, kShare * available))};
}

const ColdMemory& cold_memory() {
  static const ColdMemory cold = cold_memory(last_level_caches(), available_memory());
  return cold;
}

}  // namespace shadowgraph::bench
