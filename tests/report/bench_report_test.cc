#include "report/bench_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/report_samples.h"

namespace shadowgraph::bench_report_test {
namespace {

using nlohmann::json;

TEST(BenchJson, HasTheContractsKeysAndOnlyWhatWasMeasured) {
  RenderOptions options;
  options.format = Format::kJson;
  const json report = json::parse(render(bench_report(), options));
  const json &good = report["bench"][0], &loud = report["bench"][1], &absent = report["bench"][2];
  EXPECT_EQ(good["shape"], "good");
  EXPECT_EQ(good["ratio"], 0.875);
  EXPECT_EQ(good["of"], "stream_read");
  EXPECT_EQ(good["ms"], 2.5);
  EXPECT_EQ(good["gbps"], 25);
  EXPECT_EQ(good["rounds"], 7);
  EXPECT_EQ(good["quiet"], true);
  EXPECT_EQ(good["reached"], true);
  EXPECT_EQ(good["goal_is"], "at_least");
  EXPECT_EQ(good["probes"]["stream_read"], 30);
  EXPECT_FALSE(good.contains("gflops"));
  EXPECT_FALSE(good.contains("void"));
  EXPECT_EQ(loud["rejected"]["somebody else"], 14);
  for (const char* key : {"ratio", "low", "high", "ms", "gbps"})
    EXPECT_FALSE(absent.contains(key)) << key;
  EXPECT_FALSE(good.contains("interrupted"));
  EXPECT_EQ(report["bench"][3]["interrupted"], true);
  EXPECT_EQ(absent["void"], "none here");
  EXPECT_EQ(report["probes"]["stream_read"]["gbps"], 30);
  EXPECT_EQ(report["probes"]["stream_read_1t"]["gbps"], 20);
  EXPECT_EQ(report["probes"]["bf16_peak"]["void"], "none here");
  EXPECT_EQ(report["plots"][0], "share.svg");
  EXPECT_EQ(report["against"]["file"], "old.json");
  EXPECT_EQ(report["against"]["rows"][0]["verdict"], "lost");
  EXPECT_FALSE(report["against"]["rows"][1].contains("was"));
}

TEST(BenchText, MarksWhatIsNoFigure) {
  const std::string text = render(bench_report(), {});
  for (const char* line :
       {"void: none here: absent\n",
        "NOT QUIET, no figure to keep, 7 rounds in all; 14 x somebody else: loud\n",
        "interrupted after 3 rounds: stopped\n", "1 of 4 goals reached, 1 rows void, 2 not quiet\n",
        "wrote share.svg\n", "against old.json\n",
        "good    lost                                0.900  0.875    0.972\n",
        "absent  not compared: not in the older run      -      -"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(BenchText, AMissedGoalIsNoFinding) {
  Report r = bench_report();
  r.bench->rows[0].reached = false;
  EXPECT_EQ(r.exit_code(), 0);
}

}  // namespace
}  // namespace shadowgraph::bench_report_test
