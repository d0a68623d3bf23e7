// judge_launches finds memory of another layer, kind, graph or stage among a launch's arguments,
// whatever its bytes are.
#include "check/launch_operands.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>

#include "check/runs.h"
#include "faults/launches.h"
#include "launch/store_launch.h"

namespace shadowgraph::launch_operands_test {
namespace {

using Change =
    std::function<void(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing)>;

struct Changed : Tap {
  Change change;
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override {
    if (change) change(all, meta, capturing);
  }
};

struct Setting {
  const char* backend = "trtllm_mha";
  ModelConfig model;
  Ints buckets = {};
  int steps = 1;
};

/// Decodes of two requests give this.
Status runs_with(const Setting& s, Change change) {
  Changed tap;
  tap.change = std::move(change);
  RunnerOptions options = options_of(s.model, s.buckets);
  options.tap = &tap;
  Runs runs(*find_backend(s.backend), s.model, options);
  Status status;
  for (int32_t i = 0; i < s.steps; ++i) status.add(runs.step({.prefix_lens = {5 + i, 4 + i}}));
  return status;
}

/// The first finding, as "law: where".
std::string first_of(const Status& status) {
  if (status.ok()) return "ok";
  const Finding& f = status.findings()[0];
  return f.id + ": " + f.where.field;
}

/// fn(call, first) on the second launch of attention; first: the call of the first.
template <class Fn>
Change on_second_attention(Fn fn) {
  return [fn](std::vector<TappedLaunch>& all, const Meta&, bool) {
    std::optional<PagedAttention> first;
    bool done = false;
    for (TappedLaunch& one : all) {
      change_attention(&one.launch, [&](auto& c) {
        if constexpr (requires(PagedAttention p) { p = c; }) {
          if (!first) return first = c, false;
          if (done) return false;
          fn(c, *first);
          return done = true;
        }
        return false;
      });
    }
  };
}

Setting two_alike() { return {.model = model_of(16, {small_layer(), small_layer()})}; }

TEST(LaunchOperands, LaunchesAsTheyAreAreRight) {
  EXPECT_EQ(first_of(runs_with(two_alike(), {})), "ok");
}

TEST(LaunchOperands, ANeighboursPoolIsFoundAndNamed) {
  const Status status = runs_with(
      two_alike(), on_second_attention([](auto& c, auto& first) { c.cache = first.cache; }));
  EXPECT_EQ(first_of(status), "launch.operands: attention_with_kvcache cache.k.data");
  EXPECT_NE(status.findings()[0].got.find("layer0/k_cache"), std::string::npos)
      << status.to_string();
  EXPECT_NE(status.findings()[0].expected.find("layer 1"), std::string::npos);
}

TEST(LaunchOperands, ANeighboursQueriesAreFound) {
  EXPECT_EQ(first_of(runs_with(two_alike(),
                               on_second_attention([](auto& c, auto& first) { c.q = first.q; }))),
            "launch.operands: attention_with_kvcache q");
  EXPECT_EQ(first_of(runs_with(
                two_alike(), on_second_attention([](auto& c, auto& first) { c.lse = first.lse; }))),
            "launch.operands: attention_with_kvcache lse");
}

/// Changes the second store of a step by the first.
template <class Fn>
Change on_second_store(Fn fn) {
  return [fn](std::vector<TappedLaunch>& all, const Meta&, bool) {
    std::optional<StoreKv> first;
    for (TappedLaunch& one : all) {
      if (one.launch.kernel != &kStoreKv) continue;
      auto of = call_of<StoreKv>(one.launch);
      if (!first) {
        first = of.call;
      } else {
        fn(of.call, *first);
        one.launch = store_launch(of.call, of.rows);
      }
    }
  };
}

TEST(LaunchOperands, AStoreIntoANeighboursPoolIsFound) {
  const Change second_store =
      on_second_store([](StoreKv& c, const StoreKv& first) { c.cache = first.cache; });
  EXPECT_EQ(first_of(runs_with(two_alike(), second_store)),
            "launch.operands: store_kv cache.k.data");
}

/// One layer sees all keys, and one a window in a pool of its own.
Setting two_kinds() {
  Setting s{.model = model_of(16, {small_layer(), small_layer(3)})};
  s.model.swa_pool = true;
  return s;
}

TEST(LaunchOperands, ATableOfLayersOfAnotherKindIsFound) {
  EXPECT_EQ(first_of(runs_with(two_kinds(), {})), "ok");
  EXPECT_EQ(first_of(runs_with(two_kinds(), on_second_attention([](auto& c, auto& first) {
                                 c.pages.page_table = first.pages.page_table;
                               }))),
            "launch.operands: attention_with_kvcache pages.page_table");
}

TEST(LaunchOperands, SlotsOfAnotherPoolAreFound) {
  const Change slots = on_second_store(
      [](StoreKv& c, const StoreKv& first) { c.out_cache_loc = first.out_cache_loc; });
  EXPECT_EQ(first_of(runs_with(two_kinds(), slots)), "launch.operands: store_kv out_cache_loc");
}

TEST(LaunchOperands, LengthsOfAGraphAreNotAnEagerSteps) {
  Setting s = two_alike();
  s.buckets = {2}, s.steps = 2;
  std::optional<std::span<const int32_t>> captured;
  const auto lengths = [&captured](std::vector<TappedLaunch>& all, const Meta&, bool capturing) {
    for (TappedLaunch& one : all) {
      if (one.launch.kernel != &kPagedAttention) continue;
      auto of = call_of<PagedAttention>(one.launch);
      if (capturing) captured = of.call.pages.cache_seqlens;
      if (capturing || !captured) continue;
      of.call.pages.cache_seqlens = *captured;
      one.launch = attention_launch(of.call, of.rows);
    }
  };
  const Status status = runs_with(s, lengths);
  EXPECT_EQ(first_of(status), "launch.operands: attention_with_kvcache pages.cache_seqlens");
  EXPECT_NE(status.findings()[0].got.find("kv_lens"), std::string::npos) << status.to_string();
}

/// A decode in parts, whose partial results a second stage merges.
Setting in_parts() {
  LayerKind latent = latent_layer();
  Setting s{.backend = "flashmla", .model = model_of(64, {latent, latent})};
  return s;
}

template <class Fn>
Change on_merges(Fn fn) {
  return [fn](std::vector<TappedLaunch>& all, const Meta&, bool) {
    for (TappedLaunch& one : all) {
      change_merge(&one.launch, [&](auto& c) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(c)>, MlaParts>)
          return fn(c), true;
        return false;
      });
    }
  };
}

TEST(LaunchScratch, StagesAsTheyAreAgree) { EXPECT_EQ(first_of(runs_with(in_parts(), {})), "ok"); }

TEST(LaunchScratch, AnotherPlaceShapeStrideOrTypeOfAnIntermediateIsFound) {
  using Slip = void (*)(MlaParts&);
  const std::pair<const char*, Slip> slips[] = {
      {"partial_out", [](MlaParts& c) { c.partial_out.data += 4; }},
      {"partial_out", [](MlaParts& c) { c.partial_out.data += c.partial_out.stride[0] * 4; }},
      {"partial_out", [](MlaParts& c) { c.partial_out.stride[0] *= 2; }},
      {"partial_out", [](MlaParts& c) { c.partial_out.stride[1] -= 1; }},
      {"partial_out", [](MlaParts& c) { c.partial_out.shape[1] -= 1; }},
      {"partial_out", [](MlaParts& c) { c.partial_out.dtype = DType::kF16; }},
      {"partial_lse", [](MlaParts& c) { c.partial_lse.tensor.stride[0] += 1; }},
      {"num_splits", [](MlaParts& c) { c.num_splits = c.tile_metadata; }},
      {"numbers", [](MlaParts& c) { c.max_seqlen_q += 1; }}};
  for (const auto& [name, slip] : slips)
    EXPECT_EQ(first_of(runs_with(in_parts(), on_merges([slip = slip](auto& c) { slip(c); }))),
              "launch.scratch: merge_mla_parts " + std::string(name));
}

TEST(LaunchScratch, AnotherLayersIntermediateIsFound) {
  // The second layer's merge stands in the first one's place.
  const Change early = [](std::vector<TappedLaunch>& all, const Meta&, bool) {
    std::vector<size_t> merges;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].launch.kernel == &kMergeTiles) merges.push_back(i);
    ASSERT_EQ(merges.size(), 2u);
    std::swap(all[merges[0]], all[merges[1]]);
  };
  Setting s{.backend = "flashinfer", .model = model_of(4, {small_layer(), small_layer()})};
  s.model.split.fixed_size = 2;
  EXPECT_EQ(first_of(runs_with(s, {})), "ok");
  EXPECT_EQ(first_of(runs_with(s, early)), "launch.scratch: merge_tiles v");
}

}  // namespace
}  // namespace shadowgraph::launch_operands_test
