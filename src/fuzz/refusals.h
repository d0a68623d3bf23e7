// Calls that are broken in one place: each is refused under the law that it breaks, and changes
// nothing. Tested by tests/fuzz/linear_laws_test.cc and tests/fuzz/sparse_refusals_test.cc.
#pragma once

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/laws.h"
#include "fuzz/gapped.h"

namespace shadowgraph {

/// Memory of the lists and tables of a broken call.
struct Spoils {
  std::deque<std::vector<int32_t>> numbers;
  std::vector<int64_t> slots;
  std::vector<uint8_t> flags;
  std::vector<std::byte> bytes;

  std::vector<int32_t>& copy(std::span<const int32_t> list) {
    return numbers.emplace_back(list.begin(), list.end());
  }
  /// A table's elements, dense.
  ConstTensorView copy(const ConstTensorView& table) {
    bytes = gather(table);
    return {bytes.data(), table.dtype, {table.shape[0], table.shape[1]}};
  }
};

/// A way to break a call.
template <class Call>
struct Breakage {
  const char* name;
  LawId law;
  /// Breaks it, and says so; false: the call has nothing of the kind.
  bool (*apply)(Call* call, Spoils* spoils);
};

/// The call of a scene that is laid, broken in that way: what is wrong with how execute(call)
/// refused it. Nothing of what it is not subject to.
template <class Scene>
Status check_breakage(const Scene& scene, const Breakage<typename Scene::Call>& b, bool* applied) {
  typename Scene::Call call = scene.call();
  Spoils spoils;
  *applied = b.apply(&call, &spoils);
  Status status;
  if (!*applied) return status;
  const Status said = execute(call);
  const std::string_view id = b.law.law().id;
  const bool named =
      std::ranges::any_of(said.findings(), [&](const Finding& f) { return f.id == id; });
  if (!named)
    status.add(
        make_finding(b.law, at(b.name), "refused under " + std::string(id), said.to_string()));
  status.add(scene.check_untouched());
  return status;
}

/// With the first of so many drawn that fits.
template <class Scene>
Status check_refusal(const Scene& scene, std::span<const Breakage<typename Scene::Call>> breakages,
                     int tries, Rng& rng) {
  bool applied = false;
  for (int i = 0; i < tries; ++i) {
    const auto pick = rng.below(static_cast<uint32_t>(breakages.size()));
    Status status = check_breakage(scene, breakages[pick], &applied);
    if (applied) return status;
  }
  return {};
}

}  // namespace shadowgraph
