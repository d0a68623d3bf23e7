// Verdicts on plans: lists of slots, masks, windows, and who was planned.
#include "check/trace_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "check/trace_lines.h"

namespace shadowgraph {
namespace {

RecordedField vector_of(std::vector<int64_t> data, const char* dtype = "int32") {
  const auto size = static_cast<int64_t>(data.size());
  return {dtype, {size}, size, std::move(data)};
}
RecordedField scalar_of(int64_t value) { return {"pyint", {}, 1, {value}}; }

/// Whether the first finding stands on it.
bool has_ref(const TraceLine& line, const std::string& ref) {
  const TraceVerdict v = judge_trace(line);
  return std::ranges::count(v.findings.findings()[0].refs, ref) == 1;
}

/// The decode of trace_lines.h as FlashInfer plans it.
TraceLine planned_decode() {
  TraceLine line = decode_line();
  line.backend = "flashinfer";
  line.calls = {{"decode_wrappers[0]", "decode[0]", "plan"}};
  line.expect.clear();
  line.expect["decode[0].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["decode[0].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4, -7777, -7777});
  line.expect["decode[0].kv_last_page_len"] = vector_of({1, 1});
  line.expect["decode[0].page_size"] = scalar_of(1);
  line.expect["decode[0].num_qo_heads"] = scalar_of(8);
  line.expect["decode[0].num_kv_heads"] = scalar_of(2);
  return line;
}

/// In a bucket of three rows.
TraceLine planned_replay() {
  TraceLine line = planned_decode();
  line.phase = "replay";
  line.calls = {{"decode_cuda_graph_metadata[3][0]", "decode[0]", "fast_decode_plan", 3}};
  line.input["raw_bs"] = scalar_of(2);
  line.input["seq_lens"] = vector_of({5, 9, 1});
  line.input["req_pool_indices"] = vector_of({1, 2, 0});
  line.expect["decode[0].kv_indptr"] = vector_of({0, 5, 14, 15});
  line.expect["decode[0].kv_indices"].data[14] = 0;
  line.expect["decode[0].kv_last_page_len"] = vector_of({1, 1, 1});
  return line;
}

/// An extend by 2 and 1 tokens in two calls, window 3: two wrappers.
TraceLine ragged_extend() {
  TraceLine line = decode_line();
  line.backend = "flashinfer";
  line.mode = "extend";
  line.config.window = 3;
  line.input["extend_seq_lens"] = vector_of({2, 1});
  line.calls = {{"prefill_wrapper_ragged", "ragged[0]", "plan"},
                {"prefill_wrappers_paged[0]", "paged[0]", "plan"},
                {"prefill_wrappers_paged[1]", "paged[1]", "plan"}};
  line.expect.clear();
  line.expect["use_ragged"] = scalar_of(1);
  line.expect["ragged[0].qo_indptr"] = line.expect["ragged[0].kv_indptr"] = vector_of({0, 2, 3});
  for (const std::string wrapper : {"paged[0]", "paged[1]"}) {
    line.expect[wrapper + ".qo_indptr"] = vector_of({0, 2, 3});
    line.expect[wrapper + ".kv_last_page_len"] = vector_of({1, 1});
  }
  line.expect["paged[0].kv_indptr"] = vector_of({0, 3, 6});
  line.expect["paged[0].kv_indices"] = vector_of({8, 9, 10, 41, 42, 43});
  line.expect["paged[0].custom_mask"] = vector_of({1, 1, 1, 0, 1, 1, 1, 1, 1}, "bool");
  line.expect["paged[1].kv_indptr"] = vector_of({0, 3, 11});
  line.expect["paged[1].kv_indices"] = vector_of({8, 9, 10, 12, 13, 14, 15, 40, 41, 42, 43});
  line.null_fields = {"paged[1].custom_mask"};
  return line;
}

/// The same in one call.
TraceLine paged_extend() {
  TraceLine line = ragged_extend();
  line.calls.erase(line.calls.begin());
  line.expect.erase("ragged[0].qo_indptr");
  line.expect.erase("ragged[0].kv_indptr");
  line.expect.erase("paged[0].custom_mask");
  line.null_fields.emplace_back("paged[0].custom_mask");
  line.expect["use_ragged"] = scalar_of(0);
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 9});
  line.expect["paged[0].kv_indices"] = vector_of({8, 9, 10, 11, 20, 41, 42, 43, 4});
  line.expect["paged[0].window_left"] = scalar_of(3);
  line.expect["paged[1].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["paged[1].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4});
  return line;
}

/// Two drafts behind 3 and 7 keys; the second request's do not see each other.
TraceLine planned_verify() {
  TraceLine line = decode_line();
  line.backend = "flashinfer";
  line.mode = "target_verify";
  line.config.topk = 2, line.config.num_draft_tokens = 2;
  line.input["seq_lens"] = vector_of({3, 7});
  const std::vector<int64_t> mask = {1, 1, 1, 1, 0, 1, 1, 1, 1, 1,  //
                                     1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1};
  line.input["custom_mask"] = vector_of(mask, "bool");
  line.calls = {{"prefill_wrappers_verify[0]", "paged[0]", "plan"}};
  line.expect.clear();
  line.expect["paged[0].qo_indptr"] = vector_of({0, 2, 4});
  line.expect["paged[0].kv_last_page_len"] = vector_of({1, 1});
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["paged[0].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4});
  line.expect["paged[0].custom_mask"] = vector_of(mask, "bool");
  return line;
}

/// The replay as Triton has it, on 64 heads.
TraceLine triton_replay() {
  TraceLine line = planned_replay();
  line.backend = "triton";
  line.config.num_heads = line.config.num_kv_heads = 64;
  line.calls.clear();
  const RecordedFields fields = std::move(line.expect);
  line.expect = {{"kv_indptr", fields.at("decode[0].kv_indptr")},
                 {"kv_indices", fields.at("decode[0].kv_indices")}};
  line.expect["kv_indices"].dtype = "int64";
  line.expect["num_kv_splits"] = vector_of({3, 5, 1, 8});
  line.expect["attn_logits_shape"] = vector_of({4, 64, 8, 16}, "pylist");
  return line;
}

TEST(TracePlans, WhatAgreesHasNoFindingAndNothingIsLeftOut) {
  for (const TraceLine& line : {planned_decode(), planned_replay(), ragged_extend(), paged_extend(),
                                planned_verify(), triton_replay()}) {
    const TraceVerdict v = judge_trace(line);
    EXPECT_EQ(found(line), "ok") << line.mode;
    EXPECT_EQ(v.left_out, Laws{}) << line.mode;
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
  EXPECT_EQ(laws(line), Laws{"table.capacity decode[0].kv_indices 1"});
  slots.shape[0] = 20;  // it is there, and not stored
  const TraceVerdict v = judge_trace(line);
  EXPECT_TRUE(v.findings.ok());
  EXPECT_EQ(v.left_out, Laws{"decode[0].kv_indices: live elements are not stored"});
}

TEST(TracePlans, AListWithoutOffsetsIsReadWhereTheTwinHasIt) {
  TraceLine line = planned_decode();
  line.calls.clear();
  line.expect.erase("decode[0].kv_indptr");
  EXPECT_EQ(found(line), "ok");
  line.expect["decode[0].kv_indices"].data[6] = 99;
  EXPECT_EQ(laws(line), Laws{"table.slot decode[0].kv_indices 1 1"});
}

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
  EXPECT_NE(got(77).find("a slot of no request"), std::string::npos);
}

TEST(TracePlans, PagesOfAListAreSingleSlots) {
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

TEST(TracePlans, ListsWithoutPlansAreThereTogether) {
  EXPECT_EQ(needed_fields(triton_replay()), (Laws{"kv_indices", "kv_indptr", "num_kv_splits"}));
  TraceLine line = triton_replay();
  line.config.window = 3;
  EXPECT_EQ(laws(line), (Laws{"plan.missing window_kv_indptr", "plan.missing window_kv_indices",
                              "plan.missing window_num_kv_splits"}));
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

TEST(TracePlans, ACapturePlansInFull) {
  TraceLine line = planned_decode();
  line.phase = "capture";
  line.calls[0].bucket = 2;
  EXPECT_EQ(found(line), "ok");
  line.calls[0].kind = "fast_decode_plan";
  EXPECT_EQ(laws(line), Laws{"plan.first decode[0].call"});
}

TEST(TracePlans, WhatAPlanSaysAndNobodyReadsIsTold) {
  TraceLine line = planned_decode();
  line.calls.insert(line.calls.begin(), {{"decode_wrappers[0]", "", "plan"}, {"x", "", "plan"}});
  line.calls.back().kind = "fast_decode_pla";
  line.expect["decode[0].colour"] = scalar_of(1);
  EXPECT_EQ(judge_trace(line).left_out,
            (Laws{"decode[0].colour: not known; did you mean decode[0].kv_indptr?",
                  "decode_wrappers[0]: planned again", "x: not known",
                  "decode[0].call: not known: fast_decode_pla; did you mean fast_decode_plan?"}));
}

TEST(TracePlans, SplitsOfARowDependOnPaddingToo) {
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

TEST(TracePlans, QueriesOfAGraphsWidthStandBehindAPrefixAndNotBehindOwnKeys) {
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

TEST(TracePlans, PartialResultsHaveRoomForEveryRow) {
  TraceLine line = triton_replay();
  line.expect["attn_logits_shape"].data = {2, 64, 8, 16};
  EXPECT_EQ(laws(line), Laws{"trace.shape attn_logits_shape 0"});
  for (const size_t axis : {1, 2}) {
    line = triton_replay();
    line.expect["attn_logits_shape"].data[axis] /= 2;
    EXPECT_EQ(laws(line), Laws{"trace.shape attn_logits_shape " + std::to_string(axis)});
  }
}

TEST(TracePlans, AMaskMakesATreeOfAnyVerify) {
  TraceLine line = planned_verify();
  line.config.topk = 1;
  EXPECT_EQ(found(line), "ok") << "the drafts of request 1 are no chain";
}

TEST(TracePlans, SlotsThatAreAll0SayNothing) {
  TraceLine line = planned_replay();
  line.input["out_cache_loc"] = vector_of({0, 0, 0}, "int64");
  EXPECT_EQ(found(line), "ok");
  line.input["out_cache_loc"].data[0] = 9;
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
}

TEST(TracePlans, OffsetsHaveAnEndForEveryRow) {
  TraceLine line = planned_decode();
  line.backend = "triton";
  line.calls.clear();
  line.mode = "extend";
  line.input["extend_seq_lens"] = vector_of({5, 9});
  line.expect = {{"kv_indptr", vector_of({0, 0})}};
  EXPECT_EQ(laws(line), (Laws{"trace.shape kv_indptr"}));
}

TEST(TracePlans, HostAndDeviceHaveTheSameOffsetsInPaddingToo) {
  TraceLine line = planned_replay();
  line.expect["decode[0].global_override_indptr_cpu"] = vector_of({0, 5, 14, 15});
  EXPECT_EQ(laws(line), Laws{});
  line.expect["decode[0].global_override_indptr_cpu"].data[3] = INT32_MAX;
  EXPECT_EQ(laws(line), (Laws{"len.q_extent decode[0].global_override_indptr_cpu 3"}));
}

TEST(TracePlans, AGraphIsPlannedWithTheArgumentsOfAnyStep) {
  TraceLine line = planned_replay();
  line.expect["decode[0].page_size"] = scalar_of(16);
  EXPECT_EQ(laws(line), (Laws{"plan.argument decode[0].page_size"}));
}

TEST(TracePlans, PaddingThatAKernelFollowsHasAnUpperBound) {
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

TEST(TracePlans, HeadsAreThoseOfTheModel) {
  TraceLine line = planned_decode();
  line.config.num_heads = 8;
  line.expect["decode[0].num_qo_heads"] = scalar_of(10);
  EXPECT_EQ(laws(line), (Laws{"plan.argument decode[0].num_qo_heads"}));
}

TEST(TracePlans, PartialResultsAreJudgedAxisByAxis) {
  TraceLine line = triton_replay();
  line.expect["attn_logits_shape"].data = {4, 32, 16, 16};
  EXPECT_EQ(laws(line),
            (Laws{"trace.shape attn_logits_shape 1", "trace.shape attn_logits_shape 2"}));
}

}  // namespace
}  // namespace shadowgraph
