// Verdicts on plans: lists of slots, masks, windows, and who was planned.
#include "check/traces/trace_plans.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "check/plan_lines.h"

namespace shadowgraph::trace_plans_test {
namespace {

TEST(TracePlans, WhatAgreesHasNoFindingAndNothingIsLeftOut) {
  for (const TraceLine& line : {planned_decode(), planned_replay(), ragged_extend(), paged_extend(),
                                planned_verify(), triton_replay()}) {
    const TraceVerdict v = judge_trace(line);
    EXPECT_EQ(found(line), "ok") << line.mode;
    EXPECT_EQ(left_out(line), Laws{}) << line.mode;
  }
}

TEST(TracePlans, EverySlotOfAListCounts) {
  for (size_t j = 0; j < 14; ++j) {
    TraceLine line = planned_decode();
    line.expect["decode[0].kv_indices"].data[j] += 100;
    const int row = j < 5 ? 0 : 1;
    EXPECT_EQ(laws(line), Laws{"table.slot decode[0].kv_indices " + std::to_string(row) + ' ' +
                               std::to_string(j - (row == 0 ? 0 : 5))});
  }
}

TEST(TracePlans, AListIsReadWhereItsOffsetsSay) {
  TraceLine line = planned_decode();
  line.expect["decode[0].kv_indptr"].data = {0, 4, 13};
  RecordedField& slots = line.expect["decode[0].kv_indices"];
  slots.data.erase(slots.data.begin() + 4);
  slots.shape[0] = --slots.cols;
  EXPECT_EQ(laws(line), Laws{"len.q_extent decode[0].kv_indptr 1"}) << "one finding";
  slots.data[4] = 99;  // the second request's first
  EXPECT_EQ(laws(line).size(), 2U);
}

TEST(TracePlans, AShorterRowMayBeTheTwinsEndAsWell) {
  TraceLine line = planned_decode();
  line.expect["decode[0].kv_indptr"].data = {0, 4, 13};
  RecordedField& slots = line.expect["decode[0].kv_indices"];
  slots.data.erase(slots.data.begin());
  slots.shape[0] = --slots.cols;
  EXPECT_EQ(laws(line), Laws{"len.q_extent decode[0].kv_indptr 1"});
}

TEST(TracePlans, AListHoldsWhatItsOffsetsCount) {
  TraceLine line = planned_decode();
  RecordedField& slots = line.expect["decode[0].kv_indices"];
  slots.data.resize(13);
  slots.shape[0] = slots.cols = 13;
  EXPECT_EQ(laws(line), Laws{"table.capacity decode[0].kv_indices"});
  slots.shape[0] = 20;  // it is there, and not stored
  const TraceVerdict v = judge_trace(line);
  EXPECT_TRUE(v.findings.ok());
  EXPECT_EQ(left_out(line), Laws{"decode[0].kv_indices: live elements are not stored"});
}

TEST(TracePlans, AListWithoutOffsetsIsReadWhereTheTwinHasIt) {
  TraceLine line = planned_decode();
  line.calls.clear();
  for (const char* gone : {"kv_indptr", "num_qo_heads", "num_kv_heads"})
    line.expect.erase("decode[0]." + std::string(gone));
  EXPECT_EQ(found(line), "ok");
  line.expect["decode[0].kv_indices"].data[6] = 99;
  EXPECT_EQ(laws(line), Laws{"table.slot decode[0].kv_indices 1 1"});
}

/// fi.I-5.
TEST(TracePlans, PaddingsSlotsLieInThePool) {
  TraceLine line = planned_replay();
  line.expect["decode[0].kv_indices"].data[14] = 77;
  EXPECT_EQ(found(line), "ok") << "any of the pool's";
  line.expect["decode[0].kv_indices"].data[14] = -7777;
  EXPECT_EQ(laws(line), Laws{"table.page_id decode[0].kv_indices 2 0"});
}

TEST(TracePlans, AWrongSlotIsCalledByItsName) {
  const auto got = [](int64_t slot) {
    TraceLine line = planned_decode();
    line.expect["decode[0].kv_indices"].data[7] = slot;  // token 2 of request 1: 14
    return found(line);
  };
  EXPECT_NE(got(-7777).find("never written"), std::string::npos);
  EXPECT_NE(got(3).find("an id of a page where a slot belongs"), std::string::npos);
  EXPECT_NE(got(40).find("its request's token 4 where token 2 belongs, 2 too late"),
            std::string::npos);
  EXPECT_NE(got(12).find("2 too early"), std::string::npos);
  EXPECT_NE(got(20).find("there lies token 4 of request 0"), std::string::npos);
  EXPECT_NE(got(77).find("of no request"), std::string::npos);
}

TEST(TracePlans, APlanInPagesHasNoListOfSlots) {
  TraceLine line = planned_decode();
  line.expect["decode[0].page_size"] = scalar_of(4);
  EXPECT_EQ(laws(line), Laws{"plan.argument decode[0].page_size"});
}

TEST(TracePlans, APrefixCallThatHasTheNewTokensReadsThemBeforeTheyAreStored) {
  TraceLine line = ragged_extend();
  line.expect["paged[1].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["paged[1].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4});
  EXPECT_EQ(laws(line), Laws{"len.q_extent paged[1].kv_indptr 1"});
  EXPECT_NE(found(line).find("the new tokens, too"), std::string::npos);
  EXPECT_TRUE(has_ref(line, "fi.I-20"));
}

/// Findings of the window's wrapper in the recorded prefills of a state of the engine.
Laws window_findings(const std::string& role) {
  Laws all;
  for (const TraceLine& line : all_lines()) {
    if (line.role != role || !line.expect.contains("paged[0].kv_indices")) continue;
    for (const std::string& law : laws(line)) {
      if (law.find("paged[0]") != std::string::npos) all.push_back(line.id + ' ' + law);
    }
  }
  return all;
}

TEST(TracePlans, ThePrefixOfAWindowIsWrongBeforeItsMendAndRightAfterIt) {
  EXPECT_FALSE(window_findings("pre26513").empty());
  if (std::getenv("SHADOWGRAPH_VECTORS") != nullptr) return;
  EXPECT_EQ(window_findings("fix26513"), Laws{}) << "of the curated lines, which are ragged";
}

TEST(TracePlans, EveryPairOfAMaskCounts) {
  for (size_t p = 0; p < 28; ++p) {
    TraceLine line = planned_verify();
    line.expect["paged[0].custom_mask"].data[p] ^= 1;
    EXPECT_EQ(laws(line),
              Laws{"mask.bit paged[0].custom_mask " +
                   (p < 10 ? "0 " + std::to_string(p) : "1 " + std::to_string(p - 10))});
  }
  TraceLine line = planned_verify();
  line.expect["paged[0].custom_mask"].data[4] = 1;
  EXPECT_NE(found(line).find("query 0 does not see key 4 of its list"), std::string::npos);
}

TEST(TracePlans, AMaskThatIsNotThereShowsEverything) {
  TraceLine line = ragged_extend();
  line.expect.erase("paged[0].custom_mask");
  EXPECT_EQ(laws(line), Laws{"mask.bit paged[0].custom_mask 0 3"}) << "the plan says none";
  line.null_fields.emplace_back("paged[0].custom_mask");
  EXPECT_EQ(laws(line), Laws{"mask.bit paged[0].custom_mask 0 3"});
  line = planned_verify();
  line.expect.erase("paged[0].custom_mask");
  line.calls.clear();
  EXPECT_EQ(found(line), "ok") << "nobody planned: it may only not be recorded";
}

TEST(TracePlans, AMaskHasThePairsOfItsLists) {
  TraceLine line = planned_verify();
  RecordedField& mask = line.expect["paged[0].custom_mask"];
  mask.data.pop_back();
  mask.shape[0] = --mask.cols;
  EXPECT_EQ(laws(line), Laws{"mask.size paged[0].custom_mask"});
  mask.data.insert(mask.data.end(), {1, 1});
  mask.shape[0] = mask.cols = 29;
  EXPECT_EQ(laws(line), Laws{"mask.size paged[0].custom_mask"});
}

TEST(TracePlans, AMasksPairsAreBytes) {
  TraceLine line = planned_verify();
  line.expect["paged[0].custom_mask"].dtype = "uint8";
  EXPECT_EQ(found(line), "ok");
  line.expect["paged[0].custom_mask"].dtype = "int32";
  EXPECT_EQ(laws(line), Laws{"trace.dtype paged[0].custom_mask"});
}

TEST(TracePlans, AWindowIsPlannedWhereTheListDoesNotSayIt) {
  TraceLine line = paged_extend();
  line.expect.erase("paged[0].window_left");
  EXPECT_EQ(laws(line), Laws{"mask.window paged[0].window_left"}) << "a plan that says none has -1";
  line.expect["paged[0].window_left"] = scalar_of(2);
  EXPECT_EQ(laws(line), Laws{"mask.window paged[0].window_left"});
  line = ragged_extend();  // the mask says it
  for (const int64_t window : {-1, 3, 8}) {
    line.expect["paged[0].window_left"] = scalar_of(window);
    EXPECT_EQ(found(line), "ok") << window;
  }
  line.expect["paged[0].window_left"] = scalar_of(2);
  EXPECT_EQ(laws(line), Laws{"mask.window paged[0].window_left"}) << "it hides keys";
}

TEST(TracePlans, EveryListIsPlannedInItsStep) {
  TraceLine line = ragged_extend();
  line.calls.pop_back();
  std::erase_if(line.expect, [](const auto& f) { return f.first.starts_with("paged[1]"); });
  line.null_fields.clear();
  EXPECT_EQ(laws(line), Laws{"plan.missing paged[1]"});
  line = ragged_extend();
  line.calls.erase(line.calls.begin());
  line.expect.erase("ragged[0].qo_indptr");
  line.expect.erase("ragged[0].kv_indptr");
  EXPECT_EQ(laws(line), Laws{"plan.missing ragged[0]"});
}

TEST(TracePlans, AStepWithoutPlansHasNoLists) {
  for (TraceLine line : {planned_decode(), planned_verify(), planned_replay(), paged_extend()}) {
    const bool two = line.calls.size() == 2;
    const std::string plan = line.calls[0].name;
    line.calls.clear();
    std::erase_if(line.expect, [](const auto& f) { return f.first.find('.') != f.first.npos; });
    line.null_fields.clear();
    line.no_calls = true;
    Laws all = {"plan.missing " + plan};
    if (two) all.emplace_back("plan.missing paged[1]");
    EXPECT_EQ(laws(line), all);
    line.no_calls = false;
    EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped) << "a choice alone shows nothing";
  }
}

/// Fields without which a line has the one finding that they are missing.
Laws needed_fields(const TraceLine& whole) {
  Laws needed;
  for (const auto& [name, field] : whole.expect) {
    TraceLine line = whole;
    line.expect.erase(name);
    if (found(line) == "ok") continue;
    EXPECT_EQ(laws(line), Laws{"plan.missing " + name});
    needed.push_back(name);
  }
  return needed;
}

TEST(TracePlans, APlanHandsOverAllThatItsKernelReads) {
  const Laws decode = {"decode[0].kv_indices", "decode[0].kv_indptr", "decode[0].kv_last_page_len"};
  EXPECT_EQ(needed_fields(planned_decode()), decode);
  EXPECT_EQ(needed_fields(planned_replay()), decode);
  TraceLine line = planned_decode();
  line.phase = "capture";
  line.calls[0].bucket = 2;
  EXPECT_EQ(needed_fields(line), decode);
  line = planned_verify();
  line.expect.erase("paged[0].custom_mask"), line.config.topk = 1;
  line.input.erase("custom_mask");
  EXPECT_EQ(needed_fields(line), (Laws{"paged[0].kv_indices", "paged[0].kv_indptr",
                                       "paged[0].kv_last_page_len", "paged[0].qo_indptr"}));
}

TEST(TracePlans, OfListsWithoutPlansNobodyMustRecordAny) {
  EXPECT_EQ(needed_fields(triton_replay()), Laws{});
  TraceLine line = triton_replay();
  line.config.window = 3;
  EXPECT_EQ(laws(line), Laws{});
  line.null_fields = {"window_kv_indptr", "window_kv_indices", "window_num_kv_splits"};
  EXPECT_EQ(laws(line), (Laws{"plan.missing window_kv_indptr", "plan.missing window_kv_indices",
                              "plan.missing window_num_kv_splits"}))
      << "the builder made none";
  EXPECT_EQ(left_out(line), Laws{});
}

TEST(TracePlans, AStepPlansTheWrapperThatItRuns) {
  for (const int64_t bucket : {0, 2, 4}) {
    TraceLine line = planned_replay();
    line.calls[0].bucket = bucket;
    EXPECT_EQ(laws(line), Laws{"plan.missing decode[0].wrapper"}) << bucket;
  }
  TraceLine line = planned_decode();
  line.calls[0].bucket = 2;
  EXPECT_EQ(laws(line), Laws{"plan.missing decode[0].wrapper"});
  line.phase = "capture";
  EXPECT_EQ(found(line), "ok");
  line.calls[0].bucket = 1;
  EXPECT_EQ(laws(line), Laws{"plan.missing decode[0].wrapper"});
}

TEST(TracePlans, ACapturedVerifyReadsItsMask) {
  TraceLine line = planned_verify();
  line.phase = "capture";
  line.calls[0].bucket = 2;
  line.input.erase("custom_mask");
  EXPECT_EQ(found(line), "ok");
  line.expect.erase("paged[0].custom_mask");
  EXPECT_EQ(laws(line), Laws{"mask.size paged[0].custom_mask"});
}

}  // namespace
}  // namespace shadowgraph::trace_plans_test
