// A line tells its batch: contradictions are findings, or the line is refused; they are
// never passed over.
#include "check/traces/trace_batch.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "check/trace_lines.h"

namespace shadowgraph::trace_batch_test {
namespace {

RecordedField vector_of(std::vector<int64_t> data) {
  const auto size = static_cast<int64_t>(data.size());
  return {"int64", {size}, size, std::move(data)};
}

/// The two requests of decode_line() as drafts of the tokens that they decode there.
TraceLine draft_line(const char* mode) {
  TraceLine line = decode_line();
  line.mode = mode;
  line.config.num_steps = line.config.num_draft_tokens = 1;
  line.input["seq_lens"].data = {4, 8};
  return line;
}

TEST(TraceBatch, AnInputHasTheAxesThatItsKeySays) {
  TraceLine line = decode_line();
  line.input["seq_lens"].shape = {1, 2};
  line.input["req_pool_indices"] = {"pyint", {}, 1, {1}};
  line.input["req_to_token"].shape = {1, 3, 12};
  EXPECT_EQ(refusals(line), (Laws{"input.seq_lens: [1, 2]", "input.req_pool_indices: one number",
                                  "input.req_to_token: [1, 3, 12]"}));
  line = decode_line();
  line.input["req_to_token"] = vector_of({2, 3});
  EXPECT_EQ(refusals(line), Laws{"input.req_to_token: [2]"});
}

TEST(TraceBatch, ATableWithoutRowsIsRefused) {
  TraceLine line = decode_line();
  line.input["req_to_token"].shape[0] = 0;
  line.input["req_to_token"].data.clear();
  EXPECT_EQ(refusals(line), (Laws{"input.req_to_token: none"}));
}

TEST(TraceBatch, OfAnInputThatIsNoArrayNothingIsBuilt) {
  for (const char* key : {"req_pool_indices", "seq_lens", "req_to_token", "out_cache_loc"}) {
    TraceLine line = decode_line();
    RecordedField& field = line.input[key];
    field = {};
    field.unreadable = "\"x\"";
    EXPECT_EQ(refusals(line), (Laws{"input." + std::string(key) + ": \"x\""}));
  }
}

TEST(TraceBatch, TwoRequestsHaveTwoRowsOfThePool) {
  TraceLine line = decode_line();
  line.input["req_pool_indices"].data = {2, 2};
  EXPECT_EQ(laws(line)[0], "step.request req_pool_indices 1");
}

TEST(TraceBatch, NewTokensOfADecodeAndOfAnExtendStandInPagesAndDraftsAnywhere) {
  for (const char* mode : {"decode", "extend", "mixed"}) {
    TraceLine line = decode_line();
    line.mode = mode;
    line.input["extend_seq_lens"] = vector_of({1, 1});
    EXPECT_EQ(found(line), "ok") << mode;
    line.input["req_to_token"].data[16] = 21;  // token 4 of the first request begins a page
    EXPECT_EQ(laws(line), Laws{"pool.page req_to_token 1 4"}) << mode;
  }
  for (const char* mode : {"draft_decode", "target_verify"}) {
    TraceLine line = draft_line(mode);
    line.input["req_to_token"].data[16] = 21;
    EXPECT_EQ(found(line).find("pool.page"), std::string::npos) << mode << ": " << found(line);
  }
}

TEST(TraceBatch, ADraftExtendSaysItsLengthsOrItsWidth) {
  for (const char* mode : {"draft_extend", "draft_extend_v2"}) {
    for (TraceLine line : {decode_line(), replay_line()}) {
      line.mode = mode;
      EXPECT_EQ(refusals(line), Laws{"input.num_accept_tokens: missing"}) << mode;
      line.config.num_draft_tokens = 1;
      EXPECT_EQ(found(line), "ok") << mode << ' ' << line.phase;
    }
    TraceLine line = replay_line();
    line.mode = mode;
    line.input["num_tokens"] = {"pyint", {}, 1, {3}};
    EXPECT_EQ(found(line), "ok") << mode;
  }
}

TEST(TraceBatch, ThereIsASlotForEachTokenOfTheStepOrOfItsBucket) {
  const std::pair<std::vector<int64_t>, const char*> kSlots[] = {
      {{20, 4}, "eager replay"}, {{20, 4, 0}, "replay"}, {{20}, ""}, {{20, 4, 0, 0}, ""}, {{}, ""}};
  for (const auto& [slots, fits] : kSlots) {
    for (TraceLine line : {decode_line(), replay_line()}) {
      line.input["out_cache_loc"] = vector_of(slots);
      const bool fit = std::string(fits).find(line.phase) != std::string::npos;
      EXPECT_EQ(judge_trace(line).kind, fit ? Kind::kAgreed : Kind::kFlagged)
          << slots.size() << ' ' << line.phase;
      EXPECT_EQ(found(line).find("out_cache_loc") == std::string::npos, fit) << found(line);
    }
  }
}

TEST(TraceBatch, ATokenIsStoredWhereItIsReadLater) {
  TraceLine line = decode_line();
  line.input["out_cache_loc"] = vector_of({20, 5});
  EXPECT_EQ(found(line),
            "slot.write: x: out_cache_loc[1] is 5, a slot of no request, expected 4, the slot of "
            "token 8 of request 1");
  line = decode_line();
  line.mode = "extend";
  line.input["extend_seq_lens"] = vector_of({2, 1});
  line.expect["cu_seqlens_q"].data = {0, 2, 3};
  line.input["out_cache_loc"] = vector_of({11, 20, 4});
  EXPECT_EQ(found(line), "ok");
  line.input["out_cache_loc"] = vector_of({20, 11, 4});
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 0"});
}

TEST(TraceBatch, NoSlotIsWrittenTwiceButTheSink) {
  for (const char* mode : {"draft_decode", "target_verify", "draft_extend"}) {
    TraceLine line = draft_line(mode);
    line.input["num_accept_tokens"] = vector_of({1, 1});
    for (const int64_t slot : {50, 51, 0}) {
      line.input["out_cache_loc"] = vector_of({slot, slot == 0 ? 0 : 51});
      EXPECT_EQ(found(line).starts_with("slot.duplicate"), slot == 51) << mode << found(line);
    }
  }
  TraceLine line = decode_line();  // two requests that share a page which both write
  line.input["req_to_token"].data[32] = 20;
  line.input["out_cache_loc"] = vector_of({20, 20});
  EXPECT_EQ(laws(line)[0], "slot.duplicate req_to_token 2 8");
}

TEST(TraceBatch, ThereIsAPositionForEachToken) {
  TraceLine line = decode_line();
  line.input["positions"] = vector_of({4, 8});
  EXPECT_EQ(found(line), "ok");
  line.input["positions"] = vector_of({4});
  EXPECT_EQ(laws(line), Laws{"len.total positions"});
  line.input["positions"] = vector_of({});
  EXPECT_EQ(refusals(line), Laws{"input.positions: [0]"});
  for (const char* key : {"positions", "out_cache_loc"}) {
    line = decode_line();
    line.input[key] = {"int64", {2, 1}, 1, {4, 8}};
    EXPECT_EQ(refusals(line), Laws{"input." + std::string(key) + ": [2, 1]"});
  }
  line = replay_line();
  line.input["positions"] = vector_of({4, 8, 0});
  EXPECT_EQ(found(line), "ok");
  line.input["positions"] = vector_of({4, 8, 0, 0});
  EXPECT_EQ(laws(line), Laws{"len.total positions"});
}

TEST(TraceBatch, APartOfAnInputIsNotTheInput) {
  TraceLine line = decode_line();
  line.input["seq_lens"].cols = 1, line.input["seq_lens"].data = {5};
  EXPECT_EQ(refusals(line), Laws{"input.seq_lens: a part of it"});
}

TEST(TraceBatch, NumbersFitIntoTheirArrays) {
  for (const int64_t wide : {int64_t{1} << 31, -(int64_t{1} << 40)}) {
    TraceLine line = decode_line();
    line.input["seq_lens"].data[1] = wide;
    EXPECT_EQ(refusals(line), Laws{"input.seq_lens: " + std::to_string(wide)});
  }
  TraceLine line = draft_line("target_verify");
  line.backend = "flashinfer";
  line.expect.clear();
  line.input["custom_mask"] = vector_of({1, 1, 1, 1, 300});
  EXPECT_EQ(refusals(line), Laws{"input.custom_mask: 300"});
}

TEST(TraceBatch, ANumberIsOneAndInItsRange) {
  for (const int64_t rows : {-1, 4}) {
    TraceLine line = replay_line();
    line.input["raw_bs"].data = {rows};
    EXPECT_EQ(refusals(line), Laws{"input.raw_bs: " + std::to_string(rows)});
  }
  for (const auto& rows : {std::vector<int64_t>{}, {2}, {1, 2}}) {
    TraceLine line = replay_line();
    line.input["raw_bs"] = vector_of(rows);
    EXPECT_EQ(refusals(line), Laws{"input.raw_bs: a list of " + std::to_string(rows.size())});
  }
  TraceLine line = replay_line();
  line.input["raw_bs"].unreadable = "of dtype float32";
  EXPECT_EQ(refusals(line), Laws{"input.raw_bs: of dtype float32"});
}

TEST(TraceBatch, SlotsLieInThePool) {
  TraceLine line = decode_line();
  line.input["out_cache_loc"] = vector_of({20, -4});
  EXPECT_EQ(laws(line), (Laws{"slot.range out_cache_loc 1", "slot.write out_cache_loc 1"}));
  line = decode_line();
  line.input["full_to_swa"] = vector_of(std::vector<int64_t>(44));
  EXPECT_EQ(found(line), "ok");
  line.input["full_to_swa"].data[9] = int64_t{1} << 31;
  EXPECT_EQ(laws(line), Laws{"pool.window full_to_swa 9"});
  line.input["full_to_swa"] = vector_of(std::vector<int64_t>(43));
  EXPECT_EQ(laws(line), Laws{"pool.window full_to_swa"}) << "slot 43 has no entry";
}

/// Two steps of a draft in two branches, behind 4 and 8 tokens; the first is recorded.
TraceLine drafted_line(const char* phase) {
  TraceLine line = draft_line("draft_decode");
  line.phase = phase;
  line.config.page_size = 1, line.config.topk = 2, line.config.num_steps = 2;
  line.input["out_cache_loc"] = vector_of({20, 21, 22, 23, 4, 5, 6, 7});
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = decode_line().expect["cache_seqlens_int32"];
  line.expect["cache_seqlens_int32"].data = {4, 8};
  line.expect["expand.page_table"] = {"int32", {4, 1}, 1, {20, 22, 4, 6}};
  return line;
}

TEST(TraceBatch, ADraftSaysTheSlotsOfThisStepOrOfAll) {
  const std::vector<int64_t> all = {20, 21, 22, 23, 4, 5, 6, 7};
  std::vector<int64_t> larger = all;  // of the largest bucket
  larger.resize(12);
  for (const char* phase : {"eager", "replay"}) {
    const bool graph = std::string(phase) == "replay";
    TraceLine line = drafted_line(phase);
    EXPECT_EQ(found(line), "ok") << phase;
    line.input["out_cache_loc"] = vector_of(larger);
    EXPECT_EQ(found(line), graph ? "ok" : "len.total: x: out_cache_loc is 12, expected 8 tokens")
        << phase;
    for (const size_t size : {7, 10}) {
      line.input["out_cache_loc"] = vector_of({larger.begin(), larger.begin() + size});
      EXPECT_EQ(found(line),
                "len.total: x: out_cache_loc is " + std::to_string(size) + ", expected 8 tokens")
          << phase;
    }
    line.input["out_cache_loc"] = vector_of({20, 22, 4, 6});
    EXPECT_EQ(found(line), "ok") << phase;
    line.input["out_cache_loc"] = vector_of({20, 22, 4, 5});
    EXPECT_EQ(laws(line), Laws{"table.slot expand.page_table 3 0"}) << phase;
    line.config.step_id = 2;
    EXPECT_EQ(laws(line), Laws{"len.spec spec.step"}) << phase;
  }
}

TEST(TraceBatch, OfNoRequestNothingNeedBeSaid) {
  for (const char* mode : {"draft_extend", "extend"}) {
    for (const char* phase : {"eager", "replay", "capture"}) {
      TraceLine line = decode_line();
      line.mode = mode, line.phase = phase;
      line.input["seq_lens"] = line.input["req_pool_indices"] = vector_of({});
      line.expect.clear();
      line.expect["cu_seqlens_q"] = {"int32", {1}, 1, {0}};
      EXPECT_EQ(found(line), "ok") << mode << ' ' << phase;
      line.input["num_tokens"] = {"pyint", {}, 1, {4}};
      EXPECT_EQ(found(line), "ok") << mode << ' ' << phase;
      line.input.erase("num_tokens");
      line.input["out_cache_loc"] = vector_of({});
      EXPECT_EQ(found(line), "ok") << mode << ' ' << phase;
      line.expect["cu_seqlens_q"].data = {1};
      EXPECT_EQ(laws(line), Laws{"len.indptr_first cu_seqlens_q 0"}) << mode << ' ' << phase;
    }
  }
}

TEST(TraceBatch, LengthsOfNewTokensAreThoseOfTheRequests) {
  TraceLine line = decode_line();
  line.mode = "extend";
  line.input["extend_seq_lens"] = vector_of({});
  EXPECT_EQ(laws(line), Laws{"len.batch extend_lens"});
  line.input["extend_seq_lens"] = vector_of({-5, 1});
  line.input["positions"] = vector_of({});
  EXPECT_EQ(laws(line), Laws{"len.negative extend_lens 0"});
  line.input.erase("extend_seq_lens");
  EXPECT_EQ(refusals(line), Laws{"input.extend_seq_lens: missing"});
}

TEST(TraceBatch, ADraftOfNoStepHasNoSlots) {
  TraceLine line = drafted_line("replay");
  line.config.num_steps = 0;
  EXPECT_EQ(laws(line)[0], "len.spec spec.step");
}

TEST(TraceBatch, APaddedStepMayHaveAnyNumberOfPositionsFromItsTokensOn) {
  TraceLine line = replay_line();
  line.mode = "extend";
  line.input["extend_seq_lens"] = vector_of({1, 1});
  line.input["positions"] = vector_of({4, 8, 0});
  EXPECT_EQ(found(line), "ok");
  line.input["positions"] = vector_of({4});
  EXPECT_EQ(laws(line), Laws{"len.total positions"});
}

}  // namespace
}  // namespace shadowgraph::trace_batch_test
