// The children of a composed backend: bound all or none. Tested by
// tests/backends/multi_step_test.cc.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Whether what a child serves, a list of its BackendInfo, has this value.
template <class T>
bool contains(std::span<const T> list, T value) {
  return std::ranges::find(list, value) != list.end();
}

/// Binds child after child into a Meta, each in an arena scope of its own.
class ChildBinder {
 public:
  /// backend: the composed one, which outlives the metadata.
  ChildBinder(const Backend& backend, const Arena& arena, const Limits& limits);

  void bind(const Backend& child, std::string_view scope, const Limits& limits);
  /// Not ok: nothing is bound, and meta as it was.
  Status finish(Meta* meta);

 private:
  Meta meta_;
  Status status_;
};

}  // namespace shadowgraph
