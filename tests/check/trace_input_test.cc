// A line's own input is judged, too: slots, stores, positions, rows of the bucket. Each
// wrong state stands beside a right one that differs in the wrong number only.
#include "check/traces/trace_input.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "check/trace_lines.h"

namespace shadowgraph::trace_input_test {
namespace {

RecordedField numbers(std::vector<int64_t> data) {
  const auto size = static_cast<int64_t>(data.size());
  return {"int64", {size}, size, std::move(data)};
}

/// A line of reports/, and the finding that it must have first; none: it is clean.
struct Report {
  const char* id;
  const char* law = nullptr;
};
constexpr Report kReports[] = {
    {"ascend-all-rows"},
    {"fa-all-rows"},
    {"lists-all-rows"},
    {"ascend-host-list-short", "trace.shape seq_lens_cpu_list"},
    {"ascend-table-short", "trace.shape block_tables"},
    {"ascend-all-short", "trace.shape block_tables"},
    {"fa-lengths-short", "trace.shape cache_seqlens_int32"},
    {"fa-offsets-short", "trace.shape cu_seqlens_q"},
    {"fa-table-short", "trace.shape page_table"},
    {"lists-offsets-short", "trace.shape decode[0].global_override_indptr_cpu"},
    {"drafts-without-page", "pool.slot req_to_token 1 64"},
    {"drafts-with-page"},
    {"lists-encoder-slot-again", "pool.page req_to_token 1 11"},
    {"table-encoder-slot-again", "pool.page req_to_token 1 11"},
    {"lists-encoder-slots-apart"},
    {"table-encoder-slots-apart"},
    {"own-slot-twice", "step.slots req_to_token 1 3"},
    {"two-requests-store-in-one", "slot.duplicate req_to_token 2 2"},
    {"two-requests-share-a-prefix"},
    {"stored-in-slot-0", "pool.slot req_to_token 1 3"},
    {"stored-beside", "slot.write out_cache_loc 0"},
    {"stored-where-read"},
    {"pages-not-whole", "pool.page req_to_token 1 11"},
    {"verify-behind-prefix"},
    {"decode-last"},
    {"draft-replay"},
    {"verify-gap", "step.positions positions 0"},
    {"verify-stale", "step.positions positions 0"},
    {"decode-next", "step.positions positions 0"},
    {"draft-replay-gap", "step.positions positions 0"},
    {"draft-replay-padding-beyond-context", "step.positions positions 1"},
    {"pages-exact"},
    {"pages-replay-exact"},
    {"slots"},
    {"pages-surplus", "len.q_extent decode[0].kv_indptr 1"},
    {"pages-replay-surplus", "len.q_extent decode[0].global_override_indptr_cpu 1"},
    {"pages-last-zero", "len.last_page decode[0].kv_last_page_len 0"},
    {"pages-last-short", "len.kv_extent decode[0].kv_last_page_len 0"},
    {"pages-of-another", "table.slot decode[0].kv_indices 1 1"},
    {"pages-are-slots", "table.unit decode[0].kv_indices 0 0"},
};

TEST(TraceReports, EachLineIsAnsweredAsWhoeverReportedItNeeds) {
  std::vector<TraceLine> lines;
  for (const char* file : {"bucket_rows", "slot_map", "positions", "pages_in_lists"})
    ASSERT_TRUE(
        read_traces(std::string(SHADOWGRAPH_TEST_DATA) + "/reports/" + file + ".jsonl", &lines)
            .ok());
  ASSERT_EQ(lines.size(), std::size(kReports));
  for (const Report& report : kReports) {
    const auto line = std::ranges::find(lines, report.id, &TraceLine::id);
    ASSERT_NE(line, lines.end()) << report.id;
    const TraceVerdict v = judge_trace(*line);
    EXPECT_TRUE(v.left_out.empty()) << report.id;
    if (report.law == nullptr)
      EXPECT_EQ(v.kind, Kind::kAgreed) << report.id << ": " << v.findings.to_string();
    else
      EXPECT_EQ(laws(*line).at(0), report.law) << v.findings.to_string();
  }
}

TEST(TraceInput, CopiesOfLengthsAreTheLengths) {
  TraceLine line = replay_line();  // lengths 5 and 9, and 1 of padding
  line.input["seq_lens_cpu"] = numbers({5, 9, 1});
  EXPECT_EQ(found(line), "ok");
  line.input["seq_lens_cpu"] = numbers({5, 9});
  EXPECT_EQ(found(line), "len.copy: x: seq_lens_cpu is 2, expected 3 rows");
  line.input["seq_lens_cpu"] = numbers({5, 9, 2});
  EXPECT_EQ(found(line), "len.copy: x: seq_lens_cpu[2] is 2, expected 1 as in seq_lens");
  for (const auto& lens : {std::vector<int64_t>{}, std::vector<int64_t>{5, 9, 1, 1}}) {
    line.input["seq_lens_cpu"] = numbers(lens);
    EXPECT_EQ(laws(line), Laws{"len.copy seq_lens_cpu"});
  }
  line.input["seq_lens_cpu"] = {"pyint", {}, 1, {5}};
  EXPECT_EQ(refusals(line), Laws{"input.seq_lens_cpu: one number"});
}

TEST(TraceInput, TheSumOfLengthsCountsPadding) {
  TraceLine line = replay_line();
  line.input["seq_lens_sum"] = {"pyint", {}, 1, {15}};
  EXPECT_EQ(found(line), "ok");
  line.input["seq_lens_sum"].data[0] = 14;
  EXPECT_EQ(found(line),
            "len.copy: x: seq_lens_sum is 14: without the rows of padding, expected 15, the sum of "
            "seq_lens");
  line.input["seq_lens_sum"].data[0] = 16;
  EXPECT_EQ(found(line), "len.copy: x: seq_lens_sum is 16, expected 15, the sum of seq_lens");
}

TEST(TraceInput, AnIntegerIsNoListOfOne) {
  TraceLine line = replay_line();
  line.input["seq_lens_sum"] = numbers({15});
  EXPECT_EQ(refusals(line), Laws{"input.seq_lens_sum: a list of 1"});
  line.input["raw_bs"] = numbers({2});
  line.input["seq_lens_sum"] = {"pyint", {}, 1, {15}};
  EXPECT_EQ(refusals(line), Laws{"input.raw_bs: a list of 1"});
}

TEST(TraceInput, NoRequestIsLongerThanTheContext) {
  TraceLine line = replay_line();
  line.config.max_context_len = 9;
  EXPECT_EQ(found(line), "ok");
  line.config.max_context_len = 8;
  EXPECT_EQ(found(line),
            "len.bound: x: config.max_context_len is 8, expected >= 9 tokens of request 1");
  line = decode_line();
  line.mode = "target_verify";  // a round of drafts aside
  line.config.num_draft_tokens = 2;
  line.config.max_context_len = 7;
  EXPECT_NE(laws(line).at(0), "len.bound config.max_context_len");
  line.config.max_context_len = 6;
  EXPECT_EQ(laws(line).at(0), "len.bound config.max_context_len");
}

TEST(TraceInput, TheMapToTheWindowsPoolHasEverySlotThatIsUsed) {
  TraceLine line = decode_line();
  std::vector<int64_t> map(45, 0);
  for (const size_t slot : {size_t{8}, size_t{9}, size_t{10}, size_t{11}, size_t{20}, size_t{4}})
    map[slot] = static_cast<int64_t>(slot);
  line.input["full_to_swa"] = numbers(map);
  EXPECT_EQ(laws(line), Laws{});
  map.resize(43);
  line.input["full_to_swa"] = numbers(map);
  EXPECT_EQ(found(line),
            "pool.window: x: full_to_swa is 43 entries, expected an entry for slot 43, for token 7 "
            "of request 1");
}

TEST(TraceInput, StoredTokensAreThoseBeforeTheNewOnes) {
  TraceLine line = decode_line();
  line.mode = "extend";
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = numbers({5, 9});
  line.expect["cache_seqlens_int32"].dtype = "int32";
  line.input["extend_seq_lens"] = numbers({2, 1});
  line.input["extend_prefix_lens"] = numbers({3, 8});
  EXPECT_EQ(found(line), "ok");
  line.input["extend_prefix_lens"].data[0] = 5;
  EXPECT_EQ(found(line),
            "len.copy: x: extend_prefix_lens[0] is 5, expected 3 stored before the step, as the "
            "lengths say");
}

TEST(TraceInput, BothTokensOfASlotAreNamed) {
  TraceLine line = decode_line();
  line.config.page_size = 1;
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = numbers({5, 9});
  line.expect["cache_seqlens_int32"].dtype = "int32";
  EXPECT_EQ(found(line), "ok");
  line.input["req_to_token"].data[14] = 9;  // two stored tokens of request 0
  EXPECT_EQ(found(line),
            "pool.shared: x: req_to_token[1, 2] is 9: the slot of token 1 of request 0, expected a "
            "slot of its own, for token 2 of request 0");
  line.input["req_to_token"].data[14] = 12;  // another request's, which shares no prefix
  EXPECT_EQ(laws(line), Laws{"pool.shared req_to_token 2 0"});
  line.input["req_to_token"].data[14] = 10;
  line.input["req_to_token"].data[32] = 40;  // a new token over a stored one
  EXPECT_EQ(laws(line), Laws{"step.slots req_to_token 2 8"});
}

TEST(TraceInput, APrefixIsSharedFromItsFirstTokenOn) {
  TraceLine line = decode_line();
  line.config.page_size = 1;
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = numbers({5, 9});
  line.expect["cache_seqlens_int32"].dtype = "int32";
  auto& table = line.input["req_to_token"].data;
  for (size_t c = 0; c < 3; ++c) table[24 + c] = table[12 + c];
  EXPECT_EQ(found(line), "ok");
  table[24] = 50;  // tokens 1 and 2 are shared, token 0 is not
  EXPECT_EQ(laws(line), Laws{"pool.shared req_to_token 2 1"});
  EXPECT_NE(found(line).find("(and 1 more)"), std::string::npos);
}

TEST(TraceInput, AReplayThatDoesNotSayItsRealRowsIsToldSo) {
  const std::string said = "raw_bs is not said, so every row is taken for a request";
  TraceLine line = replay_line();
  line.input["req_pool_indices"].data = {1, 2, 2};
  EXPECT_EQ(found(line), "ok");
  line.input.erase("raw_bs");
  EXPECT_NE(found(line).find("2: request 1's row; " + said), std::string::npos) << found(line);
  line = decode_line();
  line.input["req_pool_indices"].data = {2, 2};
  EXPECT_EQ(found(line).find(said), std::string::npos) << "an eager step has no other rows";
}

TEST(TraceInput, PaddingIsStoredWhereItsEngineStoresIt) {
  TraceLine line = replay_line();
  for (const int64_t slot : {0, 1}) {
    line.input["out_cache_loc"] = numbers({20, 4, slot});
    EXPECT_EQ(found(line), "ok") << slot;
  }
  line.input["out_cache_loc"] = numbers({20, 4, 42});
  EXPECT_EQ(found(line),
            "slot.write: x: out_cache_loc[2] is 42: the slot of token 6 of request 1, expected 0 "
            "for padding");
  line.input["out_cache_loc"] = numbers({20, 4, 99});
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 2"}) << "of a request that is not here";
  line.phase = "capture";
  line.input["out_cache_loc"] = numbers({0, 0, 99});
  EXPECT_EQ(laws(line).at(0), "slot.write out_cache_loc 2") << "a dummy batch is all padding";
}

TEST(TraceInput, PaddingOfAnyEngineIsStoredOverNoLiveKey) {
  TraceLine line = replay_line();
  line.config.engine = "any";
  for (const int64_t slot : {0, -1, 99}) {
    line.input["out_cache_loc"] = numbers({20, 4, slot});
    EXPECT_EQ(found(line), "ok") << slot;
  }
  line.input["out_cache_loc"] = numbers({20, 4, 42});
  EXPECT_EQ(found(line),
            "slot.write: x: out_cache_loc[2] is 42: the slot of token 6 of request 1, expected a "
            "slot of no live key, for padding");
  line.input["out_cache_loc"] = numbers({20, 4, -2});
  EXPECT_EQ(laws(line), Laws{"slot.range out_cache_loc 2"});
}

TEST(TraceInput, PositionsOfATreeAreDepthsWhereTheKernelHasTheMask) {
  TraceLine line = decode_line();
  line.backend = "triton";
  line.mode = "target_verify";
  line.config.num_draft_tokens = 3, line.config.num_steps = 2, line.config.topk = 2;
  line.input["seq_lens"] = numbers({2});
  line.input["req_pool_indices"] = numbers({1});
  line.expect.clear();
  // Token 0 is the root, 1 and 2 its children.
  line.input["custom_mask"] = numbers({1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1});
  const auto is_flagged = [&] { return found(line).starts_with("step.positions"); };
  line.input["positions"] = numbers({2, 3, 3});
  EXPECT_FALSE(is_flagged()) << found(line);
  line.input["positions"] = numbers({2, 3, 4});  // as in a chain
  EXPECT_EQ(laws(line)[0], "step.positions positions 2");
  line.backend = "flashattention";
  line.expect["cu_seqlens_q"] = numbers({0, 3});
  line.expect["cu_seqlens_q"].dtype = "int32";
  EXPECT_EQ(found(line), "ok");
  line.input["positions"] = numbers({2, 3, 5});  // behind the step's last token
  EXPECT_EQ(laws(line), Laws{"step.positions positions 2"});
  line.input.erase("custom_mask");  // nothing says which tree
  EXPECT_FALSE(is_flagged()) << found(line);
}

}  // namespace
}  // namespace shadowgraph::trace_input_test
