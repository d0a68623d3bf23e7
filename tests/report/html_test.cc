#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "core/laws.h"
#include "report/escape.h"
#include "report/html_drawings.h"
#include "report/report.h"
#include "report/report_samples.h"
#include "report/words.h"

namespace shadowgraph::html_test {
namespace {

std::string html_of(const Report& r, size_t max_findings = 100) {
  RenderOptions options;
  options.format = Format::kHtml;
  options.max_findings = max_findings;
  return render(r, options);
}

size_t times(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t p = text.find(part); p != std::string::npos; p = text.find(part, p + 1)) ++n;
  return n;
}

/// Tags that are closed, in pairs.
void expect_balanced(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag(R"(<(/?)([a-z][a-z0-9]*)[^>]*?(/?)>)");
  const std::set<std::string> alone = {"meta", "br"};
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if ((*it)[3].length() > 0 || alone.contains(name)) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    ASSERT_EQ(open.back(), name) << (*it).prefix().str().substr(0, 200);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(Html, NeedsNothingFromOutside) {
  const std::string html = html_of(pictures_report());
  for (const char* outside :
       {"<script", "<link", "<img", "src=", "href=", "url(", "@import", "http:", "https:"})
    EXPECT_EQ(times(html, outside), 0u) << outside;
  EXPECT_EQ(times(html, "default-src 'none'; style-src 'unsafe-inline'"), 1u);
}

TEST(Html, IsBalancedWhateverANameHolds) {
  expect_balanced(html_of(pictures_report()));
  expect_balanced(html_of(hostile_report()));
  expect_balanced(html_of(faults_report()));
  expect_balanced(html_of(Report{}));
}

TEST(Html, GroupsFindingsByLawAndSaysHowToMendIt) {
  Report r = small_report();
  r.findings.push_back(small_finding());
  r.findings[1].id = "len.total", r.findings[1].case_id = "other";
  r.findings.push_back(small_finding());
  r.findings[2].case_id = "third", r.findings[2].waived = "known";
  const std::string html = html_of(r);
  EXPECT_EQ(times(html, "<section class=\"law\">"), 2u);
  EXPECT_EQ(times(html, "<code>num.bound</code> <span class=\"soft\">2 findings</span>"), 1u);
  EXPECT_EQ(times(html, escape_xml(find_law("num.bound")->sentence)), 1u);
  EXPECT_EQ(times(html, escape_xml(find_law("num.bound")->mend)), 1u);
  EXPECT_EQ(times(html, "<details class=\"card\" open>"), 2u);  // the first of each law
  EXPECT_EQ(times(html, "<span class=\"tag soft\">waived</span> third"), 1u);
  EXPECT_EQ(times(html, "<pre>shadowgraph check a.safetensors --case case001</pre>"), 3u);
}

TEST(Html, ListsAtMostMaxFindingsAndSaysHowManyMore) {
  Report r = small_report();
  r.findings.resize(5, small_finding());
  const std::string html = html_of(r, 2);
  EXPECT_EQ(times(html, "class=\"card\""), 2u);
  EXPECT_EQ(times(html, "3 more findings: --max-findings 5"), 1u);
}

TEST(Html, ShowsFaultsCoverageAndHistograms) {
  Report r = faults_report();
  r.coverage = {{"a", "decode", "eager", 10}, {"a", "decode", "replay", 5}, {"b", "x", "eager", 1}};
  r.histograms.push_back({"keys", 96, {{"1..63", 10}, {"64+", 20}}});
  const std::string html = html_of(r);
  EXPECT_EQ(
      times(html,
            "<code class=\"id\">mem.uninit_read</code> <code class=\"id\">len.kv_extent</code>"),
      1u);
  EXPECT_EQ(times(html, "<span class=\"tag bad\">nothing</span>"), 1u);
  EXPECT_EQ(times(html, "not planted</span> no twin has this kernel"), 1u);
  EXPECT_EQ(times(html, "<b>1 of 2</b>"), 1u);
  EXPECT_EQ(times(html, "<th class=\"n\">eager</th><th class=\"n\">replay</th>"), 1u);
  EXPECT_EQ(times(html, "style=\"--share:50.0%\">5</td>"), 1u);
  EXPECT_EQ(times(html, "<span>1..63</span><i style=\"--share:50.0%\"></i><span class=\"n\">10"),
            1u);
}

TEST(Html, SaysWhatTheRunDidNotLookAt) {
  Report r = small_report();
  EXPECT_EQ(times(html_of(r), "did not look at"), 0u);
  r.laws = {{"len.copy", 0}, {"len.total", 9}};
  EXPECT_EQ(times(html_of(r), "laws that could judge and judged nothing, 1 of 2: len.copy</p>"),
            1u);
}

TEST(Html, ShowsTheMatrixOfFaultsAndBackends) {
  const std::string html = html_of(matrix_report());
  EXPECT_EQ(times(html, "<td class=\"good\" title=\"backend1: found, table.slot\">#</td>"), 1u);
  EXPECT_EQ(times(html, "<td class=\"bad\""), 1u);
  EXPECT_EQ(times(html, "title=\"backend12: never acted, no encoder\">.</td>"), 2u);
  EXPECT_EQ(times(html, "11 backend11, 12 backend12</p>"), 1u);
  expect_balanced(html);
  Report r = faults_report();
  r.faults[2].verdict = "never acted", r.faults[2].why_not = "no history had it";
  EXPECT_EQ(times(html_of(r), "never acted</span> no history had it"), 1u);
}

TEST(Html, EveryPictureStandsWithItsFinding) {
  const std::string html = html_of(pictures_report());
  const size_t card = html.find("class=\"card\""), end = html.find("</details>");
  ASSERT_NE(card, std::string::npos);
  EXPECT_EQ(times(html.substr(card, end - card), "<figure>"), 4u);
  EXPECT_EQ(times(html, "<figure>"), 6u);  // one of the run, one of its cases
  EXPECT_EQ(times(html, "<dt>file</dt><dd>a.safetensors:12</dd>"), 1u);
}

TEST(Drawing, ATableIsColouredByOwnerAndTheWrongEntryIsFramed) {
  const std::string svg = draw(Picture(table_sample()));
  EXPECT_EQ(times(svg, "<title>[2, 2] is 7: row 0&#39;s</title>"), 1u);
  EXPECT_EQ(times(svg, "class=\"o0\"><title>"), 4u);
  EXPECT_EQ(times(svg, "class=\"none\"><title>"), 3u);
  EXPECT_EQ(times(svg, "class=\"off\"><title>[1, 2] is 0: nobody"), 1u);
  EXPECT_EQ(times(svg, "class=\"wrong\"/>"), 2u);  // the entry, and the legend
  EXPECT_EQ(times(svg, "; [2, 2] is 7, row 0&#39;s"), 1u);
}

TEST(Drawing, AMaskSaysWhatIsSeenTooMuchAndTooLittle) {
  const std::string svg = draw(Picture(mask_sample()));
  EXPECT_EQ(times(svg, "class=\"alarm\"><title>query 1, key 3: seen, expected hidden"), 1u);
  EXPECT_EQ(times(svg, "class=\"alarm\"><title>query 2, key 0: hidden, expected seen"), 1u);
  EXPECT_EQ(times(svg, "class=\"alarm\"><title>"), 2u);
  EXPECT_EQ(times(svg, "; 2 wrong"), 1u);
}

TEST(Drawing, ATimelineMarksTheStaleRead) {
  const std::string svg = draw(Picture(timeline_sample()));
  EXPECT_EQ(times(svg,
                  "<title>cache_seqlens, replay 2: stale: read of what an older step left; "
                  "written in step 1</title>"),
            1u);
  EXPECT_EQ(times(svg, "class=\"wrote\"><title>"), 3u);
  EXPECT_EQ(times(svg, "class=\"read\"><title>"), 1u);
}

TEST(Drawing, HeatPastTheBoundAlarmsAndNaNToo) {
  const std::string svg = draw(Picture(heat_sample()));
  EXPECT_EQ(times(svg, "class=\"alarm\"><title>row 0, head 2: 2.5</title>"), 1u);
  EXPECT_EQ(times(svg, "class=\"alarm\"><title>row 1, head 0: nan</title>"), 1u);
  EXPECT_EQ(times(svg, "class=\"none\"><title>row 1, head 1: not measured</title>"), 1u);
  EXPECT_EQ(times(svg, "; 2 past the bound"), 1u);
}

TEST(Drawing, OfALongNameTheEndIsKept) {
  Heatmap m = heat_sample();
  m.row_names = {"\xc3\xa9" + std::string(43, 'a'), ""};
  m.row_names[1] = "start" + m.row_names[0];
  const std::string svg = draw(Picture(m));
  EXPECT_EQ(times(svg, ">\xc3\xa9" + std::string(43, 'a') + "</text>"), 1u);
  EXPECT_EQ(times(svg, ">\xe2\x80\xa6" + std::string(43, 'a') + "</text>"), 1u);
  EXPECT_EQ(times(svg, "<title>start\xc3\xa9" + std::string(43, 'a') + ", head 1: not measured"),
            1u);
}

TEST(Drawing, OfALargeGridThePartAroundTheFaultIsDrawn) {
  TableMap m;
  m.rows = 100, m.columns = 1000;
  m.entries.assign(100000, 1), m.owners.assign(100000, 0);
  m.wrong = {{99, 500}};
  const std::string svg = draw(Picture(m));
  EXPECT_EQ(times(svg, "; rows 68 to 99 of 100; pages 468 to 531 of 1000"), 1u);
  EXPECT_EQ(times(svg, "<title>[99, 500]"), 1u);
  EXPECT_EQ(times(svg, "<title>["), 32u * 64u);
}

TEST(Pictures, OfErrorsHaveTheWorstCaseFirstAndOnlyWhatWasMeasured) {
  const Report r = small_report();
  const Heatmap map = error_map(r).value();
  EXPECT_EQ(map.column_names, (std::vector<std::string>{"ours", "gpu"}));
  EXPECT_EQ(map.row_names,
            (std::vector<std::string>{"a.safetensors#case001", "a.safetensors#case000"}));
  EXPECT_EQ(map.values, (std::vector<double>{250, -1, 0.125, 0.25}));
  EXPECT_TRUE(is_whole(map));
  EXPECT_FALSE(error_map(Report{}).has_value());
}

TEST(Pictures, AreWholeWhenTheirSizesAgree) {
  EXPECT_TRUE(is_whole(table_sample()) && is_whole(mask_sample()));
  EXPECT_TRUE(is_whole(timeline_sample()) && is_whole(heat_sample()));
  TableMap table = table_sample();
  table.wrong = {{3, 0}};
  EXPECT_FALSE(is_whole(table));
  table = table_sample(), table.owners.pop_back();
  EXPECT_FALSE(is_whole(table));
  MaskMap mask = mask_sample();
  mask.rows = -3, mask.columns = -4;
  EXPECT_FALSE(is_whole(mask));
  Timeline timeline = timeline_sample();
  timeline.marks[0].step = 3;
  EXPECT_FALSE(is_whole(timeline));
  Heatmap heat = heat_sample();
  heat.row_names = {"one"};
  EXPECT_FALSE(is_whole(heat));
}

TEST(Html, APictureThatIsNotWholeIsLeftOut) {
  Report r = pictures_report();
  std::get<TableMap>(r.evidence[0].pictures[0]).rows = 1000;
  EXPECT_EQ(times(html_of(r), "<figure>"), 5u);
}

}  // namespace
}  // namespace shadowgraph::html_test
