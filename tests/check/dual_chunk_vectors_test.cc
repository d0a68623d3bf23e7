// Recorded dual-chunk attention, and the slips that its judge notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::dual_chunk_vectors_test {
namespace {

std::vector<RecordedCase> dual_cases() {
  std::vector<RecordedCase> cases;
  std::vector<SkippedCase> skipped;
  const std::string path = std::string(SHADOWGRAPH_TEST_DATA) + "/linear/dualchunk.safetensors";
  EXPECT_EQ(read_recorded_cases(path, &cases, &skipped).to_string(), "ok");
  EXPECT_FALSE(cases.empty());
  return cases;
}

/// A case of which that is wrong is found, in each that it can be seen in.
template <class Slip>
void expect_noticed(Slip slip, size_t least) {
  size_t noticed = 0;
  for (RecordedCase v : dual_cases()) {
    if (!slip(std::get<DualChunkCase>(v.call), v)) continue;
    const Status found = judge_recorded(v).findings;
    const auto is_law = [](const Finding& f) { return f.id == "num.reference"; };
    EXPECT_TRUE(std::ranges::any_of(found.findings(), is_law)) << v.id;
    ++noticed;
  }
  EXPECT_GE(noticed, least);
}

TEST(DualChunkVectors, EveryCaseIsWithinItsBound) {
  for (const RecordedCase& v : dual_cases()) {
    const RecordedVerdict verdict = judge_recorded(v);
    EXPECT_EQ(verdict.findings.to_string(), "ok") << v.id << ' ' << v.kind;
    EXPECT_GT(verdict.rows, 0);
    EXPECT_EQ(verdict.unbounded_rows, 0);
    EXPECT_GT(*verdict.ours.out, 0);
    EXPECT_GT(*verdict.reference.out, 0);
  }
}

TEST(DualChunkVectors, QueriesOfTwoPartsInEachOthersPlaceAreNoticed) {
  expect_noticed(
      [](DualChunkCase& c, RecordedCase&) {
        std::swap(c.attention.queries.q[1], c.attention.queries.q[2]);
        return true;
      },
      3);
}

TEST(DualChunkVectors, AChunkThatIsOneTokenLongerIsNoticed) {
  expect_noticed(
      [](DualChunkCase& c, RecordedCase&) {
        ++c.attention.queries.chunks.chunk_len;
        return true;
      },
      3);
}

TEST(DualChunkVectors, AFactorOfAnotherLengthIsNoticed) {
  expect_noticed(
      [](DualChunkCase& c, RecordedCase&) {
        if (c.original_max_position == 0) return false;
        ++c.orig_lens[0];
        return true;
      },
      1);
}

TEST(DualChunkVectors, ALogitScaleWithoutItsFactorIsNoticed) {
  expect_noticed(
      [](DualChunkCase& c, RecordedCase&) {
        c.attention.queries.scales = {};
        return c.original_max_position > 0;
      },
      1);
}

TEST(DualChunkVectors, AnLseThatIsOffIsNoticed) {
  std::vector<double> values;
  expect_noticed(
      [&](DualChunkCase&, RecordedCase& v) {
        const ConstTensorView lse = v.reference.lse;
        values.assign(static_cast<size_t>(lse.numel()), 0);
        for (int64_t i = 0; i < lse.numel(); ++i)
          values[static_cast<size_t>(i)] = reinterpret_cast<const double*>(lse.data)[i];
        if (lse.dtype != DType::kF64) return false;
        values.back() += 1e-5;
        v.reference.lse.data = reinterpret_cast<const std::byte*>(values.data());
        return true;
      },
      1);
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_vectors_test
