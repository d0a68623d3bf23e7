// judge_plan_keys finds each argument of a launch that is another layer's.
#include "check/plan_keys.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "check/runs.h"
#include "faults/launches.h"

namespace shadowgraph::plan_keys_test {
namespace {

/// Changes the second launch of attention, which is the second layer's.
struct SecondLayer : Tap {
  std::function<void(PagedAttention& c, const PagedAttention& first)> change;

  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    PagedAttention first;
    int calls = 0;
    for (TappedLaunch& one : all) {
      const auto second = [&](auto& c) {
        if constexpr (requires(PagedAttention p) { p = c; }) {
          if (++calls == 1) first = c;
          if (calls == 2 && change) change(c, first);
          return calls == 2;
        }
        return false;
      };
      change_attention(&one.launch, second);
    }
  }
};

/// Two layers that differ in each thing that a layer has of its own.
Status with_slip(std::function<void(PagedAttention& c, const PagedAttention& first)> change) {
  LayerKind a = small_layer(7), b = small_layer(3);
  b.params.sm_scale = 1, b.params.logits_soft_cap = 2;
  const ModelConfig model = model_of(16, {a, b});
  SecondLayer tap;
  tap.change = std::move(change);
  RunnerOptions options = options_of(model, {});
  options.kv_dtype = DType::kE4M3;
  options.values = {{.k_scale = 1, .v_scale = 1, .sinks = true},
                    {.k_scale = 2, .v_scale = 4, .sinks = true}};
  options.tap = &tap;
  return Runs(*find_backend("trtllm_mha"), model, options).step({.prefix_lens = {5, 4}});
}

TEST(PlanKeys, ALaunchThatIsItsLayersOwnIsRight) { EXPECT_EQ(with_slip({}).to_string(), "ok"); }

TEST(PlanKeys, EachThingThatIsAnotherLayersIsFoundByName) {
  using Change = void (*)(PagedAttention&, const PagedAttention&);
  const std::pair<const char*, Change> slips[] = {
      {"layers[1].sm_scale",
       [](auto& c, auto& first) { c.params.sm_scale = first.params.sm_scale; }},
      {"layers[1].logits_soft_cap", [](auto& c, auto&) { c.params.logits_soft_cap = 0; }},
      {"layers[1].window_left",
       [](auto& c, auto& first) { c.params.window_left = first.params.window_left; }},
      {"layers[1].sinks", [](auto& c, auto& first) { c.params.sinks = first.params.sinks; }},
      {"layers[1].sinks", [](auto& c, auto&) { c.params.sinks = {}; }},
      {"layers[1].k_scale", [](auto& c, auto& first) { c.cache.k_scale = first.cache.k_scale; }},
      {"layers[1].v_scale", [](auto& c, auto& first) { c.cache.v_scale = first.cache.v_scale; }}};
  for (const auto& [field, change] : slips) {
    const Status status = with_slip(change);
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_EQ(status.findings()[0].id, "plan.key") << field << ": " << status.to_string();
    EXPECT_EQ(status.findings()[0].where.field, field);
  }
}

TEST(PlanKeys, AWindowThatAListHidesIsNone) {
  EXPECT_FALSE(
      laws(with_slip([](auto& c, auto&) { c.params.window_left = -1; })).contains("plan.key"));
}

}  // namespace
}  // namespace shadowgraph::plan_keys_test
