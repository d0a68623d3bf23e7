#include "shadowgraph/status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/laws.h"

namespace shadowgraph::status_test {
namespace {

Finding some(const char* expected) {
  return make_finding("table.page_id", at("page_table", 2, 5), expected, "99");
}

TEST(Status, TheEmptyListIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "ok");
}

TEST(Status, EveryFindingIsKeptInOrder) {
  Status a, b;
  for (const char* n : {"1", "2"}) a.add(some(n));
  for (const char* n : {"3", "3", "4"}) b.add(some(n));
  a.add(std::move(b));
  a.add(Status());
  ASSERT_FALSE(a.ok());
  ASSERT_EQ(a.findings().size(), 5u);
  std::string order;
  for (const Finding& f : a.findings()) order += f.expected;
  EXPECT_EQ(order, "12334");
}

TEST(Status, PrintsOneFindingALine) {
  Status s;
  s.add(some("1"));
  s.add(some("2"));
  EXPECT_EQ(s.to_string(),
            "table.page_id: page_table[2, 5] is 99, expected 1\n"
            "table.page_id: page_table[2, 5] is 99, expected 2");
}

TEST(Finding, PrintsAsMuchOfThePlaceAsItHas) {
  EXPECT_EQ(make_finding("input.null", at("out"), "memory", "null").to_string(),
            "input.null: out is null, expected memory");
  EXPECT_EQ(make_finding("input.null", at("out", 7), "memory", "null").to_string(),
            "input.null: out[7] is null, expected memory");
  Finding f = some("x");
  f.case_id = "seed 1 case 2";
  EXPECT_EQ(f.to_string(), "table.page_id: seed 1 case 2: page_table[2, 5] is 99, expected x");
}

TEST(Finding, APlaceHasAsManyIndicesAsItsField) {
  const std::vector<int64_t> index = {1, 2, 3, 4};
  EXPECT_EQ(at("out", index).index(), "[1, 2, 3, 4]");
  EXPECT_EQ(at("out", std::span(index).first(3)).index(), "[1, 2, 3]");
  EXPECT_EQ(at("out", std::span(index).first(2)), at("out", 1, 2));
  EXPECT_EQ(at("out", std::span<const int64_t>()).index(), "");
}

TEST(Finding, TakesItsLawsWords) {
  const Law& law = *find_law("num.lse_bound");
  const Finding f = make_finding("num.lse_bound", at("lse"), "1", "2");
  EXPECT_EQ(f.id, law.id);
  EXPECT_EQ(f.title, law.sentence);
  EXPECT_EQ(f.severity, law.severity);
  EXPECT_EQ(f.where, at("lse"));
}

TEST(Finding, SplitsTheRefsOfItsLaw) {
  EXPECT_EQ(make_finding("num.lse_bound", at("lse"), "", "").refs,
            (std::vector<std::string>{"verification.D", "sglang#35045"}));
  EXPECT_EQ(make_finding("table.page_id", at("x"), "", "").refs,
            (std::vector<std::string>{"fa.I-29", "fi.I-5", "onnxruntime#32391"}));
  EXPECT_TRUE(make_finding("input.null", at("x"), "", "").refs.empty());
}

TEST(Finding, ARefThatIsAddedAgainStandsOnce) {
  Finding f = make_finding("num.lse_bound", at("lse"), "", "");
  add_refs(std::vector<std::string>{"K40", "verification.D", "K40"}, &f);
  EXPECT_EQ(f.refs, (std::vector<std::string>{"verification.D", "sglang#35045", "K40"}));
}

TEST(Laws, HaveUniqueIds) {
  std::set<std::string_view> ids;
  for (const Law& law : kLaws) EXPECT_TRUE(ids.insert(law.id).second) << law.id;
  EXPECT_GT(ids.size(), 30u);
}

TEST(Laws, AreNamedFamilyDotName) {
  for (const Law& law : kLaws) {
    const auto well = [](char ch) {
      return std::islower(static_cast<unsigned char>(ch)) || ch == '_' || ch == '.';
    };
    EXPECT_TRUE(std::all_of(law.id.begin(), law.id.end(), well)) << law.id;
    EXPECT_EQ(std::count(law.id.begin(), law.id.end(), '.'), 1) << law.id;
  }
}

TEST(Laws, AreSentences) {
  for (const Law& law : kLaws) {
    ASSERT_FALSE(law.sentence.empty()) << law.id;
    EXPECT_TRUE(law.sentence.ends_with('.')) << law.id;
    EXPECT_FALSE(std::islower(static_cast<unsigned char>(law.sentence[0])) &&
                 law.sentence.find(' ') == std::string_view::npos)
        << law.id;
    EXPECT_TRUE(law.mend.empty() || law.mend.ends_with('.')) << law.id;
  }
}

TEST(Laws, RefsAreSeparatedBySingleSpaces) {
  for (const Law& law : kLaws) {
    EXPECT_EQ(law.refs.find("  "), std::string_view::npos) << law.id;
    EXPECT_FALSE(law.refs.starts_with(' ') || law.refs.ends_with(' ')) << law.id;
  }
}

TEST(Laws, AreFoundByIdOnly) {
  for (const Law& law : kLaws) EXPECT_EQ(find_law(law.id), &law);
  EXPECT_EQ(find_law("input"), nullptr);
  EXPECT_EQ(find_law(""), nullptr);
}

}  // namespace
}  // namespace shadowgraph::status_test
