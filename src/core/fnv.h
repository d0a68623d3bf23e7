// A hash that is the same on every machine, now and later: FNV-1a, 64 bits (Fowler, Noll, Vo).
#pragma once

#include <cstdint>
#include <string_view>

namespace shadowgraph {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

/// The hash of text, behind the texts that gave `hash`.
inline uint64_t fnv1a(std::string_view text, uint64_t hash = kFnvStart) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace shadowgraph
