#include "bench/plots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "bench/svg.h"

namespace shadowgraph::bench::plots_test {
namespace {

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Svg, TextFromOutsideStaysText) {
  EXPECT_EQ(escape_xml("<a b=\"c\">&'\x1b\n"), "&lt;a b=&quot;c&quot;&gt;&amp;&apos;");
  Svg svg(10, 10, "</title><script>");
  svg.text(0, 0, "</text><script>", "");
  svg.circle(0, 0, 1, "", "</title>");
  const std::string document = svg.str();
  EXPECT_EQ(document.find("<script"), std::string::npos);
  EXPECT_EQ(count(document, "</title>"), 2u);
  EXPECT_TRUE(document.ends_with("</svg>\n"));
}

BenchRow row(const std::string& id, const std::string& of) {
  BenchRow r;
  r.shape = id, r.of = of;
  r.ratio = 0.5, r.low = 0.4, r.high = 0.6, r.goal = 0.45;
  r.quiet = r.reached = true;
  return r;
}

TEST(SharePlot, ShowsTheRowsThatDivideByALimit) {
  BenchRow noisy = row("noisy", "stream_read"), nothing = row("nothing", "bf16_peak");
  noisy.quiet = noisy.reached = false;
  nothing.ratio = nothing.low = nothing.high = {};
  nothing.void_reason = "absent";
  const std::string plot = share_plot({row("good", "fma_peak"), noisy, nothing, row("mine", "self"),
                                       row("theirs", "peer:openblas")},
                                      "a <machine>");
  for (const char* shown : {"good", "noisy", "nothing", "not quiet", "bf16_peak: void",
                            "0.50 of fma_peak", "a &lt;machine&gt;"})
    EXPECT_NE(plot.find(shown), std::string::npos) << shown;
  EXPECT_EQ(plot.find("mine"), std::string::npos);
  EXPECT_EQ(plot.find("theirs"), std::string::npos);
}

/// The largest x2 of the lines and x + width of the bars.
double rightmost(const std::string& plot) {
  double most = 0;
  double x = 0, y = 0, x2 = 0, width = 0;
  for (size_t at = plot.find('\n'); at != std::string::npos; at = plot.find('\n', at + 1)) {
    const char* element = plot.c_str() + at + 1;
    if (std::sscanf(element, "<line x1=\"%lf\" y1=\"%lf\" x2=\"%lf\"", &x, &y, &x2) == 3)
      most = std::max(most, x2);
    if (std::sscanf(element, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &width) == 3)
      most = std::max(most, x + width);
  }
  return most;
}

TEST(SharePlot, NothingLeavesThePaperHoweverLargeARatioIs) {
  // Coordinates are printed to a tenth: what is at the edge is so exactly.
  const double usual = rightmost(share_plot({row("good", "fma_peak")}, ""));
  for (const double ratio : {0.9, 1.3, 7.0, 1000.0}) {
    BenchRow r = row("large", "fma_peak");
    r.ratio = r.low = ratio, r.high = 1.1 * ratio;
    EXPECT_EQ(rightmost(share_plot({r}, "")), usual) << ratio;
    r = row("goal", "fma_peak");
    r.goal = ratio;
    EXPECT_EQ(rightmost(share_plot({r}, "")), usual) << ratio;
  }
}

TEST(TimePlot, HasEveryPointItsLimitAndBothUnits) {
  const std::string plot = time_plot(
      "decode", {{"f32", {{128, 0.1, 0.05}, {256, 0.2, 0.1}}}, {"bf16", {{128, 0.05, 0}}}}, "m");
  EXPECT_EQ(count(plot, "<circle"), 3u);
  EXPECT_EQ(count(plot, "stroke-dasharray"), 1u);
  EXPECT_EQ(count(plot, "; limit"), 2u);
  for (const char* shown : {"tokens", "(ms)", "f32", "bf16", "256"})
    EXPECT_NE(plot.find(shown), std::string::npos) << shown;
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_EQ(plot.find("inf"), std::string::npos);
}

TEST(TimePlot, ALimitThatIsNoneLeavesAGap) {
  const std::vector<SeriesPoint> points = {
      {128, 0.1, 0.05}, {256, 0.2, 0.1}, {512, 0.4, 0}, {1024, 0.8, 0.4}, {2048, 1.6, 0.8}};
  EXPECT_EQ(count(time_plot("decode", {{"f32", points}}, "m"), "stroke-dasharray"), 2u);
}

TEST(TimePlot, OfNothingIsStillADocument) {
  EXPECT_TRUE(time_plot("empty", {}, "").ends_with("</svg>\n"));
  EXPECT_TRUE(share_plot({}, "").ends_with("</svg>\n"));
}

}  // namespace
}  // namespace shadowgraph::bench::plots_test
