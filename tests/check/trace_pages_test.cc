// Lists of plans with pages of several tokens: each wrong state beside the right one.
#include "check/traces/trace_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check/plan_lines.h"

namespace shadowgraph::trace_pages_test {
namespace {

/// The list of a plan in pages.
void list_pages(TraceLine* line, const std::string& plan, int64_t page, std::vector<int64_t> indptr,
                std::vector<int64_t> ids, std::vector<int64_t> last) {
  line->expect[plan + ".page_size"] = scalar_of(page);
  line->expect[plan + ".kv_indptr"] = vector_of(std::move(indptr));
  line->expect[plan + ".kv_indices"] = vector_of(std::move(ids));
  line->expect[plan + ".kv_last_page_len"] = vector_of(std::move(last));
}

/// 5 and 9 keys.
TraceLine paged_decode(int64_t page = 4) {
  TraceLine line = planned_decode();
  if (page == 4)
    list_pages(&line, "decode[0]", 4, {0, 2, 5}, {2, 5, 3, 10, 1}, {1, 1});
  else
    list_pages(&line, "decode[0]", 2, {0, 3, 8}, {4, 5, 10, 6, 7, 20, 21, 2}, {1, 1});
  return line;
}

TraceLine paged_replay() {
  TraceLine line = planned_replay();
  list_pages(&line, "decode[0]", 4, {0, 2, 5, 6}, {2, 5, 3, 10, 1, 0}, {1, 1, 1});
  return line;
}

/// Pages of the whole context; the window's list begins within a page, so it is in slots.
TraceLine half_paged_extend() {
  TraceLine line = paged_extend();
  list_pages(&line, "paged[1]", 4, {0, 2, 5}, {2, 5, 3, 10, 1}, {1, 1});
  line.expect["paged[1].kv_indptr_host"] = line.expect["paged[1].kv_indptr"];
  line.expect["paged[1].kv_lens_host"] = vector_of({5, 9});
  return line;
}

/// The verify of plan_lines.h.
TraceLine paged_verify() {
  TraceLine line = planned_verify();
  list_pages(&line, "paged[0]", 4, {0, 2, 5}, {2, 5, 3, 10, 1}, {1, 1});
  return line;
}

TEST(TracePages, WhatAgreesHasNoFinding) {
  for (const TraceLine& line :
       {paged_decode(), paged_decode(2), paged_replay(), half_paged_extend(), paged_verify()}) {
    EXPECT_EQ(found(line), "ok") << line.mode;
    EXPECT_EQ(left_out(line), Laws{}) << line.mode;
  }
}

TEST(TracePages, EveryPageOfAListCounts) {
  for (const int64_t page : {2, 4}) {
    const TraceLine right = paged_decode(page);
    const int64_t first = right.expect.at("decode[0].kv_indptr").data[1];
    for (int64_t j = 0; j < right.expect.at("decode[0].kv_indptr").data[2]; ++j) {
      TraceLine line = right;
      line.expect["decode[0].kv_indices"].data[static_cast<size_t>(j)] += 100;
      const int64_t row = j < first ? 0 : 1;
      EXPECT_EQ(laws(line), Laws{"table.slot decode[0].kv_indices " + std::to_string(row) + ' ' +
                                 std::to_string(j - row * first)});
    }
  }
}

TEST(TracePages, AWrongPageIsCalledByItsName) {
  TraceLine line = paged_decode();
  std::vector<int64_t>& ids = line.expect["decode[0].kv_indices"].data;
  ids[3] = 5;
  EXPECT_EQ(found(line),
            "table.slot: x: decode[0].kv_indices[1, 1] is 5: what row 0 should have there, "
            "expected page 10, slot 40");
  ids[3] = 3;
  EXPECT_NE(found(line).find("its request's token 0 where token 4 belongs, 4 too early"),
            std::string::npos);
  ids[3] = 40;
  EXPECT_NE(found(line).find("a slot where an id of a page belongs"), std::string::npos);
  EXPECT_EQ(laws(line), Laws{"table.unit decode[0].kv_indices 1 1"});
}

TEST(TracePages, ASurplusPageIsOneFindingAndTellsWhatIsRead) {
  TraceLine line = paged_decode();
  list_pages(&line, "decode[0]", 4, {0, 3, 6}, {2, 5, 9, 3, 10, 1}, {1, 1});
  EXPECT_EQ(found(line),
            "len.q_extent: x: decode[0].kv_indptr[1] is 3 after 0: 3 pages of 4, the last with 1: "
            "9 keys are "
            "read, expected 2 (2 more: pages of 5 keys)");
}

TEST(TracePages, APrefixWithoutTheNewTokenIsOneFinding) {
  TraceLine line = paged_decode();
  list_pages(&line, "decode[0]", 4, {0, 1, 4}, {2, 3, 10, 1}, {4, 1});
  EXPECT_EQ(laws(line), Laws{"len.q_extent decode[0].kv_indptr 1"});
  EXPECT_NE(
      found(line).find("1 page of 4, the last with 4: 4 keys are read: only the cached prefix"),
      std::string::npos);
}

TEST(TracePages, TheLastPageHasTheTokensThatAreLeft) {
  const auto of_last = [](int64_t first, int64_t second) {
    TraceLine line = paged_decode();
    line.expect["decode[0].kv_last_page_len"] = vector_of({first, second});
    return line;
  };
  EXPECT_EQ(laws(of_last(1, 2)), Laws{"len.kv_extent decode[0].kv_last_page_len 1"});
  EXPECT_NE(found(of_last(1, 2)).find("3 pages of 4, the last with 2: 10 keys are read"),
            std::string::npos);
  EXPECT_EQ(laws(of_last(4, 1)), Laws{"len.kv_extent decode[0].kv_last_page_len 0"});
  for (const int64_t none : {-1, 0, 5})
    EXPECT_EQ(laws(of_last(none, 1)), Laws{"len.last_page decode[0].kv_last_page_len 0"}) << none;
}

TEST(TracePages, ARowOfPaddingHasALastPageIfItHasAPage) {
  TraceLine line = paged_replay();
  std::vector<int64_t>& last = line.expect["decode[0].kv_last_page_len"].data;
  for (const int64_t n : {2, 4}) {
    last[2] = n;
    EXPECT_EQ(found(line), "ok") << n;
  }
  for (const int64_t n : {0, 5}) {
    last[2] = n;
    EXPECT_EQ(laws(line), Laws{"len.last_page decode[0].kv_last_page_len 2"}) << n;
  }
  last[2] = 0;
  line.expect["decode[0].kv_indptr"].data[3] = 5;  // no page
  EXPECT_EQ(found(line), "ok");
  last[2] = 4;
  EXPECT_EQ(found(line), "ok") << "nothing reads it";
}

TEST(TracePages, PaddingsPagesLieInThePool) {
  TraceLine line = paged_replay();
  std::vector<int64_t> same(102);  // slots 0 to 100, and none
  for (size_t slot = 0; slot < same.size(); ++slot) same[slot] = static_cast<int64_t>(slot);
  line.input["full_to_swa"] = vector_of(same);
  line.expect["decode[0].kv_indices"].data[5] = 25;
  EXPECT_EQ(found(line), "ok");
  line.expect["decode[0].kv_indices"].data[5] = 26;
  EXPECT_EQ(laws(line), Laws{"table.page_id decode[0].kv_indices 2 0"});
}

TEST(TracePages, HostsCopiesCountPagesAndLengthsCountKeys) {
  TraceLine line = half_paged_extend();
  line.expect["paged[1].kv_lens_host"] = vector_of({2, 3});
  EXPECT_EQ(laws(line), Laws{"plan.argument paged[1].kv_lens_host 0"});
  line = half_paged_extend();
  line.expect["paged[1].kv_indptr_host"] = vector_of({0, 5, 14});
  EXPECT_EQ(laws(line), Laws{"len.q_extent paged[1].kv_indptr_host 1"});
}

TEST(TracePages, AMaskHasThePairsOfKeysAndNotOfPages) {
  for (size_t p = 0; p < 28; ++p) {
    TraceLine line = paged_verify();
    line.expect["paged[0].custom_mask"].data[p] ^= 1;
    EXPECT_EQ(laws(line),
              Laws{"mask.bit paged[0].custom_mask " +
                   (p < 10 ? "0 " + std::to_string(p) : "1 " + std::to_string(p - 10))});
  }
}

TEST(TracePages, AWindowsListIsInPagesIfItBeginsWithOne) {
  TraceLine line = paged_extend();
  // Some query sees token 0 of the first request, and none a token before 4 of the second.
  list_pages(&line, "paged[0]", 4, {0, 2, 4}, {2, 5, 10, 1}, {1, 1});
  line.config.window = 4;
  line.expect["paged[0].window_left"] = scalar_of(4);
  EXPECT_EQ(found(line), "ok");
  line.expect["paged[0].kv_indices"].data[2] = 3;
  EXPECT_EQ(laws(line), Laws{"table.slot paged[0].kv_indices 1 0"});
}

TEST(TracePages, PagesAreWholePartsOfThePools) {
  TraceLine line = planned_decode();
  line.input["seq_lens"] = vector_of({1, 1});  // a key is a page of any size
  line.input["req_to_token"].data[24] = 16;
  for (const int64_t page : {3, 8, 0, -4}) {
    list_pages(&line, "decode[0]", page, {0, 1, 2}, {8, 16}, {1, 1});
    EXPECT_EQ(laws(line), Laws{"plan.argument decode[0].page_size"}) << page;
  }
  list_pages(&line, "decode[0]", 4, {0, 1, 2}, {8, 16}, {1, 1});
  EXPECT_EQ(laws(line), Laws{"table.unit decode[0].kv_indices 0 0"});
  list_pages(&line, "decode[0]", 4, {0, 1, 2}, {2, 4}, {1, 1});
  EXPECT_EQ(found(line), "ok");
}

TEST(TracePages, ARowThatBeginsWithinAPageIsNotInPages) {
  TraceLine line = planned_decode();
  line.config.window = 2;
  line.input["seq_lens"] = vector_of({4, 8});
  line.calls.push_back({"decode_wrappers[1]", "decode[1]", "plan"});
  list_pages(&line, "decode[0]", 1, {0, 3, 6}, {9, 10, 11, 41, 42, 43}, {1, 1});
  list_pages(&line, "decode[1]", 4, {0, 1, 3}, {2, 3, 10}, {4, 4});
  EXPECT_EQ(found(line), "ok");
  list_pages(&line, "decode[0]", 4, {0, 1, 2}, {2, 10}, {3, 3});  // reads from token 0 on
  const Laws all = laws(line);
  EXPECT_EQ(std::ranges::count(all, "plan.argument decode[0].page_size"), 1);
}

}  // namespace
}  // namespace shadowgraph::trace_pages_test
