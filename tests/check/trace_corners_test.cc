// Steps at the edge of what a trace may say: nothing to judge, nothing to plan, nothing that a
// batch could be.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/plan_lines.h"

namespace shadowgraph::trace_corners_test {
namespace {

TEST(TraceCorners, ChunksOfNoRequest) {
  TraceLine line = decode_line();
  line.mode = "idle";
  line.config.chunk = 4;
  line.input["seq_lens"] = line.input["req_pool_indices"] = vector_of({});
  line.expect.clear();
  line.expect["local.query_start_loc"] = vector_of({0});
  EXPECT_EQ(found(line), "ok");
  line.expect["local.query_start_loc"] = vector_of({1});
  EXPECT_EQ(laws(line), Laws{"len.indptr_first local.query_start_loc 0"});
  line.expect["local.query_start_loc"] = vector_of({});
  EXPECT_EQ(laws(line), Laws{"trace.shape local.query_start_loc"});
}

TEST(TraceCorners, ListsThatNoPlanHandsOver) {
  TraceLine line = triton_replay();
  line.no_calls = true;
  EXPECT_EQ(found(line), "ok") << "there is no plan that could be missing";
}

TEST(TraceCorners, AnUnknownPlanIsNoneMadeAgain) {
  TraceLine line = planned_decode();
  line.calls.push_back({"verify_wrappers[0]", "", "plan"});
  line.calls.push_back({"verify_wrappers[0]", "", "plan"});
  EXPECT_EQ(left_out(line),
            (Laws{"verify_wrappers[0]: not known", "verify_wrappers[0]: not known"}));
}

TEST(TraceCorners, NoColumnLeadsToAKeyThatThePoolDoesNotHave) {
  TraceLine line = decode_line();
  line.config.window = 3;
  std::vector<int64_t> slots(160);
  for (size_t s = 0; s < 60; ++s) slots[s] = static_cast<int64_t>(s) + 100;
  for (size_t s = 12; s < 16; ++s) slots[s] = -1;
  line.input["full_to_swa"] = vector_of(slots, "int64");
  for (const int64_t page : {0, -1, 28}) {
    line.expect["swa_page_table"] = {"int32", {2, 3}, 3, {27, 30, 0, page, 35, 26}};
    const std::string law = page < 0 ? "table.page_id" : "table.slot";
    EXPECT_EQ(laws(line), Laws{law + " swa_page_table 1 0"}) << page;
  }
}

TEST(TraceCorners, AWindowsPoolBehindAnEncoder) {
  TraceLine line = decode_line();
  line.mode = "cross_decode";
  line.config.page_size = 1, line.config.window = 3;
  line.input["seq_lens"] = vector_of({3, 5});
  line.input["encoder_lens"] = vector_of({1, 2});
  std::vector<int64_t> slots(160);
  for (size_t s = 0; s < 60; ++s) slots[s] = static_cast<int64_t>(s) + 100;
  line.input["full_to_swa"] = vector_of(slots, "int64");
  line.expect.clear();
  line.expect["swa_page_table"] = {
      "int32", {2, 5}, 5, {109, 110, 111, 0, 0, 114, 115, 140, 141, 142}};
  EXPECT_EQ(found(line), "ok");
  line.expect["swa_page_table"].data[6] = 15;
  EXPECT_EQ(found(line),
            "table.slot: x: swa_page_table[1, 1] is 15: a slot of the full pool, not translated, "
            "expected slot 115 of token 1");
}

TEST(TraceCorners, CountsThatNoSlipGives) {
  const std::string nameless = "decode[0].kv_indptr[2] is 12 after 5, expected 14 (9 more)";
  TraceLine line = planned_decode();
  line.expect["decode[0].kv_indptr"].data = {0, 5, 12};
  EXPECT_EQ(found(line), "len.q_extent: x: " + nameless);
  line.mode = "draft_decode";
  line.config.num_steps = 2;
  line.input["seq_lens"] = vector_of({4, 8});
  EXPECT_EQ(found(line), "len.q_extent: x: " + nameless);
}

/// A replay of two branches each, in a bucket of three rows: the slots behind two requests' are
/// padding's.
TEST(TraceCorners, PaddingBehindTheBranchesOfADraft) {
  TraceLine line = planned_replay();
  line.backend = "triton", line.mode = "draft_decode";
  line.calls.clear();
  line.config.page_size = 1, line.config.topk = 2, line.config.num_steps = 1;
  line.config.window = 3;
  line.input["seq_lens"] = vector_of({4, 8, 1});
  std::vector<int64_t> slots(160);
  for (size_t s = 0; s < 60; ++s) slots[s] = static_cast<int64_t>(s) + 100;
  line.input["full_to_swa"] = vector_of(slots, "int64");
  line.input["out_cache_loc"] = vector_of({20, 21, 4, 5, 0, 0}, "int64");
  line.expect.clear();
  line.expect["swa_out_cache_loc"] = vector_of({120, 121, 104, 105, 0, 0}, "int64");
  EXPECT_EQ(found(line), "ok");
  line.expect["swa_out_cache_loc"].data[3] = 0;
  EXPECT_EQ(found(line), "slot.write: x: swa_out_cache_loc[3] is 0, expected 105");
  line.expect["swa_out_cache_loc"].data = {120, 121, 104, 105, 105, 0};
  EXPECT_EQ(found(line), "slot.write: x: swa_out_cache_loc[4] is 105, expected 0 for padding");
}

/// A window's list of which the first query sees more than the prefix has tokens.
TEST(TraceCorners, ACountBetweenThePrefixAndTheWindow) {
  TraceLine line = paged_extend();
  line.config.window = 1;
  line.input["extend_seq_lens"] = vector_of({4, 6});
  for (const char* wrapper : {"paged[0]", "paged[1]"})
    line.expect[std::string(wrapper) + ".qo_indptr"] = vector_of({0, 4, 10});
  line.expect["paged[0].window_left"] = scalar_of(1);
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 12});
  line.expect["paged[0].kv_indices"] = vector_of({8, 9, 10, 11, 20, 14, 15, 40, 41, 42, 43, 4});
  EXPECT_EQ(found(line), "ok");
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 9});
  line.expect["paged[0].kv_indices"] = vector_of({8, 9, 10, 11, 20, 41, 42, 43, 4});
  EXPECT_EQ(found(line),
            "len.q_extent: x: paged[0].kv_indptr[2] is 9 after 5, expected 12 (7 more)");
}

}  // namespace
}  // namespace shadowgraph::trace_corners_test
