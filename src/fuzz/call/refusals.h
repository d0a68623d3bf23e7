// Calls that are broken in one place: each is refused under the law that it breaks, and changes
// nothing. Tested by tests/fuzz/refusals_test.cc.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "core/laws.h"
#include "fuzz/call/kernel_calls.h"

namespace shadowgraph {

/// A way to break a call, and the law that then refuses it.
struct Breakage {
  std::string name;  // "out without memory"
  LawId law;
  std::function<void()> apply;
};

/// Memory of the lists and tables of a broken call.
struct Spoils {
  std::deque<std::vector<int32_t>> numbers;
  std::deque<std::vector<int64_t>> slots;

  /// The list with another element i.
  void set(std::span<const int32_t>* list, size_t i, int32_t value) {
    auto& copy = numbers.emplace_back(list->begin(), list->end());
    copy[i] = value, *list = copy;
  }
  void set(std::span<const int64_t>* list, size_t i, int64_t value) {
    auto& copy = slots.emplace_back(list->begin(), list->end());
    copy[i] = value, *list = copy;
  }
};

/// The ways to break *call: of each of its members those that follow from its shape
/// (call_members.h), and its own. They change *call, by lists in *spoils.
std::vector<Breakage> breakages(AttentionCall* call, Spoils* spoils);
std::vector<Breakage> breakages(MergeCall* call, Spoils* spoils);
std::vector<Breakage> breakages(StateCall* call, Spoils* spoils);
std::vector<Breakage> breakages(GateCall* call, Spoils* spoils);
std::vector<Breakage> breakages(SparseCall* call, Spoils* spoils);
std::vector<Breakage> breakages(CacheCall* call, Spoils* spoils);

/// What is wrong with how the call of a scene that is laid is refused, once it is broken in that
/// way.
template <class Scene>
Status check_breakage(const Scene& scene, const Breakage& b, const typename Scene::Call& broken) {
  const Status said = execute(broken);
  judged(b.law);
  const std::string_view id = b.law.law().id;
  const bool named =
      std::ranges::any_of(said.findings(), [&](const Finding& f) { return f.id == id; });
  Status status;
  if (!named)
    status.add(
        make_finding(b.law, at(b.name), "refused under " + std::string(id), said.to_string()));
  status.add(scene.check_untouched());
  return status;
}

/// One way, drawn of all.
template <class Scene>
Status check_refusal(const Scene& scene, Rng& rng) {
  typename Scene::Call call = scene.call();
  Spoils spoils;
  const std::vector<Breakage> ways = breakages(&call, &spoils);
  const Breakage& b = ways[rng.below(static_cast<uint32_t>(ways.size()))];
  b.apply();
  return check_breakage(scene, b, call);
}

}  // namespace shadowgraph
