// The buffers that backends bind, by name, as histories see them. `explain` says it of the buffer
// that a finding names. Tested by tests/fuzz/bound_buffers_test.cc.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A buffer of one backend.
struct BoundBuffer {
  std::string name;  // without scopes: "page_table"
  const Backend* backend = nullptr;
  std::set<Lifetime> lifetimes;         // by what the model and the mode are
  std::set<ForwardMode> modes;          // in which it is bound
  std::set<std::string_view> kernels;   // that are given it
  std::vector<const BufferInfo*> rows;  // of its backend's table
};

/// By name, then in the order of the backends. A composed backend binds those of its parts, under
/// their names. 30 histories a backend, on all cores.
std::vector<BoundBuffer> bound_buffers(std::span<const Backend* const> backends);

}  // namespace shadowgraph
