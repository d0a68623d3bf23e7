#include "fuzz/fuzz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "fuzz/call/generate.h"

namespace shadowgraph::fuzz_test {
namespace {

FuzzResult fuzz(const FuzzOptions& options) {
  const std::atomic<bool> stop{false};
  return run_fuzz(options, nullptr, stop);
}

TEST(Fuzz, FindsNothing) {
  for (uint64_t seed : {101, 202}) {
    FuzzOptions options;
    options.seed = seed;
    options.cases = 500;
    const FuzzResult result = fuzz(options);
    EXPECT_EQ(result.cases, 500u) << "seed " << seed;
    EXPECT_EQ(result.findings.to_string(), "ok") << "seed " << seed;
  }
}

TEST(Fuzz, FastArithmeticFindsNothing) {
  // Only where q, K and V are bf16 does it differ from the portable one.
  RunOptions fast;
  fast.arith = Arith::kFast;
  int64_t cases = 0, chunked = 0;
  for (uint64_t number = 0; cases < 1500 || chunked <= 200; ++number) {
    ASSERT_LT(number, 100000u) << cases << " cases, " << chunked << " of them chunked";
    const Case x = fuzz_case(303, number);
    const auto* a = x.as<AttentionCase>();
    if (a == nullptr || a->q_dtype != DType::kBF16 || a->kv_dtype != DType::kBF16) continue;
    ++cases;
    // Prefills like these are run again in chunks.
    const bool longer =
        std::ranges::any_of(a->requests, [](const RequestExtent& r) { return r.q_len > 1; });
    chunked += longer && a->causal && a->mask == CustomMask::Kind::kNone;
    const Status status = check_case(x, fast);
    ASSERT_EQ(status.to_string(), "ok") << "seed 303 case " << number << ": " << x.to_string();
  }
}

TEST(Fuzz, ShardsTogetherAreTheRun) {
  FuzzOptions options;
  options.seed = 7, options.first = 5, options.cases = 61;
  const FuzzResult whole = fuzz(options);
  for (const uint64_t count : {2, 3, 100}) {
    FuzzResult sum;
    for (options.shard = {0, count}; options.shard.index < count; ++options.shard.index) {
      const FuzzResult part = fuzz(options);
      sum.cases += part.cases, sum.skipped += part.skipped;
      for (const auto& [name, cases] : part.coverage) sum.coverage[name] += cases;
      for (const auto& [keys, cases] : part.histograms.keys) sum.histograms.keys[keys] += cases;
      for (const auto& [name, cases] : part.features) sum.features[name] += cases;
      sum.laws.add(part.laws);
      // A shard of 61 cases has no more than its share.
      EXPECT_LE(part.cases, (61 + count - 1) / count);
    }
    EXPECT_EQ(sum.cases, whole.cases);
    EXPECT_EQ(sum.skipped, whole.skipped);
    EXPECT_EQ(sum.coverage, whole.coverage);
    EXPECT_EQ(sum.histograms.keys, whole.histograms.keys);
    EXPECT_EQ(sum.features, whole.features);
    EXPECT_TRUE(std::ranges::equal(sum.laws.all(), whole.laws.all()));
  }
}

TEST(Shard, HasEachNumberOnceAndItsNextIsTheFirstThatItHas) {
  for (uint64_t count = 1; count < 6; ++count) {
    for (uint64_t number = 0; number < 20; ++number) {
      int owners = 0;
      for (Shard shard{0, count}; shard.index < count; ++shard.index) {
        owners += shard.has(number);
        uint64_t next = number;
        while (!shard.has(next)) ++next;
        EXPECT_EQ(shard.next(number), next);
      }
      EXPECT_EQ(owners, 1);
    }
  }
}

TEST(CaseRange, NextSizeAndPartsAgreeWithTheNumbersThatItHas) {
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{7}, CaseRange::kNoEnd}) {
    for (uint64_t first = 0; first < 5; ++first) {
      for (Shard shard{0, 3}; shard.index < 3; ++shard.index) {
        const CaseRange range = CaseRange{first, count, shard}.within(2, 20);
        uint64_t size = 0, next = range.end();
        for (uint64_t number = 25; number-- > 0;) {
          const bool has = number >= std::max<uint64_t>(first, 2) && number < 20 &&
                           number - first < count && shard.has(number);
          EXPECT_EQ(range.has(number), has);
          size += has;
          if (has) next = number;
          EXPECT_EQ(range.next(number), next);
        }
        EXPECT_EQ(range.size(), size);
      }
    }
  }
}

TEST(CaseRange, EndsWhereNumbersDo) {
  const uint64_t most = CaseRange::kNoEnd;
  EXPECT_EQ((CaseRange{5, most}).end(), most);
  EXPECT_EQ((CaseRange{most, 5}).end(), most);
  EXPECT_EQ((CaseRange{most - 5, 4}).end(), most - 1);
  // The next of this shard would be more than fits.
  EXPECT_EQ((CaseRange{0, most, {0, uint64_t{1} << 63}}).next(most - 1), most);
}

TEST(Fuzz, TheSameSeedIsTheSameRunWhateverTheThreads) {
  FuzzOptions options;
  options.seed = 7;
  options.cases = 120;
  options.threads = 1;
  const FuzzResult one = fuzz(options);
  options.threads = 3;
  const FuzzResult three = fuzz(options);
  EXPECT_EQ(one.coverage, three.coverage);
  EXPECT_EQ(one.histograms.keys, three.histograms.keys);
  EXPECT_EQ(one.histograms.requests, three.histograms.requests);
  EXPECT_EQ(one.histograms.head_dim, three.histograms.head_dim);
  EXPECT_EQ(one.features, three.features);
  EXPECT_TRUE(std::ranges::equal(one.laws.all(), three.laws.all()));
}

TEST(Fuzz, ACaseHasItsNumberAlone) {
  FuzzOptions options;
  options.seed = 7;
  options.cases = 20;
  options.first = 40;
  std::map<std::string, int64_t> apart;
  for (uint64_t number = 40; number < 60; ++number) {
    FuzzOptions one = options;
    one.first = number;
    one.cases = 1;
    for (const auto& [name, count] : fuzz(one).coverage) apart[name] += count;
    EXPECT_EQ(fuzz_case(7, number).to_string(), fuzz_case(7, number).to_string());
    EXPECT_NE(fuzz_case(7, number).to_string(), fuzz_case(7, number + 1).to_string());
    EXPECT_NE(fuzz_case(7, number).to_string(), fuzz_case(8, number).to_string());
  }
  EXPECT_EQ(fuzz(options).coverage, apart);
}

TEST(Fuzz, CountsWhatItRan) {
  FuzzOptions options;
  options.cases = 100;
  const FuzzResult result = fuzz(options);
  const auto total = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                           [](int64_t n, const auto& c) { return n + c.second; });
  };
  int64_t others = 0;
  for (uint64_t number = 0; number < 100; ++number)
    others += fuzz_case(1, number).as<AttentionCase>() == nullptr;
  EXPECT_GT(others, 0);
  EXPECT_EQ(total(result.coverage), 100);
  EXPECT_EQ(total(result.histograms.keys), 100 - others);
  EXPECT_EQ(total(result.histograms.requests), 100 - others);
}

TEST(Fuzz, StopsWhenItIsTold) {
  const std::atomic<bool> stop{true};
  FuzzOptions options;
  options.cases = 1000000;
  EXPECT_EQ(run_fuzz(options, nullptr, stop).cases, 0u);
}

TEST(Fuzz, EndsWithItsTime) {
  FuzzOptions options;
  options.seconds = 0.05;
  uint64_t last = 0;
  const std::atomic<bool> stop{false};
  const FuzzResult result = run_fuzz(
      options, [&](const FuzzProgress& p) { last = p.cases; }, stop);
  EXPECT_GT(result.cases, 0u);
  EXPECT_EQ(last, result.cases);
  EXPECT_GE(result.seconds, 0.05);
}

TEST(Fuzz, AFindingNamesItsCaseAndACommandThatShowsItAgain) {
  FuzzOptions options;
  options.seed = 7;
  options.first = 3;
  options.cases = 1;
  options.run.isa = "riscv";  // every call is refused
  options.run.arith = Arith::kFast;
  const FuzzResult result = fuzz(options);
  ASSERT_FALSE(result.findings.ok());
  const Finding& f = result.findings.findings()[0];
  EXPECT_EQ(f.id, "input.isa");
  // Refused whatever it is: the smallest case of all.
  Choices none(std::vector<uint32_t>{});
  EXPECT_EQ(f.case_id, "seed 7 case 3: " + generate(none).to_string());
  EXPECT_EQ(f.reproduce, "shadowgraph fuzz --backend kernels --choices 0 --arith fast --isa riscv");
  ASSERT_EQ(result.call_failures.size(), 1u);
  EXPECT_EQ(result.call_failures[0].first, "input.isa");
}

TEST(Fuzz, AHistoryOfWhichTheBackendRunsNothingIsNoCase) {
  FuzzOptions options;
  options.cases = 30;
  options.kernels = false;
  options.histories.backends = {find_backend("flashmla_multi_step")};
  options.histories.steps = 6;
  const FuzzResult result = fuzz(options);
  EXPECT_EQ(result.cases + result.skipped, 30u);
  EXPECT_GT(result.cases, 0u);
  uint64_t idle = 0;
  for (uint64_t number = 0; number < 30; ++number) {
    Choices choices = history_choices(options.seed, number, options.histories.backends);
    const History h = generate_history(choices, options.histories);
    const HistoryResult one = run_history(h, choices, nullptr);
    idle += std::ranges::none_of(
        one.coverage, [](const auto& c) { return c.first.ends_with(" eager") && c.second > 0; });
  }
  EXPECT_EQ(result.skipped, idle);
  EXPECT_GT(idle, 0u);
}

TEST(Fuzz, NoLimitOnFindingsRunsOn) {
  FuzzOptions options;
  options.cases = 10;
  options.max_findings = 0;
  EXPECT_EQ(fuzz(options).cases, 10u);
  options.run.isa = "riscv";
  EXPECT_EQ(fuzz(options).cases, 10u);
}

TEST(Fuzz, StopsAfterItsMostFindings) {
  FuzzOptions options;
  options.cases = 100000;
  options.threads = 1;
  options.max_findings = 5;
  options.run.isa = "riscv";
  const FuzzResult result = fuzz(options);
  EXPECT_GE(result.findings.findings().size(), 5u);
  EXPECT_LT(result.cases, 20u);
}

}  // namespace
}  // namespace shadowgraph::fuzz_test
