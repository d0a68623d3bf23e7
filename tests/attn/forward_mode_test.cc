// Every predicate of every mode, against SGLang's truth table (docs/metadata.md
// "Forward modes").
#include "shadowgraph/engine/forward_mode.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace shadowgraph::forward_mode_test {
namespace {

using enum ForwardMode;
using Predicate = bool (*)(ForwardMode, DraftExtendV2);

// Columns: 1 true, 0 false, * true only where draft extend v2 is included. A draft decode is what
// SGLang says DECODE for.
constexpr ForwardMode kColumns[] = {kExtend,       kDecode,      kMixed,         kIdle,
                                    kTargetVerify, kDraftExtend, kDraftExtendV2, kSplitPrefill,
                                    kDllmExtend,   kPrebuilt,    kDraftDecode};
struct Row {
  const char* name;
  Predicate predicate;
  const char* cells;
};
constexpr Row kTable[] = {
    {"is_extend", [](ForwardMode m, DraftExtendV2 v2) { return is_extend(m, v2); }, "101011*1100"},
    {"is_decode", [](ForwardMode m, DraftExtendV2) { return is_decode(m); }, "01000000001"},
    {"is_decode_or_idle", [](ForwardMode m, DraftExtendV2) { return is_decode_or_idle(m); },
     "01010000001"},
    {"is_target_verify", [](ForwardMode m, DraftExtendV2) { return is_target_verify(m); },
     "00001000000"},
    {"is_draft_extend", [](ForwardMode m, DraftExtendV2 v2) { return is_draft_extend(m, v2); },
     "000001*0000"},
    {"is_draft_extend_v2", [](ForwardMode m, DraftExtendV2) { return is_draft_extend_v2(m); },
     "00000010000"},
    {"is_extend_or_draft_extend_or_mixed",
     [](ForwardMode m, DraftExtendV2 v2) { return is_extend_or_draft_extend_or_mixed(m, v2); },
     "101001*1000"},
    {"is_context_parallel_extend",
     [](ForwardMode m, DraftExtendV2 v2) { return is_context_parallel_extend(m, v2); },
     "101000*0000"},
    {"is_cuda_graph", [](ForwardMode m, DraftExtendV2) { return is_cuda_graph(m); }, "01011000101"},
    {"is_extend_without_speculative",
     [](ForwardMode m, DraftExtendV2) { return is_extend_without_speculative(m); }, "10100001100"},
};

TEST(ForwardMode, EveryCellIsTheTruthTables) {
  ASSERT_EQ(std::size(kColumns), size_t{kNumForwardModes});
  for (const Row& row : kTable) {
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      const char cell = row.cells[i];
      EXPECT_EQ(row.predicate(kColumns[i], DraftExtendV2::kExcluded), cell == '1')
          << row.name << ' ' << name_of(kColumns[i]);
      EXPECT_EQ(row.predicate(kColumns[i], DraftExtendV2::kIncluded), cell != '0')
          << row.name << ' ' << name_of(kColumns[i]);
    }
  }
}

TEST(ForwardMode, DraftExtendV2IsLeftOutUnlessAskedFor) {
  EXPECT_FALSE(is_extend(kDraftExtendV2));
  EXPECT_FALSE(is_draft_extend(kDraftExtendV2));
  EXPECT_FALSE(is_extend_or_draft_extend_or_mixed(kDraftExtendV2));
  EXPECT_FALSE(is_context_parallel_extend(kDraftExtendV2));
}

TEST(ForwardMode, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int m = 0; m < kNumForwardModes; ++m) names.insert(name_of(static_cast<ForwardMode>(m)));
  EXPECT_EQ(names.size(), size_t{kNumForwardModes});
  EXPECT_EQ(name_of(kTargetVerify), "target_verify");
  EXPECT_EQ(name_of(kDraftDecode), "draft_decode");
}

}  // namespace
}  // namespace shadowgraph::forward_mode_test
