// What the system says of a piece of this process's memory.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace shadowgraph {

/// The flags of the mapping that holds p, each between spaces ("hg": huge pages were asked for); ""
/// where the system tells none, or has no huge pages.
inline std::string mapping_flags(const void* p) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) return "";
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      here = begin <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

inline bool asks_for_huge_pages(const std::string& flags) {
  return flags.find(" hg ") != std::string::npos;
}

}  // namespace shadowgraph
