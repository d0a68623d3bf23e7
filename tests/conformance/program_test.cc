#include "conformance/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "conformance/programs.h"
#include "core/laws.h"

namespace shadowgraph::program_test {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) result.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::vector<std::string> names(std::string_view variants, std::string_view subs = "") {
  Program program;
  program.variants = variants;
  program.subs = subs;
  std::vector<std::string> result;
  for (const Variant& v : variants_of(program)) result.push_back(v.to_string());
  return result;
}

using Names = std::vector<std::string>;

TEST(Variants, ANotationNamesItsStreamsAndModes) {
  EXPECT_EQ(names("N"), Names({"n.global"}));
  EXPECT_EQ(names("D"), Names({"b.global", "n.global"}));
  EXPECT_EQ(names("A"), Names({"b.global", "b.thread_local", "b.relaxed", "n.global",
                               "n.thread_local", "n.relaxed"}));
  EXPECT_EQ(names("B3"), Names({"b.global", "b.thread_local", "b.relaxed"}));
  EXPECT_EQ(names("N3"), Names({"n.global", "n.thread_local", "n.relaxed"}));
}

TEST(Variants, ModesAfterAColonAreTheOnlyOnes) {
  EXPECT_EQ(names("A:relaxed"), Names({"b.relaxed", "n.relaxed"}));
  EXPECT_EQ(names("A:global,thread_local"),
            Names({"b.global", "b.thread_local", "n.global", "n.thread_local"}));
  EXPECT_EQ(names("N3:global,thread_local"), Names({"n.global", "n.thread_local"}));
}

TEST(Variants, APlusAddsOneMore) {
  EXPECT_EQ(names("D+n.relaxed"), Names({"b.global", "n.global", "n.relaxed"}));
}

TEST(Variants, EverySubRunsInEveryVariant) {
  EXPECT_EQ(names("D", "x y"), Names({"b.global.x", "b.global.y", "n.global.x", "n.global.y"}));
  EXPECT_EQ(names("A", "x y z").size(), 18u);
}

TEST(Variants, AnUnknownNotationHasNone) {
  EXPECT_TRUE(names("").empty());
  EXPECT_TRUE(names("Z").empty());
}

TEST(Variants, OnlyWhatPrintsTheSameIsParsed) {
  for (const char* text : {"n.global", "b.thread_local", "n.relaxed.memcpyH2D", "b.global.1d"}) {
    const auto variant = Variant::parse(text);
    ASSERT_TRUE(variant) << text;
    EXPECT_EQ(variant->to_string(), text);
  }
  for (const char* text :
       {"", "n", "n.", "x.global", "n.fast", "n.global.", "global", "N.global"}) {
    EXPECT_FALSE(Variant::parse(text)) << text;
  }
}

TEST(Programs, EveryNumberOfTheRuleBookHasOneInOrder) {
  Names expected;
  for (int i = 1; i <= 135; ++i) {
    expected.push_back((i < 10 ? "G0" : "G") + std::to_string(i));
    if (i == 90) expected.emplace_back("G90d");
  }
  for (int i = 1; i <= 15; ++i) expected.push_back((i < 10 ? "Q0" : "Q") + std::to_string(i));
  Names ids;
  int matrix = 0;
  for (const Program& program : programs()) {
    if (program.id.starts_with("M:")) {
      ++matrix;
    } else {
      EXPECT_EQ(matrix, 0) << program.id << " comes after the matrix";
      ids.emplace_back(program.id);
    }
  }
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(matrix, 81);
}

TEST(Programs, IdAndVariantNameOneRun) {
  std::set<std::string> runs;
  for (const Program& program : programs()) {
    EXPECT_EQ(find_program(program.id), &program);
    const std::vector<Variant> variants = variants_of(program);
    EXPECT_FALSE(variants.empty()) << program.id;
    for (const Variant& variant : variants) {
      const std::string text = variant.to_string();
      EXPECT_TRUE(runs.insert(std::string(program.id) + ' ' + text).second)
          << program.id << ' ' << text << " twice";
      const auto parsed = Variant::parse(text);
      ASSERT_TRUE(parsed) << program.id << ' ' << text;
      EXPECT_EQ(parsed->to_string(), text);
      EXPECT_EQ(parsed->sub, variant.sub);
    }
  }
  EXPECT_EQ(find_program("G00"), nullptr);
}

/// What is wrong with a program's entry; empty if nothing is.
std::string fault_of(const Program& program) {
  if (program.title.empty()) return "no title";
  if (program.body == nullptr) return "no body";
  std::vector<std::string> cases = words(program.subs);
  cases.insert(cases.end(), {"b", "n"});
  const auto is_case = [&cases](const std::string& name) {
    return std::find(cases.begin(), cases.end(), name) != cases.end();
  };
  if (program.verdict == Verdict::kUndefined && program.diagnosis.empty()) return "no diagnosis";
  for (const std::string& entry : words(program.diagnosis)) {
    const size_t equals = entry.find('=');
    if (equals != entry.npos && !is_case(entry.substr(0, equals))) return "no case of " + entry;
    const std::string law = equals == entry.npos ? entry : entry.substr(equals + 1);
    if (law != "-" && find_law(law) == nullptr) return "no law " + law;
  }
  for (const Open& open : program.open) {
    for (const std::string& sub : words(open.subs)) {
      if (!is_case(sub)) return "no sub " + sub;
    }
    if (!open.what.starts_with("fact ") && !open.what.starts_with("ret cuda")) {
      return "not open: " + std::string(open.what);
    }
    if (words(open.values).empty()) return "no values";
  }
  return "";
}

TEST(Programs, EveryEntryNamesWhatThereIs) {
  for (const Program& program : programs()) EXPECT_EQ(fault_of(program), "") << program.id;
}

TEST(Programs, AMisspeltEntryIsSeen) {
  const auto body = [](shadowgraph::Run&) {};
  const Program good{"G00", "title", Verdict::kUndefined, "N", "x y", body, "x=mem.race y=-"};
  EXPECT_EQ(fault_of(good), "");
  const auto broken = [&good](auto change) {
    Program program = good;
    change(program);
    return fault_of(program);
  };
  EXPECT_EQ(broken([](Program& p) { p.title = ""; }), "no title");
  EXPECT_EQ(broken([](Program& p) { p.body = nullptr; }), "no body");
  EXPECT_EQ(broken([](Program& p) { p.diagnosis = ""; }), "no diagnosis");
  EXPECT_EQ(broken([](Program& p) { p.diagnosis = "mem.rice"; }), "no law mem.rice");
  EXPECT_EQ(broken([](Program& p) { p.diagnosis = "z=mem.race"; }), "no case of z=mem.race");
  static constexpr Open kOfNoSub[] = {{"z", "fact a", "1"}};
  EXPECT_EQ(broken([](Program& p) { p.open = kOfNoSub; }), "no sub z");
  static constexpr Open kOfNothing[] = {{"x", "return", "1"}};
  EXPECT_EQ(broken([](Program& p) { p.open = kOfNothing; }), "not open: return");
}

}  // namespace
}  // namespace shadowgraph::program_test
