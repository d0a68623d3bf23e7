// The program as a function.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "shadowgraph.h"

namespace shadowgraph::c_api::main_test {
namespace {

/// The exit code, and what was printed on either stream.
struct Done {
  int32_t code;
  std::string out, err;
};

Done run(std::initializer_list<const char*> words) {
  const std::vector<const char*> argv(words);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int32_t code = sg_main(static_cast<int32_t>(argv.size()), argv.data());
  std::string out = ::testing::internal::GetCapturedStdout();
  return {code, out, ::testing::internal::GetCapturedStderr()};
}

TEST(CMain, ItIsTheProgramAndRunsAgainAndAgain) {
  for (int i = 0; i < 2; ++i) {
    const Done listed = run({"shadowgraph", "list", "laws"});
    EXPECT_EQ(listed.code, 0);
    EXPECT_NE(listed.out.find("input.device"), std::string::npos);
    const Done version = run({"shadowgraph", "--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_NE(version.out.find(sg_version()), std::string::npos);
    const Done unknown = run({"shadowgraph", "nonsense"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_NE(unknown.err.find("'nonsense' is not a verb"), std::string::npos);
    EXPECT_EQ(run({"shadowgraph", "check", "no_such_file.jsonl"}).code, 3);
  }
}

TEST(CMain, ARunWithFindingsSaysSo) {
  const Done done = run({"shadowgraph", "fuzz", "--seed", "1", "--backend", "flashattention",
                         "--plant", "K31", "--max-findings", "1", "--quiet"});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.out.find("table.slot"), std::string::npos);
}

TEST(CMain, NoCommandLineIsAWrongUse) {
  EXPECT_EQ(sg_main(0, nullptr), SG_USAGE);
  EXPECT_EQ(run({}).code, SG_USAGE);
}

}  // namespace
}  // namespace shadowgraph::c_api::main_test
