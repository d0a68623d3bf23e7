// Plans and lists of graphs: what their padding holds, what a capture has, what is sized for every
// row.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/plan_lines.h"
#include "check/traces/trace_plans.h"

namespace shadowgraph::trace_graph_plans_test {
namespace {

TEST(TraceGraphPlans, ACapturePlansInFull) {
  TraceLine line = planned_decode();
  line.phase = "capture";
  line.calls[0].bucket = 2;
  EXPECT_EQ(found(line), "ok");
  line.calls[0].kind = "fast_decode_plan";
  EXPECT_EQ(laws(line), Laws{"plan.first decode[0].call"});
}

TEST(TraceGraphPlans, WhatAPlanSaysAndNobodyReadsIsTold) {
  TraceLine line = planned_decode();
  line.calls.insert(line.calls.begin(), {{"decode_wrappers[0]", "", "plan"}, {"x", "", "plan"}});
  line.calls.back().kind = "fast_decode_pla";
  line.expect["decode[0].colour"] = scalar_of(1);
  EXPECT_EQ(left_out(line),
            (Laws{"decode[0].colour: not known; did you mean decode[0].kv_indptr?",
                  "decode_wrappers[0]: planned again", "x: not known",
                  "decode[0].call: not known: fast_decode_pla; did you mean fast_decode_plan?"}));
}

TEST(TraceGraphPlans, SplitsOfARowDependOnPaddingToo) {
  TraceLine line = triton_replay();
  line.expect["num_kv_splits"].data = {1, 2, 1, 8};  // as if there were two rows
  EXPECT_EQ(laws(line), Laws{"len.kv_extent num_kv_splits 0"});
  line = triton_replay();
  line.expect["num_kv_splits"].data[2] = 0;
  EXPECT_EQ(laws(line), Laws{"len.padding num_kv_splits 2"});
}

/// A graph of two queries a row, of which the first request has one.
TraceLine short_draft_extend(const char* backend) {
  TraceLine line = decode_line();
  line.backend = backend;
  line.mode = "draft_extend_v2";
  line.phase = "replay";
  line.config.num_draft_tokens = 2;
  line.input["extend_seq_lens"] = vector_of({1, 2});
  line.expect.clear();
  return line;
}

TEST(TraceGraphPlans, QueriesOfAGraphsWidthStandBehindAPrefixAndNotBehindOwnKeys) {
  TraceLine line = short_draft_extend("triton");
  line.expect["kv_indptr"] = vector_of({0, 4, 11});
  line.expect["kv_indices"] = vector_of({8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42}, "int64");
  for (const int64_t first : {1, 2}) {
    line.expect["qo_indptr"] = vector_of({0, first, first + 2});
    EXPECT_EQ(found(line), "ok") << first;
  }
  line.expect["qo_indptr"] = vector_of({0, 2, 3});
  EXPECT_EQ(laws(line), Laws{"len.q_extent qo_indptr 1"});
  line = short_draft_extend("flashinfer");
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["paged[0].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4});
  line.expect["paged[0].qo_indptr"] = vector_of({0, 1, 3});
  EXPECT_EQ(found(line), "ok");
  line.expect["paged[0].qo_indptr"] = vector_of({0, 2, 4});
  EXPECT_EQ(laws(line), Laws{"len.q_extent paged[0].qo_indptr 1"});
  EXPECT_TRUE(has_ref(line, "fi.I-35"));
}

TEST(TraceGraphPlans, PartialResultsHaveRoomForEveryRow) {
  TraceLine line = triton_replay();
  line.expect["attn_logits_shape"].data = {2, 64, 8, 16};
  EXPECT_EQ(laws(line), Laws{"trace.shape attn_logits_shape 0"});
  for (const size_t axis : {1, 2}) {
    line = triton_replay();
    line.expect["attn_logits_shape"].data[axis] /= 2;
    EXPECT_EQ(laws(line), Laws{"trace.shape attn_logits_shape " + std::to_string(axis)});
  }
}

TEST(TraceGraphPlans, AMaskMakesATreeOfAnyVerify) {
  TraceLine line = planned_verify();
  line.config.topk = 1;
  EXPECT_EQ(found(line), "ok") << "the drafts of request 1 are no chain";
}

TEST(TraceGraphPlans, SlotsThatAreAll0SayNothing) {
  TraceLine line = planned_replay();
  line.input["out_cache_loc"] = vector_of({0, 0, 0}, "int64");
  EXPECT_EQ(found(line), "ok");
  line.input["out_cache_loc"].data[0] = 9;
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 0"});
}

TEST(TraceGraphPlans, OffsetsHaveAnEndForEveryRow) {
  TraceLine line = planned_decode();
  line.backend = "triton";
  line.calls.clear();
  line.mode = "extend";
  line.input["extend_seq_lens"] = vector_of({5, 9});
  line.expect = {{"kv_indptr", vector_of({0, 0})}};
  EXPECT_EQ(laws(line), Laws{"trace.shape kv_indptr"});
}

TEST(TraceGraphPlans, HostAndDeviceHaveTheSameOffsetsInPaddingToo) {
  TraceLine line = planned_replay();
  line.expect["decode[0].global_override_indptr_cpu"] = vector_of({0, 5, 14, 15});
  EXPECT_EQ(laws(line), Laws{});
  line.expect["decode[0].global_override_indptr_cpu"].data[3] = INT32_MAX;
  EXPECT_EQ(laws(line), (Laws{"len.q_extent decode[0].global_override_indptr_cpu 3"}));
}

TEST(TraceGraphPlans, AGraphIsPlannedWithTheArgumentsOfAnyStep) {
  TraceLine line = planned_replay();
  line.expect["decode[0].page_size"] = scalar_of(16);
  EXPECT_EQ(laws(line), (Laws{"plan.argument decode[0].page_size"}));
}

TEST(TraceGraphPlans, PaddingThatAKernelFollowsHasAnUpperBound) {
  for (const int64_t wrong : {0, 2}) {
    TraceLine line = planned_replay();
    line.expect["decode[0].kv_last_page_len"].data[2] = wrong;
    EXPECT_EQ(laws(line), (Laws{"len.padding decode[0].kv_last_page_len 2"}));
  }
  for (const int64_t wrong : {0, 9}) {
    TraceLine line = triton_replay();
    line.expect["num_kv_splits"].data[3] = wrong;
    EXPECT_EQ(laws(line), (Laws{"len.padding num_kv_splits 3"}));
  }
}

TEST(TraceGraphPlans, HeadsAreThoseOfTheModel) {
  TraceLine line = planned_decode();
  line.config.num_heads = 8;
  line.expect["decode[0].num_qo_heads"] = scalar_of(10);
  EXPECT_EQ(laws(line), (Laws{"plan.argument decode[0].num_qo_heads"}));
}

TEST(TraceGraphPlans, PartialResultsAreJudgedAxisByAxis) {
  TraceLine line = triton_replay();
  line.expect["attn_logits_shape"].data = {4, 32, 16, 16};
  EXPECT_EQ(laws(line),
            (Laws{"trace.shape attn_logits_shape 1", "trace.shape attn_logits_shape 2"}));
}

}  // namespace
}  // namespace shadowgraph::trace_graph_plans_test
