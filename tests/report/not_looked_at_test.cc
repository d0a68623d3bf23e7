// A report counts what each law judged, which features cases had and which pairs of levels, and
// ends with those of none.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/laws.h"
#include "report/report.h"

namespace shadowgraph::not_looked_at_test {
namespace {

std::string text_of(const Report& r, bool quiet = false) {
  RenderOptions options;
  options.quiet = quiet;
  return render(r, options);
}

/// Counts of two families, and of features.
Report counts_report() {
  Report r;
  r.laws = {{"len.copy", 0}, {"len.total", 9}, {"sparse.keys", 0}, {"sparse.seen", 0}};
  r.features = {{"histories items", 0}, {"histories topk", 4}};
  r.pairs = {{"calls c", {2, {true, true}, {}}},
             {"histories a", {5, {true, false, true, true, false}, {"x 1 x y 2", "x 1 x y 3"}}},
             {"histories b", {}}};
  return r;
}

TEST(Text, EndsWithTheLawsAndFeaturesThatWereNotLookedAt) {
  Report r = counts_report();
  const std::vector<std::string> others = r.laws_of_other_runs();
  const std::string lines =
      "laws that could judge and judged nothing, 3 of 4: len.copy, sparse.*\n"
      "laws that cannot judge in this run, " +
      std::to_string(others.size()) +
      ": they are of calls, histories, programs, traces, vectors\n"
      "features that no case had, 1 of 2: histories items\n"
      "pairs of levels that no case had, 2 of 7, such as histories a: x 1 x y 2; "
      "histories a: x 1 x y 3\n"
      "kinds of cases of which there was none, 1 of 3: histories b\n";
  EXPECT_NE(text_of(r).find('\n' + lines + '\n' + r.verdict()), std::string::npos) << text_of(r);
  EXPECT_EQ(text_of(r, true).find("judged nothing"), std::string::npos);
  for (auto& [law, judged] : r.laws) judged = std::max<int64_t>(judged, 1);
  r.features["histories items"] = 1;
  r.pairs = {{"calls c", {2, {true, true}, {}}}};
  EXPECT_EQ(text_of(r).find("judged nothing"), std::string::npos);
  EXPECT_EQ(text_of(r).find("no case had"), std::string::npos);
}

TEST(Json, CountsEveryLawAndFeature) {
  RenderOptions options;
  options.format = Format::kJson;
  const std::string text = render(counts_report(), options);
  for (const char* member :
       {"\"idle_laws\": [\n    \"len.copy\",\n    \"sparse.keys\",",
        "\"laws_of_other_runs\": [\n    \"input.null\",", "\"len.copy\": 0", "\"len.total\": 9",
        "\"histories topk\": 4", "\"bits\": \"b0\"", "\"of\": 5"})
    EXPECT_NE(text.find(member), std::string::npos) << text;
}

/// By Law::judged_in. Laws about inputs, which no run judges, are in neither list.
TEST(Report, TellsLawsThatCannotJudgeFromLawsThatDidNot) {
  constexpr std::string_view kTraces[] = {"traces"};
  LawCounts counts;
  counts.add("plan.first", 2);
  Report r;
  EXPECT_TRUE(r.idle_laws().empty());
  EXPECT_TRUE(r.laws_of_other_runs().empty());
  r.add_laws(counts, kTraces);
  const std::vector<std::string> idle = r.idle_laws(), others = r.laws_of_other_runs();
  for (const Law& law : kLaws) {
    const bool could = is_judged_in(law, "traces");
    EXPECT_EQ(std::ranges::count(idle, law.id), could && law.id != "plan.first") << law.id;
    EXPECT_EQ(std::ranges::count(others, law.id), !could && !law.judged_in.empty()) << law.id;
  }
}

TEST(Report, HasTheLawsOfItsRunsAndWhatElseWasJudged) {
  LawCounts counts;
  counts.add("plan.first", 2), counts.add("num.exact", 1);
  constexpr std::string_view kTraces[] = {"traces"};
  Report r;
  r.add_laws(counts, kTraces);
  r.add_laws(counts, kTraces);
  const auto of = [&](const char* law) {
    const auto it = r.laws.find(law);
    return it == r.laws.end() ? -1 : it->second;
  };
  EXPECT_EQ(of("plan.first"), 4);
  EXPECT_EQ(of("plan.missing"), 0);  // of traces, and not judged
  EXPECT_EQ(of("num.exact"), 2);     // of other runs, and judged
  EXPECT_EQ(of("num.bits"), -1);
}

}  // namespace
}  // namespace shadowgraph::not_looked_at_test
