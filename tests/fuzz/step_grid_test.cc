// The grids have the steps that the spec counts, find nothing, and find a slip.
#include "fuzz/grid/step_grid.h"

#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "faults/faults.h"
#include "fuzz/grid/grid_parts.h"

namespace shadowgraph::step_grid_test {

void PrintTo(const StepGrid& grid, std::ostream* out) { *out << grid.name; }

namespace {

/// One step in 53 of every grid; a grid's parts are functions without a state of their own.
constexpr size_t kThin = 53;

template <int kGrid>
void thinned(const std::function<void(const GridPart&)>& walk) {
  uint64_t begin = 0;
  step_grids()[kGrid].parts([&](const GridPart& part) {
    const CaseRange thin{begin, part.num_shapes(), {0, kThin}};
    const uint64_t first = thin.next(0) - begin;
    GridPart some = part;
    some.shapes = {
        {thin.size(), [part, first](uint64_t i) { return part.shape(first + i * kThin); }}};
    walk(some);
    begin = thin.end();
  });
}

constexpr auto kDecode = &thinned<0>, kExtend = &thinned<1>, kDraft = &thinned<2>,
               kVerify = &thinned<3>, kDualChunk = &thinned<6>, kSparse = &thinned<8>,
               kBlocks = &thinned<10>;

StepGridResult run(void (*parts)(const std::function<void(const GridPart&)>&), const MakeTap& tap,
                   size_t max_findings = 10, const char* backend = "flashattention") {
  const StepGrid grid{"thinned", "", {}, parts};
  const std::atomic<bool> stop = false;
  return run_step_grid(
      grid, *find_backend(backend), 2, max_findings, tap, [](size_t, size_t) {}, stop);
}

TEST(StepGrid, OfTheBackendsThatRunAGridEachServesSomeOfIt) {
  const std::atomic<bool> stop = false;
  for (const StepGrid& grid : step_grids()) {
    EXPECT_FALSE(grid.backends.empty()) << grid.name;
    for (const std::string_view name : grid.backends) {
      const Backend* backend = find_backend(name);
      ASSERT_NE(backend, nullptr) << name;
      const MakeTap tap = nullptr;
      const CaseRange part{0, CaseRange::kNoEnd, {0, 211}};
      EXPECT_GT(run_step_grid(
                    grid, *backend, 2, 1, tap, [](size_t, size_t) {}, stop, part)
                    .steps,
                0u)
          << grid.name << " " << name;
    }
  }
}

TEST(StepGrid, CountsAreTheSpecs) {
  const std::pair<const char*, uint64_t> counts[] = {{"decode", 18576},
                                                     {"extend", 107856},
                                                     {"draft", 91476},
                                                     {"verify", 74604},
                                                     {"states", 15552},
                                                     {"decode-plans", 18576u * 720},
                                                     {"dual-chunk", 8568 + 8712},
                                                     {"dual-chunk-plans", 8712u * 720},
                                                     {"sparse", 936 + 504 + 1548},
                                                     {"sparse-plans", 1548u * 720},
                                                     {"blocks", 18 * (132 + 4 * 264)}};
  ASSERT_EQ(step_grids().size(), std::size(counts));
  for (const auto& [name, steps] : counts) EXPECT_EQ(count_steps(*find_step_grid(name)), steps);
  EXPECT_EQ(find_step_grid("nothing"), nullptr);
}

TEST(StepGrid, NoShapeComesTwice) {
  for (const StepGrid& grid : step_grids()) {
    grid.parts([&](const GridPart& part) {
      std::set<std::string> seen;
      for (uint64_t i = 0; i < part.num_shapes(); ++i) {
        const StepShape s = part.shape(i);
        std::string key;
        const auto add = [&](const std::vector<int32_t>& list) {
          for (const int32_t x : list) key += std::to_string(x) + " ";
          key += "| ";
        };
        key += std::string(name_of(s.mode)) + std::to_string(s.draft_step) + " ";
        add(s.prefix_lens), add(s.q_lens);
        for (const DraftTree& tree : s.trees) add(tree.parent);
        EXPECT_TRUE(seen.insert(key).second) << grid.name << ": " << key;
      }
    });
  }
}

struct Expected {
  void (*parts)(const std::function<void(const GridPart&)>&);
  uint64_t of;
  bool replayed;
};
void PrintTo(const Expected& e, std::ostream* out) { *out << e.of; }

const Expected kAll[] = {{kDecode, 18576, true},
                         {kExtend, 107856, false},
                         {kDraft, 91476, true},
                         {kVerify, 74604, true}};

class EveryGrid : public ::testing::TestWithParam<Expected> {};

TEST_P(EveryGrid, FindsNothing) {
  const StepGridResult result = run(GetParam().parts, nullptr);
  EXPECT_EQ(result.findings.to_string(), "ok");
  EXPECT_EQ(result.steps, (GetParam().of + kThin - 1) / kThin);
  EXPECT_EQ(result.skipped, 0u);
  EXPECT_EQ(result.replays, GetParam().replayed ? result.steps : 0);
}

TEST_P(EveryGrid, FindsRequestsThatAreToldOneTokenTooShort) {
  struct Shortens : Tap {
    void batch(ForwardBatch& batch) override {
      lens.assign(batch.seq_lens.begin(), batch.seq_lens.end());
      for (size_t i = 0; i < lens.size(); ++i) {
        const RequestExtent e = batch.extent(static_cast<int64_t>(i));
        if (e.prefix_len > 0) --lens[i];
      }
      batch.seq_lens = lens;
      batch.spec.custom_mask = {};
    }
    std::vector<int32_t> lens;
  };
  const StepGridResult result = run(GetParam().parts, tap_of<Shortens>(), 3);
  const auto found = std::as_const(result.findings).findings();
  ASSERT_GE(found.size(), 3u);
  for (const Finding& f : found) EXPECT_TRUE(f.case_id.starts_with("page_size ")) << f.case_id;
}

INSTANTIATE_TEST_SUITE_P(StepGrids, EveryGrid, ::testing::ValuesIn(kAll));

TEST(StepGrid, WhatABackendDoesNotServeIsSkippedAndNotCountedAsRun) {
  // It has pages of 64 tokens, and latents.
  const StepGridResult result = run(kDecode, nullptr, 10, "flashmla");
  EXPECT_EQ(result.findings.to_string(), "ok");
  EXPECT_EQ(result.steps, 0u);
  EXPECT_EQ(result.skipped, (18576 + kThin - 1) / kThin);
}

TEST(StepGrid, OfDualChunksFindsNothingAndAChunkThatIsInTwoParts) {
  const uint64_t steps = (8568 + 8712 + kThin - 1) / kThin;
  for (const char* backend : {"dual_chunk", "dual_chunk_two_batch"}) {
    const StepGridResult clean = run(kDualChunk, nullptr, 10, backend);
    EXPECT_EQ(clean.findings.to_string(), "ok") << backend;
    EXPECT_EQ(clean.steps + clean.skipped, steps);
    EXPECT_GT(clean.replays, steps / 4);
  }
  EXPECT_EQ(run(kDualChunk, nullptr).skipped, steps);
  const StepGridResult wrong = run(kDualChunk, find_fault("DC3")->tap, 3, "dual_chunk");
  EXPECT_GE(std::as_const(wrong.findings).findings().size(), 3U);
}

TEST(StepGrid, OfSparseLayersFindsNothingAndADraftThatLacksItself) {
  const uint64_t steps = (936 + 504 + 1548 + kThin - 1) / kThin;
  for (const char* backend : {"dsa", "dsa_two_batch"}) {
    const StepGridResult clean = run(kSparse, nullptr, 10, backend);
    EXPECT_EQ(clean.findings.to_string(), "ok") << backend;
    EXPECT_EQ(clean.steps + clean.skipped, steps);
    EXPECT_GT(clean.replays, steps / 4);
  }
  EXPECT_EQ(run(kSparse, nullptr).skipped, steps);
  for (const char* fault : {"DS1", "DS9"}) {
    const StepGridResult wrong = run(kSparse, find_fault(fault)->tap, 2, "dsa");
    EXPECT_GE(std::as_const(wrong.findings).findings().size(), 2U) << fault;
  }
}

/// Half of the steps are of paged pools, half of unified ones.
TEST(StepGrid, OfBlocksFindsNothingAndABlockThatEndsByItsPosition) {
  const uint64_t steps = (18 * (132 + 4 * 264) + kThin - 1) / kThin;
  for (const char* backend : {"deepseek_v4", "deepseek_v4_hip"}) {
    const StepGridResult clean = run(kBlocks, nullptr, 10, backend);
    EXPECT_EQ(clean.findings.to_string(), "ok") << backend;
    EXPECT_EQ(clean.steps + clean.skipped, steps);
    EXPECT_GT(clean.steps, steps / 3);
    EXPECT_GT(clean.replays, clean.steps / 3);
    for (const char* fault : {"DV1", "DV13"})
      EXPECT_FALSE(run(kBlocks, find_fault(fault)->tap, 1, backend).findings.ok()) << fault;
  }
}

TEST(StepGrid, AWholeDraftRunsWhereItsFirstStepDoesAndSkipsTheOthers) {
  const StepGridResult one = run(kDraft, nullptr);
  const StepGridResult all = run(kDraft, nullptr, 10, "flashattention_multi_step");
  EXPECT_EQ(all.findings.to_string(), "ok");
  EXPECT_EQ(all.steps + all.skipped, one.steps);
  EXPECT_GT(all.steps, one.steps / 4);
  EXPECT_EQ(all.replays, all.steps);
}

TEST(StepGrid, StatesOfEveryFamilyFindNothing) {
  const std::atomic<bool> stop = false;
  for (const char* name : {"mamba2", "gdn", "kda", "lightning"}) {
    const StepGridResult result = run_step_grid(
        *find_step_grid("states"), *find_backend(name), 2, 3, nullptr, [](size_t, size_t) {}, stop);
    EXPECT_EQ(result.findings.to_string(), "ok") << name;
    EXPECT_GT(result.steps, 3800u) << name;  // the others are of other families
    EXPECT_EQ(result.steps + result.skipped, 15552u) << name;
    EXPECT_GT(result.replays, 100u) << name;
  }
}

TEST(StepGrid, OfStatesFindsAFreshRequestThatReadsItsSlotAndATreeTakenForAChain) {
  const std::atomic<bool> stop = false;
  for (const auto& [fault, name] : {std::pair("M01", "lightning"), std::pair("M09", "gdn")}) {
    const StepGridResult wrong = run_step_grid(
        *find_step_grid("states"), *find_backend(name), 2, 2, find_fault(fault)->tap,
        [](size_t, size_t) {}, stop);
    EXPECT_GE(std::as_const(wrong.findings).findings().size(), 2U) << fault;
  }
}

StepGridResult run_plans(const CaseRange& range, const MakeTap& tap, const char* backend) {
  const std::atomic<bool> stop = false;
  return run_step_grid(
      *find_step_grid("decode-plans"), *find_backend(backend), 2, 3, tap, [](size_t, size_t) {},
      stop, range);
}

TEST(PlanGrid, FindsNothingInAnyOrderOfPages) {
  for (const char* backend : {"flashattention", "triton", "flashinfer", "ascend"}) {
    const StepGridResult result = run_plans({.first = 12'000'000, .count = 20'000}, {}, backend);
    EXPECT_EQ(result.findings.to_string(), "ok");
    EXPECT_EQ(result.steps, 20'000u);
    EXPECT_EQ(result.replays, 0u);
  }
}

TEST(PlanGrid, FindsAPageTakenForAnother) {
  struct Swaps : Tap {
    void batch(ForwardBatch& batch) override {
      slots.assign(batch.req_to_token.slots.begin(), batch.req_to_token.slots.end());
      // Where page 6 is the first of a request's
      const auto width = static_cast<size_t>(batch.req_to_token.width);
      const auto row = static_cast<size_t>(batch.req_pool_indices[0]);
      if (slots[row * width] == 6 * 4) slots[row * width] = 5 * 4;
      batch.req_to_token.slots = slots;
    }
    std::vector<int32_t> slots;
  };
  const StepGridResult result =
      run_plans({.first = 12'000'000, .count = 20'000}, tap_of<Swaps>(), "flashattention");
  const auto found = std::as_const(result.findings).findings();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].id, "table.slot");
  const size_t at = found[0].reproduce.find("--first ");
  const StepGridResult alone = run_plans({std::stoull(found[0].reproduce.substr(at + 8)), 1},
                                         tap_of<Swaps>(), "flashattention");
  EXPECT_EQ(std::as_const(alone.findings).findings()[0].case_id, found[0].case_id);
}

TEST(StepGrid, IsStoppedFromOutside) {
  const std::atomic<bool> stop = true;
  const StepGridResult result = run_step_grid(
      *find_step_grid("decode"), *find_backend("flashattention"), 2, 1, nullptr,
      [](size_t, size_t) {}, stop);
  EXPECT_EQ(result.steps, 0u);
}

StepGridResult run_range(const CaseRange& range, const MakeTap& tap) {
  const std::atomic<bool> stop = false;
  return run_step_grid(
      *find_step_grid("decode"), *find_backend("flashattention"), 2, 1, tap, [](size_t, size_t) {},
      stop, range);
}

TEST(StepGrid, RunsTheStepsOfItsNumbersAlone) {
  for (const uint64_t count : {1u, 301u, 302u})
    EXPECT_EQ(run_range({7, count}, nullptr).steps, count);
  EXPECT_EQ(run_range({18570, CaseRange::kNoEnd}, nullptr).steps, 6u);
  EXPECT_EQ(run_range({18576, 1}, nullptr).steps, 0u);
}

/// One range after the other, together.
StepGridResult run_cut(const CaseRange& range, uint64_t cut, const MakeTap& tap) {
  StepGridResult sum;
  for (uint64_t first = range.first; first < range.end(); first += cut) {
    StepGridResult part = run_range({first, std::min(cut, range.end() - first), range.shard}, tap);
    sum.steps += part.steps, sum.skipped += part.skipped, sum.replays += part.replays;
    sum.laws.add(part.laws), sum.findings.add(std::move(part.findings));
  }
  return sum;
}

TEST(StepGrid, RangesOfAnyCutAreTheRange) {
  const CaseRange range{180, 400};  // of two parts
  const StepGridResult whole = run_range(range, nullptr);
  EXPECT_EQ(whole.steps, 400u);
  for (const uint64_t cut : {50, 512}) {
    for (const uint64_t shards : {1, 3}) {
      StepGridResult sum;
      for (Shard shard{0, shards}; shard.index < shards; ++shard.index) {
        const StepGridResult part = run_cut({range.first, range.count, shard}, cut, nullptr);
        EXPECT_EQ(part.steps, (CaseRange{range.first, range.count, shard}).size());
        sum.steps += part.steps, sum.skipped += part.skipped, sum.replays += part.replays;
        sum.laws.add(part.laws);
      }
      EXPECT_EQ(sum.steps, whole.steps);
      EXPECT_EQ(sum.skipped, whole.skipped);
      EXPECT_EQ(sum.replays, whole.replays);
      // Each range captures what its steps share, and that is judged, too.
      for (size_t law = 0; law < std::size(kLaws); ++law)
        EXPECT_GE(sum.laws.all()[law], whole.laws.all()[law]) << kLaws[law].id;
    }
  }
}

TEST(StepGrid, AFindingIsReproducedByItsNumberAlone) {
  struct OneLess : Tap {
    void batch(ForwardBatch& batch) override {
      lens.assign(batch.seq_lens.begin(), batch.seq_lens.end());
      if (batch.size() == 3) --lens[2];
      batch.seq_lens = lens;
    }
    std::vector<int32_t> lens;
  };
  const StepGridResult all = run_range({5000, 5000}, tap_of<OneLess>());
  const auto found = std::as_const(all.findings).findings();
  ASSERT_FALSE(found.empty());
  const std::string& command = found[0].reproduce;
  const size_t at = command.find(" --first ");
  EXPECT_EQ(command.substr(0, at), "shadowgraph fuzz --exhaustive decode --backend flashattention");
  const StepGridResult alone =
      run_range({std::stoull(command.substr(at + 9)), 1}, tap_of<OneLess>());
  EXPECT_EQ(alone.steps, 1u);
  ASSERT_FALSE(std::as_const(alone.findings).findings().empty());
  EXPECT_EQ(std::as_const(alone.findings).findings()[0].case_id, found[0].case_id);
  EXPECT_EQ(std::as_const(alone.findings).findings()[0].got, found[0].got);
}

StepGridResult run_all(const char* grid, const char* backend, const CaseRange& range,
                       const char* fault) {
  const std::atomic<bool> stop = false;
  return run_step_grid(
      *find_step_grid(grid), *find_backend(backend), 1, 1000, find_fault(fault)->tap,
      [](size_t, size_t) {}, stop, range);
}

/// A step computes with what its number gives, and a failing one leaves nothing behind.
TEST(StepGrid, FindingsAreTheSameInRangesOfAnyCut) {
  struct {
    const char *grid, *backend, *fault;
    uint64_t first;
  } const runs[] = {{"decode", "flashattention", "K54", 10000},
                    {"decode", "flashattention", "K25", 10000},  // no graph can be captured
                    {"states", "gdn", "M17", 5000},
                    {"sparse", "dsa", "DS8", 100},
                    {"blocks", "deepseek_v4", "DV8", 10000}};
  for (const auto& r : runs) {
    const std::string whole =
        run_all(r.grid, r.backend, {r.first, 12}, r.fault).findings.to_string();
    EXPECT_NE(whole, "ok") << r.fault;
    Status sum;
    for (uint64_t first = r.first; first < r.first + 12; first += 3)
      sum.add(run_all(r.grid, r.backend, {first, 3}, r.fault).findings);
    EXPECT_EQ(sum.to_string(), whole) << r.fault;
  }
}

TEST(StepGrid, AFindingNamesTheStepsThatItNeedsBefore) {
  // An input that a replay does not fill is stale where another step ran before.
  const StepGridResult two = run_all("verify", "flashattention", {40000, 4}, "K26");
  const auto found = std::as_const(two.findings).findings();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].reproduce.ends_with(" --first 40000 --cases 2")) << found[0].reproduce;
  EXPECT_EQ(run_all("verify", "flashattention", {40001, 1}, "K26").findings.to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::step_grid_test
