// Every planted fault is found, and shown small; without it the same histories find nothing.
#include "faults/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "faults/buffers.h"
#include "fuzz/fuzz.h"
#include "fuzz/history/fault_hunt.h"

namespace shadowgraph::faults_test {

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.id; }

namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kHistories = 20000;
constexpr int64_t kShrinkTries = 400;
constexpr int64_t kMostRequests = 3;

class EveryFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryFault, IsFoundAmongAllBackendsAndShrunkToFewRequests) {
  const Planted planted({&GetParam()});
  const FaultHunt hunt =
      hunt_fault(planted, {.seed = kSeed,
                           .cases = kHistories,
                           .threads = 1,
                           .shrink = {.tries = kShrinkTries, .seconds = kSameEverywhere.seconds}});
  ASSERT_FALSE(hunt.laws.empty()) << "not found in " << hunt.cases << " histories, acted "
                                  << planted.acted(0);
  // What is found is the fault's doing, also of what is left of it.
  EXPECT_EQ(hunt.clean.to_string(), "ok");
  EXPECT_LE(hunt.requests, kMostRequests);
  const auto found = std::as_const(hunt.findings).findings();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::ranges::any_of(found, [&](const Finding& f) { return f.id == hunt.laws[0]; }));
  for (const Finding& f : found) {
    EXPECT_EQ(std::set(f.refs.begin(), f.refs.end()).size(), f.refs.size()) << f.id;
  }
  EXPECT_TRUE(found[0].reproduce.starts_with("shadowgraph fuzz --choices "));
  EXPECT_TRUE(found[0].reproduce.ends_with(" --plant " + std::string(GetParam().id)));
}

std::vector<Fault> planted_faults() {
  std::vector<Fault> all(all_faults().begin(), all_faults().end());
  std::erase_if(all, [](const Fault& f) { return f.tap == nullptr; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, ::testing::ValuesIn(planted_faults()),
                         [](const auto& fault) { return std::string(fault.param.id); });

TEST(Faults, AreFoundByTheirIds) {
  std::set<std::string_view> ids;
  for (const Fault& f : all_faults()) {
    EXPECT_EQ(find_fault(f.id), &f);
    EXPECT_EQ(f.tap == nullptr, !f.why_not.empty());
    EXPECT_FALSE(f.title.empty());
    EXPECT_FALSE(f.refs.empty());
    ids.insert(f.id);
  }
  EXPECT_EQ(ids.size(), all_faults().size());
  EXPECT_EQ(find_fault("X00"), nullptr);
}

/// A replay by another batch's schedule leaves keys out.
TEST(Faults, AScheduleThatIsNotMadeAgainShowsInOutputs) {
  FuzzOptions options;
  options.cases = 300, options.max_findings = 1;
  options.kernels = false;
  options.histories.backends = {find_backend("flashmla")};
  options.histories.tap = find_fault("K14")->tap;
  options.histories.outputs_alone = true;
  EXPECT_FALSE(run_fuzz(options, {}, false).findings.ok());
}

TEST(Faults, AFaultActsOnlyWhereItChangesSomething) {
  const std::unique_ptr<Tap> tap = find_fault("K31")->tap();
  Tap& first = *tap;
  const std::vector<int32_t> lens[] = {{}, {3}, {3, 3}, {3, 4}};
  std::vector<int64_t> acted;
  for (const std::vector<int32_t>& encoder_lens : lens) {
    const int64_t before = first.acted();
    ForwardBatch batch;
    batch.encoder_lens = encoder_lens;
    first.batch(batch);
    acted.push_back(first.acted() - before);
  }
  EXPECT_EQ(acted, (std::vector<int64_t>{0, 0, 0, 1}));
  const std::unique_ptr<Tap> baked = find_fault("K11")->tap();
  Tap& one_query = *baked;
  const int64_t before = one_query.acted();
  Meta meta;
  meta.limits.mode = ForwardMode::kDraftExtend;
  meta.limits.max_q_len = 4;
  one_query.baked(meta, false);
  EXPECT_EQ(one_query.acted(), before);
  one_query.baked(meta, true);
  one_query.baked(meta, true);
  EXPECT_EQ(one_query.acted(), before + 1);
}

TEST(Faults, ListsOfTheHostAreThoseOfBackendsThatHaveThem) {
  for (const char* id : {"K11a", "K11b"}) {
    for (const char* name : {"trtllm_mha", "ascend"}) {
      const std::unique_ptr<Tap> planted = find_fault(id)->tap();
      Tap& tap = *planted;
      SimDevice device;
      const Arena arena(device, size_t{1} << 20);
      ModelConfig model;
      model.page_size = 16, model.max_context_len = 64;
      Meta meta;
      const Limits limits = Limits::bucket(ForwardMode::kDecode, 2, 1, model);
      ASSERT_TRUE(find_backend(name)->bind(arena, limits, &meta).ok());
      const ForwardBatch none;
      ASSERT_TRUE(find_backend(name)->fill(none, meta).ok());
      EXPECT_TRUE(tap.filled(none, meta).ok());
      Meta recorded = meta, again = meta;
      tap.baked(recorded, true);
      tap.baked(again, false);
      EXPECT_EQ(tap.acted() > 0, name == std::string("ascend")) << id;
    }
  }
}

TEST(Faults, SeveralStandOneAfterTheOther) {
  struct Adds : Tap {
    void runtime(RuntimeConfig& config) override { ++config.max_chunk; }
    void step(Step& step, const PoolState&) override { ++step.draft_step; }
    void batch(ForwardBatch& batch) override { ++batch.spec.step; }
    void limits(Limits& limits) override { ++limits.rows; }
    void bound(Meta& meta, bool capturing) override { meta.limits.step += capturing ? 10 : 1; }
    void baked(Meta& meta, bool capturing) override { meta.limits.rows += capturing ? 10 : 1; }
    Status filled(const ForwardBatch&, Meta& meta) override {
      ++meta.limits.tokens;
      act();
      Status status;
      status.add(Finding{});
      return status;
    }
    void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
      all.emplace_back();
    }
    const Backend& backend(const Backend&) override { return *find_backend("triton"); }
  };
  std::vector<std::unique_ptr<Tap>> three;
  for (int i = 0; i < 3; ++i) three.push_back(std::make_unique<Adds>());
  Taps taps(std::move(three));
  RuntimeConfig runtime;
  const int32_t chunk = runtime.max_chunk;
  taps.runtime(runtime);
  EXPECT_EQ(runtime.max_chunk, chunk + 3);
  Step step;
  taps.step(step, {});
  EXPECT_EQ(step.draft_step, 3);
  ForwardBatch batch;
  taps.batch(batch);
  EXPECT_EQ(batch.spec.step, 3);
  Meta meta;
  taps.bound(meta, true);
  EXPECT_EQ(meta.limits.step, 30);
  taps.limits(meta.limits);
  taps.baked(meta, false);
  EXPECT_EQ(meta.limits.rows, 6);
  EXPECT_EQ(taps.filled(batch, meta).findings().size(), 3u);
  EXPECT_EQ(meta.limits.tokens, 3);
  EXPECT_EQ(taps.acted(), 3);
  std::vector<TappedLaunch> launches;
  taps.launches(launches, meta, false);
  EXPECT_EQ(launches.size(), 3u);
  EXPECT_EQ(&taps.backend(*find_backend("flashattention")), find_backend("triton"));
}

/// It goes by the name of a buffer, whoever's it is, as if all had as many elements and scalars.
struct Reaches : Tap {
  Reaches(Elements range, size_t scalar) : range_(range), scalar_(scalar) {}
  Status filled(const ForwardBatch&, Meta& meta) override {
    for_buffers(meta, {"page_table", "kv_indptr"}, [&](Meta& m, const Buffer& b) {
      for (int32_t& value : staged<int32_t>(m, b, range_)) value = 0;
      scalar_of(m, scalar_) = 0;
      act();
    });
    return {};
  }

 private:
  const Elements range_;
  const size_t scalar_;
};

std::set<std::string> refused(Elements range, size_t scalar, const char* backend) {
  FuzzOptions options;
  options.cases = 40, options.max_findings = 1000;
  options.kernels = false;
  options.histories.backends = {find_backend(backend)};
  options.histories.shrink.tries = 0;
  options.histories.tap = [&] {
    std::vector<std::unique_ptr<Tap>> one;
    one.push_back(std::make_unique<Reaches>(range, scalar));
    return std::make_unique<Taps>(std::move(one));
  };
  std::set<std::string> said;
  const FuzzResult result = run_fuzz(options, {}, false);
  for (const Finding& f : std::as_const(result.findings).findings())
    if (f.id == "fault.plant") said.insert(f.where.field + " of " + f.where.backend);
  return said;
}

TEST(Faults, APlantThatReachesTooFarIsAnErrorWithAName) {
  EXPECT_TRUE(refused({1 << 20, 1}, 0, "flashattention").contains("page_table of flashattention"));
  EXPECT_TRUE(refused({-1, 1}, 0, "triton").contains("kv_indptr of triton"));
  EXPECT_TRUE(refused({0, 1}, 4, "aiter").contains("scalars of aiter"));
}

TEST(Faults, WhatIsPlantedCountsTheRunsThatHaveEnded) {
  const Planted nothing({}), two({find_fault("K31"), find_fault("K11")});
  EXPECT_FALSE(nothing.tap());
  const std::vector<int32_t> lens = {3, 4};
  for (int run = 0; run < 2; ++run) {
    const std::unique_ptr<Tap> tap = two.tap()();
    ForwardBatch batch;
    batch.encoder_lens = lens;
    tap->batch(batch);
    EXPECT_EQ(two.acted(0), run);
  }
  EXPECT_EQ(two.acted(0), 2);
  EXPECT_EQ(two.acted(1), 0);
}

}  // namespace
}  // namespace shadowgraph::faults_test
