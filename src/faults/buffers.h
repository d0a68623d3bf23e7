// What faults do with a step's metadata, whoever's it is: buffers by the names that they have.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "shadowgraph/backend.h"

namespace shadowgraph {

/// Without the scopes before it.
inline std::string_view own_name(const Buffer& b) {
  return std::string_view(b.name).substr(b.name.rfind('/') + 1);
}

/// fn(meta, buffer) for every bound buffer that has one of these names, of children too.
template <class M, class Fn>
void for_buffers(M& meta, std::initializer_list<std::string_view> names, Fn fn) {
  for (auto& b : meta.buffers) {
    if (b.data != nullptr && std::ranges::find(names, own_name(b)) != names.end()) fn(meta, b);
  }
  for (auto& child : meta.children) for_buffers(child, names, fn);
}

/// What fill has staged of it, to be changed; empty: not to be had.
template <class T>
std::span<T> staged(const Meta& meta, const Buffer& b) {
  std::span<T> values;
  Arena arena = meta.arena;
  if (!arena.stage(b, b.all(), &values).ok()) return {};
  return values;
}

}  // namespace shadowgraph
