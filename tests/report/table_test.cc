// Tables fit a terminal, and verdicts of planted faults.
#include "report/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/report.h"

namespace shadowgraph::table_test {
namespace {

using nlohmann::json;

TEST(Listing, IsATableOrItems) {
  const Listing listing{
      "kernels", {"name", "computes"}, {{"decode_paged", "one"}, {"merge", "two"}}};
  EXPECT_EQ(render(listing, RenderOptions{}),
            "name          computes\ndecode_paged  one\nmerge         two\n");
  RenderOptions options;
  options.format = Format::kJson;
  EXPECT_EQ(json::parse(render(listing, options)),
            json::parse(R"({"schema": "shadowgraph.list/1", "kind": "kernels",
    "items": [{"name": "decode_paged", "computes": "one"}, {"name": "merge", "computes": "two"}]})"));
}

TEST(Table, CellsOfSeveralWordsAreWrapped) {
  Table table(2, {"name", "what"});
  table.add({"a_long_name", "one two three four"});
  table.add({"b", "five"});
  EXPECT_EQ(table.render({}),
            "name         what\na_long_name  one two three four\nb            five\n");
  EXPECT_EQ(table.render({}, 22),
            "name         what\n"
            "a_long_name  one two\n"
            "             three\n"
            "             four\n"
            "b            five\n");
  EXPECT_EQ(table.render({}, 1), table.render({}, 18)) << "no word is cut";
}

TEST(Report, APlantedFaultThatIsFoundIsSaidSo) {
  Report r;
  r.cases = 3;
  r.faults.emplace_back().detected = true;
  EXPECT_TRUE(r.verdict().starts_with("1 planted fault found, none missed: 3 cases judged, "));
  EXPECT_EQ(r.verdict().find("findings"), std::string::npos);
  EXPECT_EQ(r.exit_code(), 0);
  r.faults.emplace_back().detected = true;
  EXPECT_TRUE(r.verdict().starts_with("2 planted faults found"));
  r.findings.emplace_back().id = "fault.missed";
  r.findings[0].where.field = "K31";
  EXPECT_TRUE(r.verdict().starts_with("not noticed: "));
}

}  // namespace
}  // namespace shadowgraph::table_test
