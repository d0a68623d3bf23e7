#include "bench/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "bench/team.h"

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

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "L1d 32K, L2 1024K, L3 32768K" of the first CPU.
std::string caches() {
  std::string list;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = first_line(folder + "level"), type = first_line(folder + "type");
    if (level.empty() || type == "Instruction") continue;
    list += fmt::format("{}L{}{} {}", list.empty() ? "" : ", ", level, type == "Data" ? "d" : "",
                        first_line(folder + "size"));
  }
  return list;
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

std::vector<std::pair<std::string, std::string>> describe_machine() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  return {
      {"cpu", value_in("/proc/cpuinfo", "model name")},
      {"cores", fmt::format("{} ({} CPUs)", num_cores(), cpus().size())},
      {"caches", caches()},
      {"memory", fmt::format("{:.0f} GiB", gib)},
      {"huge_pages", chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled"))},
      {"OMP_WAIT_POLICY", environment("OMP_WAIT_POLICY")},
      {"OMP_PROC_BIND", environment("OMP_PROC_BIND")},
  };
}

}  // namespace shadowgraph::bench
