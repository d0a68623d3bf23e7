#include "report/bench_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/report.h"

namespace shadowgraph {
namespace {

using nlohmann::json;

BenchRow quiet_row(const std::string& id) {
  BenchRow r;
  r.shape = id, r.of = "stream_read", r.text = "a row";
  r.ratio = 0.875, r.low = 0.75, r.high = 1, r.goal = 0.5;
  r.reached = r.quiet = true;
  r.ms = 2.5, r.gbps = 25, r.rounds = 7, r.threads = 2;
  r.dtype = "f32", r.arith = "portable", r.isa = "generic";
  r.probes = {{"stream_read", 30}};
  return r;
}

Report small_report() {
  Report r;
  r.verb = "bench", r.version = "9.8.7", r.isa = "generic", r.threads = 2, r.cases = 3;
  BenchReport& b = r.bench.emplace();
  b.machine = {{"cpu", "abacus\x1b[31m"}};
  b.probes = {{"stream_read", 2, "zmm", 30, {}, ""},
              {"stream_read", 1, "zmm", 20, {}, ""},
              {"bf16_peak", 2, "", {}, {}, "none here"}};
  BenchRow loud = quiet_row("loud"), absent = quiet_row("absent");
  loud.quiet = loud.reached = false;
  loud.rejected = {{"somebody else", 14}};
  absent.ratio = absent.low = absent.high = {};
  absent.ms = absent.gbps = {};
  absent.reached = false, absent.rounds = 0;
  absent.void_reason = "none here";
  BenchRow stopped = quiet_row("stopped");
  stopped.quiet = stopped.reached = false, stopped.interrupted = true, stopped.rounds = 3;
  b.rows = {quiet_row("good"), loud, absent, stopped};
  b.plots = {"share.svg"};
  return r;
}

TEST(BenchJson, HasTheContractsKeysAndOnlyWhatWasMeasured) {
  RenderOptions options;
  options.format = Format::kJson;
  const json report = json::parse(render(small_report(), options));
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
}

TEST(BenchText, MarksWhatIsNoFigure) {
  const std::string text = render(small_report(), {});
  for (const char* line :
       {"void: none here: absent\n",
        "NOT QUIET, no figure to keep, 7 rounds in all; 14 x somebody else: loud\n",
        "interrupted after 3 rounds: stopped\n", "1 of 4 goals reached, 1 rows void, 2 not quiet\n",
        "wrote share.svg\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(BenchText, AMissedGoalIsNoFinding) {
  Report r = small_report();
  r.bench->rows[0].reached = false;
  EXPECT_EQ(r.exit_code(), 0);
}

}  // namespace
}  // namespace shadowgraph
