#include "report/escape.h"

#include <gtest/gtest.h>

namespace shadowgraph::escape_test {
namespace {

TEST(Escape, KeepsPrintableUtf8) {
  EXPECT_EQ(escape_controls("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 \\"),
            "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 \\");
}

TEST(Escape, WritesOutWhatIsNotUtf8) {
  EXPECT_EQ(escape_controls("\xc0\xaf"), R"(\xc0\xaf)");          // overlong
  EXPECT_EQ(escape_controls("\xe0\x80\xaf"), R"(\xe0\x80\xaf)");  // overlong
  EXPECT_EQ(escape_controls("\xed\xa0\x80"), R"(\xed\xa0\x80)");  // surrogate
  EXPECT_EQ(escape_controls("\xf4\x90\x80\x80"),
            R"(\xf4\x90\x80\x80)");                       // past the last code point
  EXPECT_EQ(escape_controls("\xe2\x82"), R"(\xe2\x82)");  // cut short
}

TEST(Escape, WritesOutWhatXmlCannotHold) {
  EXPECT_EQ(escape_controls("\xef\xbf\xbe\xf0\x9f\xbf\xbf"), R"(\xef\xbf\xbe\xf0\x9f\xbf\xbf)");
  EXPECT_EQ(escape_xml("<a b=\"c\">&'\x1b \xc3\xa9\n"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\\x1b \xc3\xa9\\x0a");
}

TEST(ShellWord, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_word("a/b-c_1.safetensors"), "a/b-c_1.safetensors");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b;c"), "'a b;c'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word("#x"), "'#x'");
  EXPECT_EQ(shell_word("a\n'\\1"), R"($'a\x0a\'\\1')");
}

}  // namespace
}  // namespace shadowgraph::escape_test
