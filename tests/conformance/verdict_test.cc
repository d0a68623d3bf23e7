// Verdicts on planted runs: no device is needed to see what a verdict catches.
#include "conformance/verdict.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/laws.h"

namespace shadowgraph::verdict_test {
namespace {

constexpr Open kResult[] = {{"", "fact update_result", "2 6"}};
constexpr Open kReturn[] = {{"edge_order other", "ret cudaGraphExecUpdate", "0 910"}};

Program small_program(Verdict verdict, std::string_view diagnosis = "",
                      std::span<const Open> open = {}) {
  return {"G99", "planted", verdict, "N", "", nullptr, diagnosis, open};
}

Record answer(int64_t result, int32_t ret = 910) {
  Record r;
  r.id = "G99", r.variant = "n.global";
  r.steps = {{"cudaGraphExecUpdate", false, ret, ""}};
  r.facts["update_result"] = result;
  return r;
}

using RunWithSeed = std::function<Observation(uint64_t)>;

/// A run that finds these laws violated.
Observation seen(Record record, std::initializer_list<LawId> laws = {}) {
  Observation o;
  o.record = std::move(record);
  for (const LawId law : laws) o.findings.add(make_finding(law, at("A"), "", ""));
  return o;
}

ProgramVerdict judged(const Program& program, const Record* recorded, const RunWithSeed& run,
                      const Variant& variant = {}) {
  return judge(program, variant, recorded, Seeds(), run, std::atomic<bool>(false));
}

std::string law_of(const ProgramVerdict& verdict) {
  const auto findings = std::as_const(verdict.findings).findings();
  return findings.empty() ? "ok" : findings[0].id;
}

TEST(Exact, EverySeedMustAnswerAsRecorded) {
  const Program program = small_program(Verdict::kExact);
  const Record recorded = answer(2);
  std::set<uint64_t> seeds;
  const ProgramVerdict equal = judged(program, &recorded, [&](uint64_t seed) {
    seeds.insert(seed);
    return seen(answer(2));
  });
  EXPECT_EQ(equal.status, Conformance::kEqual);
  EXPECT_EQ(seeds, (std::set<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));

  const ProgramVerdict verdict =
      judged(program, &recorded, [](uint64_t seed) { return seen(answer(seed == 8 ? 6 : 2)); });
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(law_of(verdict), "conformance.record");
  EXPECT_EQ(verdict.why, "fact update_result: 6, recorded 2 (seed 8)");
}

TEST(Exact, AFindingOnADefinedProgramIsAFalseAlarm) {
  const Record recorded = answer(2);
  const auto run = [](uint64_t seed) {
    return seed == 3 ? seen(answer(2), {"mem.race"}) : seen(answer(2));
  };
  const ProgramVerdict verdict = judged(small_program(Verdict::kExact), &recorded, run);
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(law_of(verdict), "conformance.diagnosis");
  EXPECT_EQ(judged(small_program(Verdict::kExact, "mem.race"), &recorded, run).status,
            Conformance::kEqual);
}

TEST(Exact, AnExpectedFindingMustBeSeenOnSomeSeed) {
  const Record recorded = answer(2);
  const ProgramVerdict verdict = judged(small_program(Verdict::kExact, "mem.leak"), &recorded,
                                        [](uint64_t) { return seen(answer(2)); });
  EXPECT_EQ(law_of(verdict), "conformance.diagnosis");
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
}

TEST(Exact, WithoutARecordSeedsAreHeldAgainstTheFirst) {
  const Program program = small_program(Verdict::kExact);
  EXPECT_EQ(judged(program, nullptr, [](uint64_t) { return seen(answer(2)); }).status,
            Conformance::kSkipped);
  EXPECT_EQ(judged(program, nullptr, [](uint64_t seed) { return seen(answer(seed == 5)); }).status,
            Conformance::kDiffers);
}

TEST(Set, EveryMemberIsReachedAndTheRecordedOneEqual) {
  const Program program = small_program(Verdict::kSet, "", kResult);
  const Record recorded = answer(6);
  int runs = 0;
  const ProgramVerdict verdict = judged(program, &recorded, [&](uint64_t seed) {
    ++runs;
    return seen(answer(seed == 20 ? 6 : 2));
  });
  EXPECT_EQ(verdict.status, Conformance::kInSet);
  EXPECT_EQ(runs, 21);
}

TEST(Set, AMemberThatNoSeedReachesIsAFinding) {
  const Program program = small_program(Verdict::kSet, "", kResult);
  const Record recorded = answer(2);
  int runs = 0;
  const ProgramVerdict verdict = judged(program, &recorded, [&](uint64_t) {
    ++runs;
    return seen(answer(2));
  });
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(law_of(verdict), "conformance.set");
  EXPECT_EQ(runs, kSetRuns);
}

TEST(Set, AnAnswerOutsideIsAFindingWhoeverGivesIt) {
  const Program program = small_program(Verdict::kSet, "", kResult);
  const Record inside = answer(2), outside = answer(7);
  const auto alternating = [](uint64_t seed) { return seen(answer(seed % 2 == 0 ? 2 : 6)); };
  EXPECT_EQ(judged(program, &inside, alternating).status, Conformance::kInSet);
  EXPECT_EQ(judged(program, &outside, alternating).why,
            "fact update_result: recorded 7, expected one of 2 6");
  const auto once_outside = [](uint64_t seed) {
    return seen(answer(seed == 3 ? 7 : seed % 2 == 0 ? 2 : 6));
  };
  EXPECT_EQ(law_of(judged(program, &inside, once_outside)), "conformance.set");
}

TEST(Set, WhatIsNotOpenMustBeAsRecorded) {
  const Program program = small_program(Verdict::kSet, "", kResult);
  const Record recorded = answer(2);
  // With the recorded member the return differs; with the other one nobody knows.
  const ProgramVerdict verdict = judged(program, &recorded, [](uint64_t seed) {
    Record other = answer(2, 0);
    other.host_calls = 1;
    return seed % 2 == 0 ? seen(other) : seen(answer(6));
  });
  EXPECT_EQ(verdict.status, Conformance::kDiffers);
  EXPECT_EQ(law_of(verdict), "conformance.record");
  EXPECT_EQ(verdict.why, "step 1 cudaGraphExecUpdate ret: 0, recorded 910 (seed 0)");
}

TEST(Set, AnOpenAnswerHoldsForItsBranchesOnly) {
  const Program program = small_program(Verdict::kExact, "", kReturn);
  const Record recorded = answer(2);
  const auto alternating = [](uint64_t seed) { return seen(answer(2, seed % 2 == 0 ? 910 : 0)); };
  const Variant open{false, CaptureMode::kGlobal, "edge_order"},
      exact{false, CaptureMode::kGlobal, "node_order"};
  EXPECT_EQ(judged(program, &recorded, alternating, open).status, Conformance::kInSet);
  EXPECT_EQ(judged(program, &recorded, alternating, exact).status, Conformance::kDiffers);
}

TEST(Undefined, EverySeedFindsExactlyTheExpectedLaws) {
  const Program program = small_program(Verdict::kUndefined, "mem.race mem.leak");
  const auto finds = [&](std::initializer_list<LawId> laws) {
    return judged(program, nullptr, [&](uint64_t seed) {
      return seed == 4 ? seen(answer(2), laws) : seen(answer(6), {"mem.race", "mem.leak"});
    });
  };
  EXPECT_EQ(finds({"mem.leak", "mem.race", "mem.race"}).status, Conformance::kDiagnosed);
  EXPECT_EQ(law_of(finds({"mem.leak"})), "conformance.diagnosis");
  EXPECT_EQ(law_of(finds({"mem.leak", "mem.race", "mem.red_zone"})), "conformance.diagnosis");
  EXPECT_EQ(finds({}).status, Conformance::kDiffers);
}

TEST(Undefined, NothingToFindIsSaidAndMustBeStated) {
  const auto quiet = [](uint64_t) { return seen(answer(2)); };
  const ProgramVerdict stated = judged(small_program(Verdict::kUndefined, "-"), nullptr, quiet);
  EXPECT_EQ(stated.status, Conformance::kDiagnosed);
  EXPECT_FALSE(stated.why.empty());
  EXPECT_EQ(judged(small_program(Verdict::kUndefined), nullptr, quiet).status,
            Conformance::kDiffers);
}

TEST(Diagnosis, HoldsForItsBranchOrKindOfStream) {
  const Program program = small_program(
      Verdict::kUndefined, "mem.leak freed=mem.host_lifetime n=mem.race b=- b=mem.red_zone");
  using Laws = std::set<std::string>;
  const auto laws = [&](bool blocking, const char* sub) {
    return expected_laws(program, {blocking, CaptureMode::kGlobal, sub});
  };
  EXPECT_EQ(laws(false, ""), (Laws{"mem.leak", "mem.race"}));
  EXPECT_EQ(laws(true, "freed"), (Laws{"mem.leak", "mem.host_lifetime", "mem.red_zone"}));
}

TEST(Judge, StopsWhenItIsAskedTo) {
  std::atomic<bool> stop{false};
  int runs = 0;
  const ProgramVerdict verdict = judge(
      small_program(Verdict::kExact), {}, nullptr, {.first = 1, .count = 1'000'000},
      [&](uint64_t seed) {
        ++runs;
        stop = seed == 2;
        return seen(answer(2));
      },
      stop);
  EXPECT_EQ(verdict.status, Conformance::kSkipped);
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace shadowgraph::verdict_test
