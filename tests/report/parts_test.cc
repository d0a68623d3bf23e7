#include "report/parts.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace shadowgraph::parts_test {
namespace {

/// parse(text) has a value, which writes the text again; or it has none.
template <class Parse>
void expect_read(const Parse& parse, std::initializer_list<const char*> parts,
                 std::initializer_list<const char*> others) {
  for (const char* text : parts) {
    const auto set = parse(text);
    ASSERT_TRUE(set.has_value()) << text;
    EXPECT_EQ(set->to_string(), text);
  }
  for (const char* text : others) EXPECT_FALSE(parse(text).has_value()) << text;
}

TEST(Parts, AreReadAsTheyAreWritten) {
  expect_read(parse_shards, {"1/1", "2/4", "1,3/4", "1,2,3/3", "1000000/1000000"},
              {"", "/", "1", "0/2", "3/2", "1/0", "01/2", "1/2/3", "1 /2", "+1/2", "2,1/3", "1,1/3",
               "1,/3", ",1/3", "1/1000001", "-1/2", "1/99999999999999999999"});
  expect_read(
      parse_ranges, {"0-0", "512-767", "0-511,513-700", "0-18446744073709551615"},
      {"", "-", "5", "5-", "-5", "5-4", "01-2", "1-2-3", "1 -2", "0-1,2-3", "0-1,1-3", "4-5,0-1",
       "5-9,0-0", "0-1,", ",0-1", "0-18446744073709551616", "0-18446744073709551615,0-0"});
}

/// The findings of such shards or ranges together: files a, b, ...
std::string together(const std::vector<std::string>& texts, bool complete = false) {
  Parts parts;
  Status status;
  std::string path = "a";
  for (const std::string& text : texts) {
    Report r;
    (text.find('/') == std::string::npos ? r.range : r.shard) = text;
    parts.add(path, r, &status);
    ++path[0];
  }
  if (complete) parts.check_complete("a", &status);
  return status.to_string();
}

TEST(Parts, RangesThatOverlapNameBothFiles) {
  EXPECT_EQ(together({"0-9", "20-29", "10-19"}, true), "ok");
  for (const char* text : {"0-9", "5-5", "9-19", "0-100"})
    EXPECT_EQ(together({"0-9", "30-39", text}),
              std::string("io.shard: c: range is ") + text + ", expected cases apart from " +
                  (text == std::string("0-100") ? "30-39, which b has" : "0-9, which a has"));
  EXPECT_EQ(together({"10-19", "0-9,20-29", "15-24"}),
            "io.shard: c: range is 15-24, expected cases apart from 20-29, which b has");
}

TEST(Parts, AShardIsThereOnce) {
  EXPECT_EQ(together({"1/3", "2,3/3"}, true), "ok");
  EXPECT_EQ(together({"1,3/3", "3/3"}),
            "io.shard: b: shard is again, after a, expected shard 3 once");
}

TEST(Parts, RangesShardsAndWholeRunsDoNotMix) {
  EXPECT_EQ(together({"0-9", "1/2"}), "io.shard: b: shard is 1/2, expected a range alone");
  EXPECT_EQ(together({"1/2", "0-9"}), "io.shard: b: range is 0-9, expected a shard alone");
  EXPECT_EQ(together({"0-9", ""}),
            "io.shard: b: range is the whole run, expected a range, 512-767");
  EXPECT_EQ(together({"", "0-9"}), "io.shard: a: shard is the whole run, expected a shard, 2/4");
}

TEST(Parts, AHoleBetweenRangesIsSaidIfAllCasesAreAskedFor) {
  EXPECT_EQ(together({"5-9", "30-39", "20-24"}), "ok");
  EXPECT_EQ(together({"5-9", "30-39", "20-24"}, true),
            "io.shard: a: range is without 10-19, 25-29, expected all cases of 5-39");
}

}  // namespace
}  // namespace shadowgraph::parts_test
