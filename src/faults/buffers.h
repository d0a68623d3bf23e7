// What faults do with a step's metadata, whoever's it is: buffers by the names that they have.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Without the scopes before it.
inline std::string_view own_name(const Buffer& b) {
  return std::string_view(b.name).substr(b.name.rfind('/') + 1);
}

/// A fault asked for what is not there; Taps make a finding of it.
struct PlantError {
  Finding finding;  // fault.plant
};
[[noreturn]] void refuse_plant(const Meta& meta, std::string_view what, std::string expected,
                               std::string got);

/// fn(meta) for it and all its children, each before its own; in the same order always.
template <class M, class Fn>
void for_metas(M& meta, Fn fn) {
  fn(meta);
  for (auto& child : meta.children) for_metas(child, fn);
}

/// The same for what a backend of this class has bound.
template <class B, class M, class Fn>
void for_metas_of(M& meta, Fn fn) {
  for_metas(meta, [&](auto& m) {
    if (dynamic_cast<const B*>(m.backend) != nullptr) fn(m);
  });
}

/// fn(meta, buffer) for every bound buffer that has one of these names, of children too.
template <class M, class Fn>
void for_buffers(M& meta, std::initializer_list<std::string_view> names, Fn fn) {
  for_metas(meta, [&](auto& m) {
    for (auto& b : m.buffers) {
      if (b.data != nullptr && std::ranges::find(names, own_name(b)) != names.end()) fn(m, b);
    }
  });
}

/// The same for names that end so: "kv_indptr" is "wrapper0_kv_indptr", too.
template <class M, class Fn>
void for_endings(M& meta, std::span<const std::string_view> endings, Fn fn) {
  for_metas(meta, [&](auto& m) {
    for (auto& b : m.buffers) {
      const auto ends = [&](std::string_view ending) { return own_name(b).ends_with(ending); };
      if (b.data != nullptr && std::ranges::any_of(endings, ends)) fn(m, b);
    }
  });
}
template <class M, class Fn>
void for_endings(M& meta, std::initializer_list<std::string_view> endings, Fn fn) {
  for_endings(meta, std::span(endings.begin(), endings.size()), fn);
}

/// The first of this name in the metadata itself, or nullptr.
const Buffer* find_buffer(const Meta& meta, std::string_view name);

/// Throws PlantError where these are no elements of the buffer, or of another size.
void check_plant(const Meta& meta, const Buffer& b, Elements range, size_t element_bytes);

/// What fill has staged of these elements, to be changed, and is uploaded then.
template <class T>
std::span<T> staged(const Meta& meta, const Buffer& b, Elements range) {
  check_plant(meta, b, range, sizeof(T));
  std::span<T> values;
  Arena arena = meta.arena;
  const Status status = arena.stage(b, range, &values);
  if (!status.ok()) refuse_plant(meta, own_name(b), "staging", status.to_string());
  return values;
}
template <class T>
std::span<T> staged(const Meta& meta, const Buffer& b) {
  return staged<T>(meta, b, b.all());
}
/// All of the buffer of this name; empty where it is not bound.
std::span<int32_t> staged_ints(const Meta& meta, std::string_view name);
/// As bytes, whatever its type.
std::span<std::byte> staged_bytes(const Meta& meta, const Buffer& b, Elements range);

/// A scalar by its backend's numbering. Throws PlantError.
int64_t& scalar_of(Meta& meta, size_t scalar);

/// Only this range of what fill has staged is uploaded.
void keep_staged(const Meta& meta, const Buffer& b, Elements range);

/// Requires the metadata of a whole step, not a child's. A dummy batch has no requests.
inline bool is_replay(const ForwardBatch& batch, const Meta& meta) {
  return meta.limits.is_bucket() && batch.size() > 0;
}

/// The batch's requests among the rows of these limits, and their tokens.
struct RealRows {
  int64_t rows = 0, tokens = 0;
};
RealRows real_rows(const ForwardBatch& batch, const Limits& limits);

/// Bound anew, in a scope of its own, with another shape; as it was where the arena is full.
bool rebind(const Meta& meta, std::string_view scope, std::vector<int64_t> shape, Buffer* b);

}  // namespace shadowgraph
