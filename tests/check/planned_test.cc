// Calls that are planned and run by FlashInfer's twin: however the keys are cut, the result is the
// whole call's to its bound; of one split size it has one set of bits.
#include "check/recorded/planned.h"

#include <gtest/gtest.h>

#include <cstring>

#include "check/bounds/compare.h"
#include "check/recorded/judge.h"
#include "check/recorded/two_part_step.h"
#include "io/curated_vectors.h"

namespace shadowgraph::planned_test {
namespace {

/// Every call of the curated FlashInfer cases that is no MLA's, and its own case. A page of HND is
/// no run of slots.
template <class Fn>
void for_each_call(Fn fn) {
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    if (v.kind.starts_with("mla") || v.kind.starts_with("hnd")) continue;
    for (size_t i = 0; i < v.attention().calls.size(); ++i)
      fn(v, v.attention().calls[i], v.id + " " + v.kind + " " + std::to_string(i));
  }
}

PlannedResult planned(const AnyCall& call, const SplitConfig& split) {
  PlannedResult result;
  const Status status = run_planned(call, split, &result);
  EXPECT_EQ(status.to_string(), "ok");
  return result;
}

bool merges(const AnyCall& call) {
  return std::holds_alternative<MergeStates<LseBase::kLog2>>(call);
}

void expect_within_bound(const AnyCall& call, const PlannedResult& r, const std::string& what) {
  JudgeOptions how;
  how.parts = r.parts;
  const Result result{r.out, r.lse.tensor, LseBase::kLog2, LseSink::kExcluded};
  const Judgement j =
      judge(call, result, *find_arithmetic(merges(call) ? "ours_portable" : "ours_merged"), how);
  EXPECT_TRUE(j.findings.ok()) << what << ": " << j.findings.to_string();
}

TEST(Planned, AnySplitSizeIsTheWholeCallToItsBound) {
  int64_t cut = 0;
  for_each_call([&](const RecordedCase&, const AnyCall& call, const std::string& name) {
    for (const int32_t size : {0, 16, 50, 128}) {
      const PlannedResult r = planned(call, {.fixed_size = size});
      expect_within_bound(call, r, name + ", split size " + std::to_string(size));
      for (const int32_t n : r.parts) cut += n > 1;
    }
    expect_within_bound(call, planned(call, {.off = true}), name + ", not cut");
  });
  EXPECT_GT(cut, 500);
}

TEST(Planned, OneSplitSizeHasOneSetOfBits) {
  for_each_call([&](const RecordedCase&, const AnyCall& call, const std::string& name) {
    if (merges(call)) return;
    // The grid differs, and with it which block has which item.
    const PlannedResult a = planned(call, {.fixed_size = 48}),
                        b = planned(call, {.fixed_size = 48, .num_sms = 3});
    ASSERT_EQ(a.out_bytes.size(), b.out_bytes.size());
    EXPECT_EQ(std::memcmp(a.out_bytes.data(), b.out_bytes.data(), a.out_bytes.size()), 0) << name;
    EXPECT_EQ(std::memcmp(a.lse_values.data(), b.lse_values.data(), a.lse_values.size() * 4), 0)
        << name;
  });
}

TEST(Planned, ASplitShowsInTheBits) {
  bool differs = false;
  for_each_call([&](const RecordedCase&, const AnyCall& call, const std::string&) {
    if (merges(call)) return;
    differs |=
        planned(call, {.fixed_size = 16}).out_bytes != planned(call, {.off = true}).out_bytes;
  });
  EXPECT_TRUE(differs);
}

TEST(VectorStep, ThePrefillInTwoPartsIsTheOnePass) {
  int steps = 0;
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    if (!is_two_part_prefill(v)) continue;
    ++steps;
    const RecordedVerdict verdict = judge_recorded(v);
    EXPECT_TRUE(verdict.findings.ok()) << verdict.findings.to_string();
    EXPECT_TRUE(verdict.twin.out.has_value());
  }
  EXPECT_GT(steps, 0);
}

TEST(Planned, ACallOfNoRequestHasNoResult) {
  for_each_call([&](const RecordedCase&, const AnyCall& call, const std::string& name) {
    const auto* paged = std::get_if<PagedAttention>(&call);
    if (paged == nullptr || paged->cu_seqlens_q.empty()) return;
    PagedAttention none = *paged;
    const int32_t first[] = {0};
    none.q.shape[0] = 0;
    none.pages = PageTable::dense({}, 1, {});
    none.cu_seqlens_q = first;
    none.params.custom_mask = {};
    const PlannedResult r = planned(none, {});
    EXPECT_EQ(r.out.shape[0], 0) << name;
    EXPECT_TRUE(r.parts.empty()) << name;
  });
}

}  // namespace
}  // namespace shadowgraph::planned_test
