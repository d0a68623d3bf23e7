// Each law of a builder's arrays: right arrays break none, a planted slip breaks that law alone.
#include <gtest/gtest.h>

#include <numeric>

#include "shadowgraph/testing.h"
#include "testing/broken_laws.h"
#include "testing/poison.h"

namespace shadowgraph::testing::laws_test {
namespace {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

template <class T>
Values<T> named(const std::vector<T>& v) {
  return {"field", v};
}

/// Two requests in pages of 2 tokens: 3 keys in pages 4 and 2, the last one new; 2 keys in page 3,
/// both new.
Truth two_rows() {
  return {.q_lens = {1, 2},
          .kv_lens = {3, 2},
          .cu_seqlens_q = {0, 1, 3},
          .keys = {{8, 9, 4}, {6, 7}},
          .stored = {4, 6, 7},
          .mask = {1, 1, 1, 1, 0, 1, 1}};
}

constexpr int64_t kPages = 5;

TEST(Laws, LengthsAreEachRowsOwnAndMoreArePaddings) {
  const Truth t = two_rows();
  EXPECT_EQ(ids(check_kv_lens(named(Ints{3, 2}), t)), Ids{});
  EXPECT_EQ(ids(check_kv_lens(named(Ints{3, 2, 99}), t)), Ids{});
  EXPECT_EQ(ids(check_kv_lens(named(Ints{2, 1}), t)), (Ids{"len.kv_extent", "len.kv_extent"}));
  EXPECT_EQ(ids(check_kv_lens(named(Ints{3}), t)), Ids{"len.batch"});
  EXPECT_EQ(ids(check_q_lens(named(Ints{1, 2}), t)), Ids{});
  EXPECT_EQ(ids(check_q_lens(named(Ints{1, 1}), t)), Ids{"len.q_extent"});
  EXPECT_EQ(ids(check_q_lens(named(Ints{}), t)), Ids{"len.batch"});
  EXPECT_EQ(check_kv_lens(named(Ints{3, 4}), t).to_string(),
            "len.kv_extent: field[1] is 4, expected 2");
}

TEST(Laws, PaddingLiesWithinItsBounds) {
  const Ints lens = {0, 1, 5, 6};
  EXPECT_EQ(ids(check_padding(named(lens), 0, 6)), Ids{});
  EXPECT_EQ(ids(check_padding(named(lens), 1, 5)), (Ids{"len.padding", "len.padding"}));
  EXPECT_EQ(check_padding(named(lens).from(2), 1, 5).to_string(),
            "len.padding: field[3] is 6, expected 1 to 5");
}

TEST(Laws, NoLengthExceedsTheLongest) {
  const Ints lens = {3, 5, 4};
  EXPECT_EQ(ids(check_longest("max_seqlen_k", 5, lens)), Ids{});
  EXPECT_EQ(ids(check_longest("max_seqlen_k", 99, lens)), Ids{});
  EXPECT_EQ(ids(check_longest("max_seqlen_k", 0, {})), Ids{});
  EXPECT_EQ(check_longest("max_seqlen_k", 4, lens).to_string(),
            "len.bound: max_seqlen_k is 4, expected >= 5");
}

TEST(Laws, OffsetsBeginWithZeroAndStepByEachRowsCount) {
  const Ints counts = {1, 2};
  const auto of = [&](const Ints& indptr, int64_t capacity = 3) {
    return ids(check_indptr(named(indptr), counts, capacity));
  };
  EXPECT_EQ(of({0, 1, 3}), Ids{});
  EXPECT_EQ(of({0, 1, 3, 3}), Ids{});     // padding without elements
  EXPECT_EQ(of({0, 1, 3, 4}, 4), Ids{});  // padding of one
  EXPECT_EQ(of({1, 2, 4}, 4), Ids{"len.indptr_first"});
  EXPECT_EQ(of({0, 2, 4}, 4), Ids{"len.q_extent"});
  EXPECT_EQ(of({0, 1, 2}), Ids{"len.q_extent"});
  EXPECT_EQ(of({0, 1, 3, 2}), Ids{"len.indptr_monotone"});
  EXPECT_EQ(of({0, -1, 1}), Ids{"len.indptr_monotone"});
  EXPECT_EQ(of({0, 1, 3, 4}, 3), Ids{"len.total"});
  EXPECT_EQ(of({0, 1}), Ids{"len.batch"});
  EXPECT_EQ(of({}), Ids{"len.batch"});
}

TEST(Laws, LiveColumnsOfATableNameTheirTokensPages) {
  const Truth t = two_rows();
  const auto pages = [&](const Ints& table, int64_t columns = 2) {
    return ids(check_page_table(named(table), columns, 2, kPages, t));
  };
  EXPECT_EQ(pages({4, 2, 3, 77}), Ids{});  // behind the last page of a row nobody looks
  EXPECT_EQ(pages({4, 2, 3, 77, -1, -1}), Ids{});
  EXPECT_EQ(pages({4, 1, 3, 77}), Ids{"table.slot"});
  EXPECT_EQ(pages({4, 5, 3, 77}), Ids{"table.page_id"});
  EXPECT_EQ(pages({4, -1, 3, 77}), Ids{"table.page_id"});
  EXPECT_EQ(pages({8, 4, 6, 77}), (Ids{"table.unit", "table.unit", "table.unit"}));
  EXPECT_EQ(pages({4, 3}, 1), Ids{"table.capacity"});
  EXPECT_EQ(pages({4, 2, 3}), Ids{"len.batch"});
  EXPECT_EQ(check_page_table(named(Ints{4, 2, 1, 0}), 2, 2, kPages, t).to_string(),
            "table.slot: field[1, 0] is 1, expected 3");
  EXPECT_EQ(ids(check_page_table(named(Ints{8, 9, 4, 6, 7, 77}), 3, 1, 2 * kPages, t)), Ids{});
}

TEST(Laws, ListsHaveEveryRowsPagesOneBehindTheOther) {
  const Truth t = two_rows();
  const auto slots = [&](const Ints& indptr, const Longs& indices) {
    return ids(check_csr(named(indptr), named(indices), 1, 2 * kPages, t));
  };
  const auto pages = [&](const Ints& indptr, const Ints& indices) {
    return ids(check_csr(named(indptr), named(indices), 2, kPages, t));
  };
  EXPECT_EQ(slots({0, 3, 5}, {8, 9, 4, 6, 7}), Ids{});
  EXPECT_EQ(slots({0, 3, 5}, {8, 9, 4, 6, 7, -1}), Ids{});
  EXPECT_EQ(pages({0, 2, 3}, {4, 2, 3}), Ids{});
  EXPECT_EQ(pages({0, 2, 3, 4}, {4, 2, 3, 0}), Ids{});
  EXPECT_EQ(slots({0, 3, 5}, {8, 9, 4, 7, 6}), (Ids{"table.slot", "table.slot"}));
  EXPECT_EQ(slots({0, 3, 5}, {8, 9, 10, 6, 7}), Ids{"table.page_id"});
  EXPECT_EQ(pages({0, 2, 3}, {8, 2, 3}), Ids{"table.unit"});
  EXPECT_EQ(pages({0, 2, 3}, {4, 2}), Ids{"len.total"});
  EXPECT_EQ(slots({0, 2, 4}, {8, 9, 6, 7}), Ids{"len.q_extent"});
  EXPECT_EQ(slots({0, 3}, {8, 9, 4}), Ids{"len.batch"});
  EXPECT_EQ(slots({-3, 0, 2}, {6, 7}), Ids{"len.indptr_first"});
}

TEST(Laws, TheLastPageHoldsWhatTheOthersDoNot) {
  Truth t = two_rows();
  const auto of = [&](const Ints& lens) { return ids(check_last_page_len(named(lens), 2, t)); };
  EXPECT_EQ(of({1, 2}), Ids{});
  EXPECT_EQ(of({1, 0}), Ids{"len.last_page"});
  EXPECT_EQ(of({3, 2}), Ids{"len.last_page"});
  EXPECT_EQ(of({1}), Ids{"len.batch"});
}

TEST(Laws, PagesOfPaddingExist) {
  EXPECT_EQ(ids(check_page_ids(named(Ints{0, 4}), kPages)), Ids{});
  EXPECT_EQ(ids(check_page_ids(named(Ints{-1, 5}), kPages)),
            (Ids{"table.page_id", "table.page_id"}));
}

TEST(Laws, NewTokensAreStoredInTheirSlotsAndPaddingInSlotZero) {
  const Truth t = two_rows();
  EXPECT_EQ(ids(check_slots(named(Longs{4, 6, 7}), t)), Ids{});
  EXPECT_EQ(ids(check_slots(named(Ints{4, 6, 7, 0}), t)), Ids{});
  EXPECT_EQ(ids(check_slots(named(Longs{4, 7, 6}), t)), (Ids{"slot.write", "slot.write"}));
  EXPECT_EQ(ids(check_slots(named(Ints{4, 6, 7, 9}), t)), Ids{"slot.write"});
  EXPECT_EQ(ids(check_slots(named(Longs{4}), t)), Ids{"len.batch"});
}

TEST(Laws, AMaskHasEveryPair) {
  const Truth t = two_rows();
  const auto of = [&](const std::vector<uint8_t>& mask) { return ids(check_mask(named(mask), t)); };
  EXPECT_EQ(of({1, 1, 1, 1, 0, 1, 1}), Ids{});
  EXPECT_EQ(of({1, 1, 1, 1, 0, 1, 1, 9}), Ids{});
  EXPECT_EQ(of({1, 1, 1, 1, 1, 1, 0}), (Ids{"mask.bit", "mask.bit"}));
  EXPECT_EQ(of({1, 1, 1}), Ids{"mask.size"});
  EXPECT_EQ(of({1, 1, 1, 1, poison<uint8_t>(0), 1, 1}), Ids{"mem.uninit_read"});
}

/// What the n-th law finds in arrays of these values.
Ids found(int law, int32_t value) {
  const Truth t = two_rows();
  const Ints v(6, value), right = {0, 3, 5};
  const Longs l(6, value == poison<int32_t>(0)   ? poison<int64_t>(0)
                   : value == poison<int32_t>(3) ? poison<int64_t>(3)
                                                 : value);
  switch (law) {
    case 0: return ids(check_kv_lens(named(v), t));
    case 1: return ids(check_q_lens(named(v), t));
    case 2: return ids(check_padding(named(v), INT32_MIN, INT32_MAX));
    case 3: return ids(check_indptr(named(v), t.q_lens, 6));
    case 4: return ids(check_page_table(named(v), 3, 1, 10, t));
    case 5: return ids(check_csr(named(right), named(v), 1, 10, t));
    case 6: return ids(check_csr(named(right), named(l), 1, 10, t));
    case 7: return ids(check_last_page_len(named(v), 2, t));
    case 8: return ids(check_page_ids(named(v), 10));
    case 9: return ids(check_slots(named(v), t));
    case 10: return ids(check_slots(named(l), t));
    case 11: return ids(check_written(named(v)));
    default: return ids(check_written(named(l)));
  }
}

TEST(Laws, EachSaysWhatWasNotWrittenAndNothingElseOfIt) {
  for (int law = 0; law <= 12; ++law) {
    const Ids never = found(law, poison<int32_t>(0)), stale = found(law, poison<int32_t>(3));
    EXPECT_FALSE(never.empty()) << law;
    EXPECT_EQ(never, Ids(never.size(), "mem.uninit_read")) << law;
    EXPECT_EQ(stale, Ids(never.size(), "mem.stale_input")) << law;
  }
  EXPECT_EQ(
      check_written(named(Ints{7, poison<int32_t>(2)})).to_string(),
      "mem.stale_input: field[1] is last written 2 steps before, expected written in this step");
  EXPECT_EQ(ids(check_written(named(std::vector<uint8_t>{0, 1, poison<uint8_t>(0)}))),
            Ids{"mem.uninit_read"});
}

}  // namespace
}  // namespace shadowgraph::testing::laws_test
