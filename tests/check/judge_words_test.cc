// What the judge of a step in memory says of causes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/step_arrays.h"
#include "shadowgraph/judge.h"

namespace shadowgraph::testing::judge_words_test {
namespace {

TEST(JudgeWords, WhoseSlotItIsAndWhatALastPageLacksIsTold) {
  for (const bool of_batch : {false, true}) {
    StepArrays step;
    if (of_batch) step.batch_slots.assign(step.slots.begin(), step.slots.begin() + 6);
    step.slots[1] = 8, step.last_page_len[1] = 0;
    const std::string slot =
        "slot.write: slots[1] is 8, the slot of token 0 of request 0, expected 20, the slot of "
        "token 4 of request 0";
    const std::string last =
        "len.last_page: last_page_len[1] is 0, expected 4, for 8 keys; any is 1 to 4";
    const Status found = step.judged();
    ASSERT_EQ(found.findings().size(), 2U);
    EXPECT_EQ(found.findings()[of_batch ? 1 : 0].to_string(), slot);
    EXPECT_EQ(found.findings()[of_batch ? 0 : 1].to_string(), last);
  }
}

TEST(JudgeWords, APageSizeThatNobodySaidIsNamed) {
  StepArrays step;
  step.options.page_size = 1, step.options.pool_pages = 0;
  const auto judged = [&](const std::vector<RoleValue>& values) {
    return judge(step.batch(), values, step.options);
  };
  const auto table = [&] {
    return std::vector{StepArrays::table("page_table", step.page_table, 2, 0)};
  };
  EXPECT_NE(judged(table()).to_string().find("the table is right with page_size 4"),
            std::string::npos);
  const Status lists = judged({StepArrays::vector("kv_indptr", step.kv_indptr),
                               StepArrays::vector("kv_indices", step.kv_indices)});
  EXPECT_EQ(laws_at(lists), (Laws{"table.unit kv_indices[0, 0]", "len.q_extent kv_indptr[1]"}));
  for (const Finding& f : lists.findings())
    EXPECT_NE(f.got.find("count pages of 4 tokens"), std::string::npos) << f.got;
  step.page_table[1] = 6;
  EXPECT_EQ(laws_at(judged(table())),
            (Laws{"table.capacity page_table[0]", "table.slot page_table[0, 0]"}));
}

TEST(JudgeWords, ALastPageOfOneTokenMoreMayHaveAnyCause) {
  StepArrays step;
  step.mode = ForwardMode::kDecode;
  const Ints indptr = {0, 2, 4}, last = {2, 4};
  const Status found = judge(step.batch(),
                             std::vector{StepArrays::vector("kv_indptr", indptr),
                                         StepArrays::vector("last_page_len", last)},
                             step.options);
  EXPECT_EQ(found.to_string(),
            "len.kv_extent: last_page_len[0] is 2: 2 pages of 4, the last with 2: 6 keys are read, "
            "expected 1, for 5 keys");
}

TEST(JudgeWords, AStepWhoseArraysNobodyKnowsIsNamedByItsCause) {
  const Ints pool_rows = {0}, seq_lens = {2}, map = {4, 5, 6, 7, 8};
  ForwardBatch b;
  b.mode = ForwardMode::kDraftDecode, b.seq_lens_kind = SeqLensKind::kPrefix;
  b.req_pool_indices = pool_rows, b.seq_lens = seq_lens, b.req_to_token = {map, 5};
  b.spec = {.topk = 2, .num_steps = 2, .num_draft_tokens = 3, .step = 0, .custom_mask = {}};
  const Ints lens = {3};
  EXPECT_EQ(judge(b, std::vector{StepArrays::vector("kv_lens", lens)}).to_string(),
            "skip.refused_by_twin: arrays of such a step are not judged: topk is 2, expected 1");
  b.mode = ForwardMode::kPrebuilt, b.seq_lens_kind = SeqLensKind::kFull;
  b.extend_lens = pool_rows;
  b.spec = {};
  EXPECT_EQ(
      judge(b, std::vector{StepArrays::vector("kv_lens", lens)}).to_string(),
      "skip.refused_by_twin: arrays of such a step are not judged: mode is prebuilt, expected "
      "one of extend, decode, mixed, idle, target_verify, draft_extend, draft_extend_v2, "
      "split_prefill, dllm_extend, draft_decode");
}

}  // namespace
}  // namespace shadowgraph::testing::judge_words_test
