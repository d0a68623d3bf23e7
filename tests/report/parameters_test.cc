// A report counts the steps of histories by what their layers had, and by whether results were
// merged.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "report/report.h"

namespace shadowgraph::parameters_test {
namespace {

using json = nlohmann::json;

TEST(Parameters, AreCountedByWhetherResultsWereMerged) {
  Report r;
  r.parameters = {{"a sinks merged", 3}, {"a sinks whole", 4}, {"b sinks merged", 10}};
  const std::string text = render(r, {});
  EXPECT_NE(text.find("parameter  of  merged  whole\n"
                      "sinks       2      13      4\n"),
            std::string::npos)
      << text;
}

TEST(Parameters, AreThoseOfEachBackendWhereCoverageIs) {
  Report r;
  r.parameters = {{"a sinks merged", 3}, {"a sinks whole", 4}, {"b sinks merged", 10}};
  RenderOptions all;
  all.coverage = true;
  const std::string text = render(r, all);
  EXPECT_NE(text.find("b sinks     1      10      0\n"), std::string::npos) << text;
}

TEST(Parameters, AreInJsonWhereThereAreSome) {
  RenderOptions options;
  options.format = Format::kJson;
  Report r;
  EXPECT_FALSE(json::parse(render(r, options)).contains("parameters"));
  r.parameters = {{"a sinks merged", 3}};
  EXPECT_EQ(json::parse(render(r, options))["parameters"], (json{{"a sinks merged", 3}}));
}

}  // namespace
}  // namespace shadowgraph::parameters_test
