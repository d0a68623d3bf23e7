#include "bench/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "bench/run_rows.h"

namespace shadowgraph::bench::rows_test {
namespace {

const Row& row_of(std::string_view id) {
  for (const Row& row : rows()) {
    if (row.id == id) return row;
  }
  throw std::out_of_range(std::string(id));
}

ProbeFigures figures(Probe probe, double figure) {
  ProbeFigures f;
  f[static_cast<size_t>(probe)] = figure;
  return f;
}

TEST(Rows, IdsAreDifferentAndEveryRowSaysWhatItShows) {
  std::set<std::string_view> ids;
  for (const Row& row : rows()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.id;
    EXPECT_FALSE(row.text.empty()) << row.id;
    EXPECT_EQ(row.of.bases.empty(), row.of_name() != "self") << row.id;
  }
}

TEST(Rows, ASelfRowDiffersFromItsBase) {
  // A row that divides a shape by itself would always be 1.
  for (const Row& row : rows()) {
    for (const Base& base : row.of.bases) {
      const Shape &a = row.shape, &b = base.shape;
      EXPECT_TRUE(a.shuffled != b.shuffled || a.threads != b.threads || a.isa != b.isa ||
                  a.judging != b.judging || a.batch != b.batch || a.kv_len != b.kv_len ||
                  a.window_left != b.window_left)
          << row.id;
    }
  }
}

TEST(Ratio, OfAProbeIsBytesOrFlopASecondOverIt) {
  const Row& decode = row_of("decode_f32_b1_4k");
  const double bytes = 4096.0 * 2 * 8 * 128 * 4;
  EXPECT_DOUBLE_EQ(*ratio_of(decode, figures(Probe::kStreamRead, bytes), {2}), 0.5);
  EXPECT_FALSE(ratio_of(decode, figures(Probe::kFmaPeak, bytes), {2}));
  const Row& prefill = row_of("prefill_f32_512");
  const double flop = 512.0 * 513 / 2 * 4 * 128 * 32;
  EXPECT_DOUBLE_EQ(*ratio_of(prefill, figures(Probe::kFmaPeak, flop), {4}), 0.25);
}

TEST(Ratio, OfAPeerOrOfItselfIsHowManyTimesFaster) {
  EXPECT_DOUBLE_EQ(*ratio_of(row_of("prefill_f32_2048_vs_openblas"), {}, {2, 3}), 1.5);
  EXPECT_DOUBLE_EQ(*ratio_of(row_of("scaling_prefill_2t"), {}, {1, 1.9}), 1.9);
  EXPECT_DOUBLE_EQ(*ratio_of(row_of("prefill_f32_512_avx2"), {}, {2, 1}), 0.5);
  // 16 times as many bytes in 16 times the time: the same rate.
  EXPECT_DOUBLE_EQ(*ratio_of(row_of("decode_short_bf16_b8_256"), {}, {1, 16}), 1);
}

TEST(Ratio, OfTimesIsOursOverTheirWeightedSum) {
  EXPECT_DOUBLE_EQ(*ratio_of(row_of("window_1k_at_16k"), {}, {1.1, 1}), 1.1);
  const Row& ragged = row_of("ragged_f32");
  std::vector<double> seconds = {0};
  for (const Base& base : ragged.of.bases) {
    // Time in proportion to KV bytes: then the ragged batch takes the sum.
    seconds.push_back(kv_bytes_of(base.shape));
    // As many whole requests as come nearest.
    EXPECT_LE(std::abs(kv_bytes_of(base.shape) - kv_bytes_of(ragged.shape)),
              kv_bytes_of(base.shape) / base.shape.batch / 2);
  }
  seconds[0] = kv_bytes_of(ragged.shape);
  EXPECT_DOUBLE_EQ(*ratio_of(ragged, {}, seconds), 1);
}

TEST(Goal, IsReachedFromItsOwnSide) {
  const Row at_least{"speed", {}, {.measure = Measure::kProbe, .goal = 0.8}, ""};
  const Row at_most{"time", {}, {.measure = Measure::kTime, .goal = 1.2}, ""};
  const Row none{"none", {}, {.measure = Measure::kPeer, .goal = 0}, ""};
  struct {
    const Row& row;
    double ratio;
    bool reached;
  } const table[] = {{at_least, 0.9, true},  {at_least, 0.8, true}, {at_least, 0.79, false},
                     {at_most, 1.1, true},   {at_most, 1.2, true},  {at_most, 1.21, false},
                     {at_least, NAN, false}, {at_most, NAN, false}, {none, 5, false}};
  for (const auto& [row, ratio, reached] : table)
    EXPECT_EQ(is_reached(row, ratio), reached) << row.id << ' ' << ratio;
}

TEST(Void, APeerBelowItsFloorWasNotItself) {
  const Row& row = row_of("prefill_f32_2048_vs_openblas");
  const double flop = flop_of(row.shape);
  ProbeFacts facts;
  facts.choices[static_cast<size_t>(Probe::kFmaPeak)] = {"zmm", 1, 1, ""};
  const auto reason = [&](double peer_share) {
    return void_reason(row, {{figures(Probe::kFmaPeak, flop), {1, 1 / peer_share}}}, facts);
  };
  EXPECT_EQ(reason(0.6), "");
  EXPECT_NE(reason(0.5), "");
  facts.choices[static_cast<size_t>(Probe::kFmaPeak)].second = 0.5;
  EXPECT_NE(reason(0.6), "") << "its share is of a peak that is none";
}

TEST(Void, ARowThatDividesByAProbeBelowItsFloor) {
  const Row& row = row_of("decode_bf16_b1_4k_t1");
  ProbeFacts facts;
  const auto reason = [&](double gather) {
    ProbeFigures f = figures(Probe::kPageGather, gather);
    f[static_cast<size_t>(Probe::kStreamRead)] = 1;
    return void_reason(row, {{f, {1}}}, facts);
  };
  EXPECT_EQ(reason(0.6), "");
  EXPECT_NE(reason(0.4), "");
}

TEST(Select, PatternsNameRowsAndKeepTheListsOrder) {
  std::string unknown;
  EXPECT_EQ(select_rows({"all"}, &unknown).size(), rows().size());
  const auto two = select_rows({"prefill_f32_512", "decode_f32_b*_4k"}, &unknown);
  ASSERT_EQ(two.size(), 3u);
  EXPECT_EQ(two[0]->id, "decode_f32_b1_4k");
  EXPECT_EQ(two[2]->id, "prefill_f32_512");
  EXPECT_TRUE(unknown.empty());
  EXPECT_TRUE(select_rows({"all", "nonesuch*"}, &unknown).empty());
  EXPECT_EQ(unknown, "nonesuch*");
}

TEST(Select, AStarStandsForAnyText) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*c", "abbc"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches("a*c", "abcd"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches(std::string(60, '*') + "x", std::string(60, 'y')));
}

}  // namespace
}  // namespace shadowgraph::bench::rows_test
