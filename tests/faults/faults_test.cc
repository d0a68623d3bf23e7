// Every planted fault is found, and shown small; without it the same histories find nothing.
#include "faults/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "fuzz/fuzz.h"

namespace shadowgraph {

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.id; }

namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kHistories = 400;
constexpr int64_t kMostRequests = 3;

HistoryResult run(const Backend* backend, Choices& choices, const Tap* tap) {
  const History h = generate_history(choices, {&backend, 1});
  return run_history(h, choices, tap);
}

class EveryFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryFault, IsFoundAndShrunkToFewRequests) {
  const Backend* backend = find_backend(GetParam().backend);
  ASSERT_NE(backend, nullptr);
  for (uint64_t number = 0; number < kHistories; ++number) {
    Choices choices = history_choices(kSeed, number);
    const HistoryResult planted = run(backend, choices, GetParam().tap);
    if (planted.findings.ok()) continue;
    Choices same(choices.made());
    EXPECT_EQ(run(backend, same, nullptr).findings.to_string(), "ok");
    const std::string law = planted.findings.findings()[0].id;
    HistoryOptions options;
    options.backends = {backend};
    options.tap = GetParam().tap;
    options.shrink_seconds = 1;
    options.flags = " --plant " + std::string(GetParam().id);
    const HistoryFailure small = shrink_failure(choices, options, law);
    EXPECT_LE(small.requests, kMostRequests);
    EXPECT_GE(small.requests, 1);
    EXPECT_LE(small.choices.size(), choices.made().size());
    const auto found = std::as_const(small.findings).findings();
    ASSERT_FALSE(found.empty());
    EXPECT_TRUE(std::ranges::any_of(found, [&](const Finding& f) { return f.id == law; }));
    EXPECT_EQ(found[0].reproduce,
              "shadowgraph fuzz --choices " + to_text(small.choices) + options.flags);
    const std::string name(backend->info().name);
    EXPECT_NE(found[0].case_id.find(name + " page_size "), std::string::npos);
    // What is left is the fault's doing too.
    Choices least(small.choices);
    EXPECT_EQ(run(backend, least, nullptr).findings.to_string(), "ok");
    return;
  }
  FAIL() << "not found in " << kHistories << " histories";
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, ::testing::ValuesIn(all_faults()),
                         [](const auto& fault) { return std::string(fault.param.id); });

TEST(Faults, AreFoundByTheirIds) {
  std::set<std::string_view> ids;
  for (const Fault& f : all_faults()) {
    EXPECT_EQ(find_fault(f.id), &f);
    EXPECT_NE(f.tap, nullptr);
    EXPECT_FALSE(f.title.empty());
    EXPECT_FALSE(f.refs.empty());
    ids.insert(f.id);
  }
  EXPECT_EQ(ids.size(), all_faults().size());
  EXPECT_EQ(find_fault("K00"), nullptr);
}

TEST(Faults, AFaultActsOnlyWhereItChangesSomething) {
  const Tap& first = *find_fault("K31")->tap;
  const std::vector<int32_t> lens[] = {{}, {3}, {3, 3}, {3, 4}};
  std::vector<int64_t> acted;
  for (const std::vector<int32_t>& encoder_lens : lens) {
    const int64_t before = first.acted();
    ForwardBatch batch;
    batch.encoder_lens = encoder_lens;
    TapStorage storage;
    first.batch(batch, storage);
    acted.push_back(first.acted() - before);
  }
  EXPECT_EQ(acted, (std::vector<int64_t>{0, 0, 0, 1}));
  const Tap& one_query = *find_fault("K11")->tap;
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
    const Tap& tap = *find_fault(id)->tap;
    const int64_t before = tap.acted();
    for (const char* name : {"trtllm_mha", "ascend"}) {
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
      EXPECT_EQ(tap.acted() > before, name == std::string("ascend")) << id;
    }
  }
}

TEST(Faults, SeveralStandOneAfterTheOther) {
  struct Adds : Tap {
    void batch(ForwardBatch& batch, TapStorage&) const override { ++batch.spec.step; }
    void baked(Meta& meta, bool capture) const override { meta.limits.rows += capture ? 10 : 1; }
    Status filled(const ForwardBatch&, Meta& meta) const override {
      ++meta.limits.tokens;
      Status status;
      status.add(Finding{});
      return status;
    }
  } adds;
  const Taps taps({&adds, &adds, &adds});
  ForwardBatch batch;
  TapStorage storage;
  Meta meta;
  taps.batch(batch, storage);
  EXPECT_EQ(batch.spec.step, 3);
  taps.baked(meta, true);
  EXPECT_EQ(meta.limits.rows, 30);
  EXPECT_EQ(taps.filled(batch, meta).findings().size(), 3u);
  EXPECT_EQ(meta.limits.tokens, 3);
}

}  // namespace
}  // namespace shadowgraph
