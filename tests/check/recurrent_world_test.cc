// A runner judges recurrent layers: states of every slot, outputs, drafts and moves, bit by bit.
#include "check/worlds/recurrent_world.h"

#include <gtest/gtest.h>

#include "backends/recurrent/recurrent_backend.h"
#include "check/layer_runs.h"
#include "launch/recurrent_launch.h"

namespace shadowgraph::recurrent_world_test {
namespace {

const DraftShape kDraft{2, 2, 4};
const StepShape kNext{.prefix_lens = {5, 8}, .states = true};
const StepShape kPrompts{.mode = ForwardMode::kExtend,
                         .prefix_lens = {3, 0},
                         .q_lens = {6, 5},
                         .states = true,
                         .track = true};
/// Neither a chain nor all siblings.
const DraftTree kTree{{-1, 0, 0, 2}, {0, 1, 1, 2}};
const StepShape kVerify{.mode = ForwardMode::kTargetVerify,
                        .prefix_lens = {5, 4},
                        .trees = {kTree, kTree},
                        .states = true};

struct World : LayerRuns {
  World(const char* backend, RecurrentFamily family, DraftShape draft = {},
        std::vector<int32_t> buckets = {4})
      : LayerRuns(backend, model_with(family, draft), std::move(buckets)) {}
  static ModelConfig model_with(RecurrentFamily family, DraftShape draft) {
    ModelConfig m = model_of(1, {recurrent_layer(family)}, draft);
    m.track_states = true;
    return m;
  }
};

struct Twin {
  const char* backend;
  RecurrentFamily family;
};
constexpr Twin kTwins[] = {{"mamba2", RecurrentFamily::kMamba2},
                           {"gdn", RecurrentFamily::kGdn},
                           {"kda", RecurrentFamily::kKda},
                           {"lightning", RecurrentFamily::kLightning},
                           {"ascend_gdn", RecurrentFamily::kGdn}};

/// Requests that have states: of a prompt each.
const StepShape kFirst{
    .mode = ForwardMode::kExtend, .prefix_lens = {0, 0}, .q_lens = {5, 8}, .states = true};

TEST(RecurrentWorld, CleanTwinsHaveTheBitsOfRequestsAlone) {
  for (const auto& [backend, family] : kTwins) {
    const bool tree = family != RecurrentFamily::kLightning;
    World w(backend, family, tree ? kDraft : DraftShape{1, 3, 4});
    EXPECT_EQ(w.step(kFirst).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kNext).to_string(), "ok") << backend;
    EXPECT_EQ(w.step(kPrompts).to_string(), "ok") << backend;
    StepShape verify = kVerify;
    if (!tree) verify.trees = {};
    EXPECT_EQ(w.step(verify).to_string(), "ok") << backend;
    // The root of each tree is accepted.
    Step committed = w.made({.prefix_lens = {6, 5}, .states = true});
    for (const int32_t i : {0, 1})
      committed.state_moves.push_back({.kind = StateMove::Kind::kCommit,
                                       .slot = i + 1,
                                       .from = i,
                                       .step = 0,
                                       .owner = static_cast<OwnerId>(i + 1)});
    EXPECT_EQ(w.runner.step(committed).to_string(), "ok") << backend;
    EXPECT_GT(w.runner.counts().replays, 2) << backend;
  }
}

/// Laws that a slip in the launches of one step breaks.
Laws laws_of(const char* backend, RecurrentFamily family, const StepShape& shape,
             void (*slip)(KernelLaunch&), DraftShape draft = {}) {
  return World(backend, family, draft, {}).laws_of(kFirst, shape, slip);
}

template <class Fn>
void change_recurrent(KernelLaunch& l, Fn fn) {
  if (l.kernel != &kLinearAttention) return;
  auto [call, rows] = call_of<LinearCall>(l);
  fn(call);
  l = recurrent_launch(call, rows);
}

TEST(RecurrentWorld, AStateThatAVerifyStoresIsFound) {
  const auto store = [](KernelLaunch& l) { change_recurrent(l, [](auto& c) { c.store = true; }); };
  EXPECT_TRUE(laws_of("gdn", RecurrentFamily::kGdn, kVerify, store, kDraft).contains("state.pool"));
}

TEST(RecurrentWorld, ATreeThatIsTakenForAChainIsFound) {
  const auto chain = [](KernelLaunch& l) {
    change_recurrent(l, [](auto& c) { c.draft.parents = {}; });
  };
  const Laws found = laws_of("mamba2", RecurrentFamily::kMamba2, kVerify, chain, kDraft);
  EXPECT_TRUE(found.contains("state.draft") && found.contains("num.bits"));
  const auto windows = [](KernelLaunch& l) {
    if (l.kernel != &kCausalConv1d) return;
    auto [call, rows] = call_of<CausalConv1d>(l);
    call.draft.parents = {};
    l = conv_launch(call, rows);
  };
  EXPECT_TRUE(
      laws_of("kda", RecurrentFamily::kKda, kVerify, windows, kDraft).contains("state.draft"));
}

/// fi.I-91.
TEST(RecurrentWorld, APrefillIsCutByItsLists) {
  const auto another = [](KernelLaunch& l) {
    change_recurrent(l, [](auto& c) { std::swap(c.chunks.indices, c.chunks.offsets); });
  };
  const Laws found = laws_of("mamba2", RecurrentFamily::kMamba2, kFirst, another);
  EXPECT_TRUE(found.contains("num.bits") || found.contains("num.bound")) << *found.begin();
}

TEST(RecurrentWorld, AStateThatIsNotStoredIsFound) {
  const auto keep = [](KernelLaunch& l) { change_recurrent(l, [](auto& c) { c.store = false; }); };
  EXPECT_EQ(laws_of("lightning", RecurrentFamily::kLightning, kNext, keep), Laws{"state.pool"});
}

TEST(RecurrentWorld, ARequestThatReadsAnothersSlotIsFound) {
  const auto swap = [](KernelLaunch& l) {
    change_recurrent(l, [](auto& c) {
      // Both rows read and write the slot of the next.
      c.rows.state_indices = c.rows.state_indices.subspan(1);
      c.rows.cu_seqlens_q = c.rows.cu_seqlens_q.first(2);
    });
  };
  const Laws found = laws_of("gdn", RecurrentFamily::kGdn, kNext, swap);
  EXPECT_TRUE(found.contains("mem.wrong_region")) << found.size();
}

TEST(RecurrentWorld, AFreshRequestThatReadsItsSlotIsFound) {
  const auto stale = [](KernelLaunch& l) {
    change_recurrent(l, [](auto& c) { c.rows.has_initial_state = {}; });
  };
  World w("lightning", RecurrentFamily::kLightning, {}, {});
  w.tap.slip = stale;
  EXPECT_TRUE(laws(w.step(kFirst)).contains("mem.stale_input"));
}

TEST(RecurrentWorld, ParentsOfAnotherTreeAreFound) {
  const auto siblings = [](KernelLaunch& l) {
    if (l.kernel != &kDraftParents) return;
    auto [call, rows] = call_of<DraftParents>(l);
    std::swap(call.next_token, call.next_sibling);  // no tree: a chain
    l = parents_launch(call, rows);
  };
  EXPECT_TRUE(
      laws_of("gdn", RecurrentFamily::kGdn, kVerify, siblings, kDraft).contains("state.parents"));
}

TEST(RecurrentWorld, StatesThatAStepElsewhereLeavesGoOn) {
  World w("gdn", RecurrentFamily::kGdn);
  EXPECT_EQ(w.runner.pass(w.made(kFirst)).to_string(), "ok");
  EXPECT_EQ(w.step(kNext).to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::recurrent_world_test
