#include "bench/run_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/report.h"

namespace shadowgraph::bench::run_rows_test {
namespace {

/// A small row; its peer is what find_peer gives.
Row small_row(Of of) {
  return {"small", prefill(DType::kF32, 40).heads(4, 2).dim(32), std::move(of), "a small row"};
}

struct Ran {
  Status status;
  BenchReport report;

  const BenchRow& row() const { return report.rows.at(0); }
  /// What the program makes of it.
  int exit_code() const {
    Report r;
    r.findings.assign(status.findings().begin(), status.findings().end());
    return r.exit_code();
  }
};

Ran run(const Row& row, const BenchOptions& options) {
  Ran ran;
  ran.status = Bench(options).run(row, &ran.report);
  return ran;
}

const Peer kLiar = {"liar", [] { return std::string(); },
                    [](const FlashCall& call) {
                      std::fill_n(call.out, int64_t{call.q_len} * call.num_qo_heads * call.head_dim,
                                  1.0f);
                    }};

TEST(RunRows, AWrongResultIsAFindingThatSaysWhoseAndHowToSeeItAgain) {
  BenchOptions options;
  options.flags = " --seed 7";
  options.find_peer = [](std::string_view) { return &kLiar; };
  const Ran ran = run(small_row({.measure = Measure::kPeer, .peer = "liar"}), options);
  EXPECT_EQ(ran.exit_code(), 1);
  ASSERT_FALSE(ran.status.ok());
  EXPECT_EQ(ran.status.findings()[0].case_id, "bench small");
  EXPECT_EQ(ran.status.findings()[0].reproduce,
            "shadowgraph bench --rows small --rounds 1 --seed 7");
  EXPECT_EQ(ran.row().void_reason, "liar has a wrong result, see the findings");
  EXPECT_FALSE(ran.row().ratio || ran.row().ms || ran.row().reached);
}

TEST(RunRows, WhatTheEngineRefusesIsAFindingThatSaysSo) {
  Row row = small_row({.measure = Measure::kProbe});
  row.shape = row.shape.heads(3, 2);
  Ran ran = run(row, {});
  EXPECT_EQ(ran.exit_code(), 1);
  EXPECT_EQ(ran.row().void_reason, "the call is refused, see the findings");
  const Shape refused = std::exchange(row.shape, small_row({}).shape);
  row.of = {.measure = Measure::kSpeed, .bases = {{refused, 1}}};
  EXPECT_EQ(run(row, {}).row().void_reason, "base 1 is refused, see the findings");
}

TEST(RunRows, WhatCannotRunHereIsVoidAndNoFinding) {
  BenchOptions options;
  options.find_peer = [](std::string_view) -> const Peer* { return nullptr; };
  const Ran absent = run(small_row({.measure = Measure::kPeer, .peer = "abacus"}), options);
  EXPECT_EQ(absent.exit_code(), 0);
  EXPECT_EQ(absent.row().void_reason, "built without abacus");
  Row wide = small_row({.measure = Measure::kProbe});
  wide.shape = wide.shape.on_threads(1 << 20);
  EXPECT_TRUE(run(wide, {}).row().void_reason.starts_with("needs 1048576 "));
}

TEST(RunRows, APointOfASeriesThatIsWrongIsAFinding) {
  BenchOptions options;
  options.find_peer = [](std::string_view) { return &kLiar; };
  Bench bench(options);
  std::vector<SeriesPoint> points;
  const Status status = bench.run(
      Series{"f32", "prefill", "liar", {prefill(DType::kF32, 40).heads(4, 2).dim(32)}}, &points);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(points.empty());
  EXPECT_EQ(status.findings()[0].case_id, "bench prefill f32, length 40");
  EXPECT_NE(status.findings()[0].reproduce, "");
}

}  // namespace
}  // namespace shadowgraph::bench::run_rows_test
