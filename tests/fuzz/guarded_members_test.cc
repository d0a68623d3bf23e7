// Every member of every call that is drawn stands in guarded memory, and a kernel that leaves it is
// named with the member.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>

#include "fuzz/call/attention_laws.h"
#include "fuzz/call/gate_laws.h"
#include "fuzz/call/generate.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/call/sparse_laws.h"
#include "fuzz/small_attention.h"

namespace shadowgraph::guarded_members_test {
namespace {

/// Counts members that have memory, and names those whose memory is not guarded.
template <class Scene>
struct Members {
  const Scene& scene;
  std::map<std::string, int>* seen;

  void look(const char* name, const void* data, bool has_elements) {
    if (data == nullptr || !has_elements) return;
    ++(*seen)[name];
    EXPECT_TRUE(scene.guards(data)) << name;
  }
  template <class View>
  void read(const char* name, View& t, const char*) {
    look(name, t.data, t.numel() > 0);
  }
  void written(const char* name, TensorView& t, const char*) { look(name, t.data, t.numel() > 0); }
  void plane(const char* name, KvPlane& p) {
    look(name, p.data, true);
    look(name, p.scales, true);
  }
  template <class T>
  void list(const char* name, std::span<T>& l) {
    look(name, l.data(), !l.empty());
  }
  template <class T, class... Rest>
  void offsets(const char* name, std::span<T>& l, Rest&&...) {
    list(name, l);
  }
  template <class T, class... Rest>
  void ids(const char* name, std::span<T>& l, Rest&&...) {
    list(name, l);
  }
  template <class T, class... Rest>
  void lengths(const char* name, std::span<T>& l, Rest&&...) {
    list(name, l);
  }
  void scale(const char*, float&) {}
  void options(CallOptions&) {}
};

template <class Scene, class Data, class How>
void look_at(const Case& x, const Data& data, const How& how, std::map<std::string, int>* seen) {
  Scene scene(x, data, how);
  for (size_t i = 0; i < how.calls.size(); ++i) {
    scene.lay(i);
    auto call = scene.call();
    Members<Scene> members{scene, seen};
    std::visit([&](auto& c) { visit_members(members, c); }, call);
    ASSERT_EQ(scene.run().to_string(), "ok") << x.to_string();
  }
}

TEST(GuardedMembers, EveryMemberOfEveryCallStandsInGuardedMemory) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Choices choices{Rng(seed)};
    const Case x = generate(choices);
    Rng rng(seed);
    const RunOptions o;
    const auto* recurrent = x.as<RecurrentCase>();
    if (recurrent != nullptr && recurrent->call == RecurrentCase::Call::kGate)
      look_at<GateScene>(x, make_gate_data(x), GateArrangement::of(x), &seen);
    else if (recurrent != nullptr)
      look_at<RecurrentScene>(x, make_recurrent_data(x), vary_recurrent(x, o, rng), &seen);
    else if (x.as<SparseCase>() != nullptr)
      look_at<SparseScene>(x, make_sparse_data(x), vary_sparse(x, o, rng), &seen);
    else if (x.as<MergeCase>() != nullptr)
      look_at<MergeScene>(x, make_merge_data(x), vary_merge(x, o, rng), &seen);
    else
      look_at<AttentionScene>(x, make_attention_data(x), vary_attention(x, o, rng), &seen);
  }
  for (const char* name : {"q", "k_cache", "sinks", "custom_mask", "page_table", "cu_seqlens_q",
                           "state_indices", "keys.indices", "states", "s", "a_log"})
    EXPECT_GT(seen[name], 0) << name;
}

// Kernels with a slip beside the right one.

using Slip = void (*)(const PagedAttention& call);

class SlippedScene : public AttentionScene {
 public:
  SlippedScene(const Case& x, const AttentionData& data, const AttentionArrangement& how, Slip slip)
      : AttentionScene(x, data, how), slip_(slip) {}

 private:
  Status execute_laid() const override {
    Status status = execute(call());
    slip_(std::get<PagedAttention>(call()));
    return status;
  }
  const Slip slip_;
};

/// The finding in some layout: some ends lie at a closed page, some between.
std::map<std::string, int> found(Slip slip) {
  std::map<std::string, int> laws;
  AttentionCase attention = small_attention();
  attention.sinks = true;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Case x = {CaseData::kRandom, seed, attention};
    const AttentionData data = make_attention_data(x);
    AttentionArrangement how = AttentionArrangement::of(x);
    how.workspace = true;
    SlippedScene scene(x, data, how, slip);
    scene.lay(0);
    const Status status = scene.run();
    for (const Finding& f : status.findings()) ++laws[f.id + ' ' + f.where.field];
  }
  return laws;
}

volatile float kept = 0;

TEST(GuardedMembers, AWriteBehindTheWorkspaceIsNamed) {
  const auto laws = found([](const PagedAttention& c) {
    c.options.scratch.data()[c.options.scratch.size()] = std::byte{0};
  });
  EXPECT_EQ(laws, (std::map<std::string, int>{{"mem.red_zone scratch byte", 24}}));
}

TEST(GuardedMembers, AReadOneHeadBehindTheSinksIsNamed) {
  const auto laws =
      found([](const PagedAttention& c) { kept = c.params.sinks.data()[c.params.sinks.size()]; });
  ASSERT_EQ(laws.size(), 1u);
  EXPECT_EQ(laws.begin()->first, "mem.red_zone sinks byte");
  EXPECT_GT(laws.begin()->second, 4) << "half of all lists end at a closed page";
}

TEST(GuardedMembers, AReadBeforeTheLengthsIsNamed) {
  const auto laws = found(
      [](const PagedAttention& c) { kept = static_cast<float>(c.pages.cache_seqlens.data()[-1]); });
  ASSERT_EQ(laws.size(), 1u);
  EXPECT_EQ(laws.begin()->first, "mem.red_zone cache_seqlens byte");
}

TEST(GuardedMembers, ARightKernelTouchesNoClosedPage) {
  EXPECT_TRUE(found([](const PagedAttention&) {}).empty());
}

}  // namespace
}  // namespace shadowgraph::guarded_members_test
