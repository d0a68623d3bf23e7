// Verdicts on engine traces: what is wrong with the recorded ones is known line by line; and every
// live element counts, no other.
#include "check/traces/traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check/trace_lines.h"
#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph::traces_test {
namespace {

/// Ids of the curated lines that are wrong, found by other means.
std::set<std::string> known_wrong() {
  std::ifstream file(SHADOWGRAPH_TEST_DATA "/traces/flagged.txt");
  std::set<std::string> ids;
  for (std::string id; std::getline(file, id);) ids.insert(id);
  return ids;
}

TEST(TraceVerdicts, WhatAgreesHasNoFinding) { EXPECT_EQ(found(decode_line()), "ok"); }

TEST(TraceVerdicts, ALengthIsTheCanonicalOne) {
  TraceLine line = decode_line();
  line.expect["cache_seqlens_int32"].data[1] = 8;
  EXPECT_EQ(laws(line), Laws{"len.kv_extent cache_seqlens_int32 1"});
  EXPECT_NE(found(line).find("8: only the cached prefix, the new tokens are missing"),
            std::string::npos);
  line.expect["cache_seqlens_int32"].data[1] = 10;
  EXPECT_NE(found(line).find("10: the new tokens are counted twice"), std::string::npos);
  line.expect["cache_seqlens_int32"].data[1] = 12;
  EXPECT_NE(found(line).find("12: rounded up to whole pages"), std::string::npos);
}

TEST(TraceVerdicts, OffsetsStepByTheQueries) {
  TraceLine line = decode_line();
  line.expect["cu_seqlens_q"].data = {0, 2, 3};
  EXPECT_EQ(laws(line), Laws{"len.q_extent cu_seqlens_q 1"});
  line.expect["cu_seqlens_q"].data = {1, 2, 3};
  EXPECT_EQ(laws(line), Laws{"len.indptr_first cu_seqlens_q 0"});
}

TEST(TraceVerdicts, WhatIsNotStoredWholeIsNotJudgedByADeadReading) {
  TraceLine line = decode_line();
  line.mode = "extend";
  line.config.prefix_chunk_tokens = 14;
  line.input["extend_seq_lens"] = line.expect["cache_seqlens_int32"];
  line.input["extend_seq_lens"].data = {2, 1};
  line.expect["cu_seqlens_q"].data = {0, 2, 3};
  RecordedField part = line.expect["cu_seqlens_q"];
  part.cols = 1, part.data = {0};
  line.expect["cu_seqlens_k"] = part;
  EXPECT_EQ(left_out(line), std::vector<std::string>{"cu_seqlens_k: not stored whole"});
}

TEST(TraceVerdicts, WhatNothingReadsIsNoVerdict) {
  TraceLine line = decode_line();
  const RecordedField dead = line.expect["cu_seqlens_q"];
  line.expect.clear();
  line.expect["cu_seqlens_k"] = dead;
  EXPECT_EQ(judge_trace(line).kind, TraceVerdict::Kind::kSkipped);
  line.expect.clear();
  line.phase = "replay";
  line.expect["max_seq_len_q"] = {.dtype = "pyint", .shape = {}, .cols = 1, .data = {-7}};
  EXPECT_EQ(judge_trace(line).kind, TraceVerdict::Kind::kSkipped);
}

TEST(TraceVerdicts, OffsetsOfKeysAreReadWhereAllOfThemAreOneRaggedCall) {
  TraceLine line = decode_line();
  line.mode = "extend";
  line.input["extend_seq_lens"] = line.expect["cache_seqlens_int32"];
  line.input["extend_seq_lens"].data = {2, 1};
  line.expect["cu_seqlens_q"].data = {0, 2, 3};
  line.expect["cu_seqlens_k"] = line.expect["cu_seqlens_q"];
  EXPECT_EQ(found(line), "ok") << "nothing reads them";
  line.config.prefix_chunk_tokens = 13;  // of 5 + 9
  EXPECT_EQ(found(line), "ok") << "nothing reads them";
  line.config.prefix_chunk_tokens = 14;
  EXPECT_EQ(laws(line), Laws{"len.q_extent cu_seqlens_k 1"});
  line.expect["cu_seqlens_k"].data = {0, 5, 14};
  EXPECT_EQ(found(line), "ok");
}

TEST(TraceVerdicts, EveryLiveColumnLeadsToItsSlotAndNoOtherIsLookedAt) {
  for (const int64_t live : {0, 1, 3, 4, 5}) {
    TraceLine line = decode_line();
    line.expect["page_table"].data[static_cast<size_t>(live)] += 100;
    EXPECT_EQ(laws(line), Laws{"table.slot page_table " + std::to_string(live / 3) + ' ' +
                               std::to_string(live % 3)});
  }
  TraceLine line = decode_line();
  line.expect["page_table"].data[2] = -7777;
  EXPECT_EQ(found(line), "ok");
}

TEST(TraceVerdicts, WrongColumnsAreExplained) {
  const std::pair<int64_t, const char*> kWrong[] = {
      {-7777, "never written"},
      {-1, "no page of any pool"},
      {12, "a slot where an id of a page belongs"},
      {41, "a slot, of token 5 of request 1, where an id of a page belongs"},
      {2, "what row 0 should have there"},
      {10, "what belongs to column 1"},
      {5, "there lies token 4 of request 0"},
      {1000, "of no request in this step"},
  };
  for (const auto& [value, words] : kWrong) {
    TraceLine line = decode_line();
    line.expect["page_table"].data[3] = value;
    EXPECT_NE(found(line).find(words), std::string::npos) << found(line);
  }
  TraceLine line = decode_line();
  line.expect["page_table"].data[3] = 12;
  EXPECT_EQ(laws(line), Laws{"table.unit page_table 1 0"});
}

TEST(TraceVerdicts, ATableHasAColumnForEveryKey) {
  TraceLine line = decode_line();
  RecordedField& table = line.expect["page_table"];
  table.shape[1] = table.cols = 2;
  table.data = {2, 5, 3, 10};
  EXPECT_EQ(laws(line), Laws{"table.capacity page_table 1"});
  line.expect["cache_seqlens_int32"].data[1] = 8;
  EXPECT_EQ(laws(line),
            (Laws{"len.kv_extent cache_seqlens_int32 1", "table.capacity page_table 1"}));
}

TEST(TraceVerdicts, AFieldHasTheRowsOfItsBatch) {
  TraceLine line = decode_line();
  RecordedField& lens = line.expect["cache_seqlens_int32"];
  lens.shape[0] = lens.cols = 3;
  lens.data.push_back(1);
  EXPECT_EQ(laws(line), Laws{"trace.shape cache_seqlens_int32"});
}

TEST(TraceVerdicts, PaddedRowsAnswerToLawsOnly) {
  EXPECT_EQ(found(replay_line()), "ok");
  TraceLine line = replay_line();
  line.expect["cache_seqlens_int32"].data[2] = 8;
  line.expect["page_table"].data[6] = 9;
  EXPECT_EQ(found(line), "ok");
  line.expect["cache_seqlens_int32"].data[2] = 9;
  EXPECT_EQ(laws(line), Laws{"table.page_id page_table 2 2"});
  line.expect["cache_seqlens_int32"].data[2] = 13;
  EXPECT_EQ(laws(line), (Laws{"len.padding cache_seqlens_int32 2", "table.capacity page_table 2"}));
  line.config.max_context_len = 0;  // not said
  EXPECT_EQ(laws(line), Laws{"table.capacity page_table 2"});
  line.config.max_context_len = replay_line().config.max_context_len;
  line.expect["cache_seqlens_int32"].data[2] = -1;
  EXPECT_EQ(laws(line), Laws{"len.padding cache_seqlens_int32 2"});
  line = replay_line();
  line.expect["cu_seqlens_q"].data[3] = 1;
  EXPECT_EQ(laws(line).size(), 1U);
}

TEST(TraceVerdicts, OffsetsOfPaddingEndWithTheQueriesOfTheGraph) {
  TraceLine line = replay_line();
  line.expect["cu_seqlens_q"].data[3] = 4;
  EXPECT_EQ(laws(line), Laws{"len.total cu_seqlens_q 3"});
  line = decode_line();
  line.phase = "capture";
  EXPECT_EQ(found(line), "ok");
  line.expect["cu_seqlens_q"].data[2] = 3;
  EXPECT_EQ(laws(line), Laws{"len.total cu_seqlens_q 2"});
}

TEST(TraceVerdicts, APaddedRowWithoutARecordedLengthHasAsManyKeysAsItMustHave) {
  TraceLine line = replay_line();
  line.expect.erase("cache_seqlens_int32");
  EXPECT_EQ(found(line), "ok");
  line.expect["page_table"].data[7] = -1;  // behind its one key
  EXPECT_EQ(found(line), "ok");
  line.expect["page_table"].data[6] = -1;
  EXPECT_EQ(laws(line), Laws{"table.page_id page_table 2 0"});
}

TEST(TraceVerdicts, WhatTheRowsOfACaptureAndOtherModesDoNotReadIsUnread) {
  const auto unread = [](const TraceLine& line) {
    std::vector<std::string> words;
    for (const LeftOut& one : judge_trace(line).unread) words.push_back(one.to_string());
    return words;
  };
  TraceLine line = decode_line();
  EXPECT_EQ(unread(line), std::vector<std::string>());
  line.input["extend_seq_lens"] = {"int32", {2}, 2, {1, 1}};
  EXPECT_EQ(unread(line),
            std::vector<std::string>{"input.extend_seq_lens: only extends need it; in this mode "
                                     "the mode and seq_lens say it"});
  line = decode_line();
  line.phase = "capture";
  const std::vector<std::string> words = unread(line);
  for (const char* key : {"req_pool_indices", "req_to_token"})
    EXPECT_EQ(std::ranges::count(words, "input." + std::string(key) +
                                            ": a capture runs on padding, and has no request"),
              1)
        << key;
  line.phase = "unheard of";
  EXPECT_EQ(unread(line), std::vector<std::string>());
}

TEST(TraceVerdicts, WhatAKernelReadsHasItsType) {
  for (const char* name : {"cache_seqlens_int32", "cu_seqlens_q", "page_table"}) {
    for (const char* dtype : {"int64", "int16", "uint8"}) {
      TraceLine line = decode_line();
      line.expect[name].dtype = dtype;
      EXPECT_EQ(laws(line), Laws{"trace.dtype " + std::string(name)}) << dtype;
      line.expect[name].data[1] += 1;
      EXPECT_EQ(laws(line).size(), 2U) << "its numbers are judged all the same";
    }
    TraceLine line = decode_line();
    line.expect[name].dtype = "pylist";
    EXPECT_EQ(found(line), "ok") << "plain JSON says no type";
  }
}

TEST(TraceVerdicts, LengthsOfTheHostAndSlotsToWriteMayBeWide) {
  std::set<std::string> wide;
  for (const TraceLine& line : all_lines()) {
    if (judge_trace(line).kind != Kind::kAgreed) continue;
    for (const std::string name : {"seq_lens_q", "swa_out_cache_loc"}) {
      if (!line.expect.contains(name)) continue;
      TraceLine other = line;
      for (const char* dtype : {"int64", "int32"}) {
        other.expect[name].dtype = dtype;
        EXPECT_EQ(judge_trace(other).kind, Kind::kAgreed) << line.id << ' ' << name;
      }
      wide.insert(name);
    }
  }
  EXPECT_EQ(wide.size(), 2U);
}

TEST(TraceVerdicts, WhatARowLacksBehindItsRecordedLengthIsCalledStale) {
  TraceLine line = decode_line();
  line.expect["cache_seqlens_int32"].data[1] = 8;
  line.expect["page_table"].data[5] = 7;
  EXPECT_EQ(laws(line).size(), 2U);
  EXPECT_NE(found(line).find("7: behind the recorded length 8"), std::string::npos);
}

TEST(TraceVerdicts, ABuilderThatRaisedIsAFindingIfItsBatchIsLegal) {
  TraceLine line = decode_line();
  line.expect.clear();
  line.exception = "IndexError: index 68";
  EXPECT_EQ(laws(line), Laws{"trace.exception exception"});
  line.expect["max_seq_len_q"] = {"pyint", {}, 1, {1}};
  EXPECT_EQ(laws(line), Laws{"trace.exception exception"});
  line.expect["max_seq_len"] = {"pyint", {}, 1, {1}};
  EXPECT_EQ(left_out(line), (Laws{"max_seq_len_q: beside an exception",
                                  "max_seq_len: not known; did you mean max_seq_len_k?"}));
  line.input["seq_lens"].data[0] = 13;  // more than its row of req_to_token holds
  EXPECT_EQ(laws(line), Laws{"table.row_width req_to_token 1"});
}

TEST(TraceVerdicts, AnAccessOutsideStorageIsAFinding) {
  TraceLine line = decode_line();
  line.triton_oob = {"oob_store by k at offset 64 of 64"};
  EXPECT_EQ(laws(line), Laws{"mem.out_of_bounds triton_oob"});
}

TEST(TraceVerdicts, WhatCannotBeJudgedIsSkippedWithItsReason) {
  TraceLine line = decode_line();
  line.backend = "torch_native";
  EXPECT_EQ(found(line), "no twin of torch_native yet");
  EXPECT_FALSE(judge_trace(line).unknown_backend());
  line.backend = "flash_attention";
  EXPECT_EQ(found(line), "backend not known: flash_attention; did you mean flashattention?");
  EXPECT_TRUE(judge_trace(line).unknown_backend());
  line.backend = "flashattn";
  EXPECT_EQ(found(line), "backend not known: flashattn; did you mean flashattention?");
  line.backend = "vllm";
  EXPECT_NE(found(line).find("laws judges any engine's arrays"), std::string::npos);
  line = decode_line();
  line.input["req_to_token"].data[12] = -3;
  EXPECT_EQ(laws(line)[0], "pool.slot req_to_token 1 0");
  line = decode_line();
  line.mode = "prebuilt";
  line.input["extend_seq_lens"] = {"int32", {2}, 2, {1, 1}};
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
}

/// Fields of a line that agrees whose first row is compared with the twin's, element by element.
std::vector<const BufferInfo*> compared_fields(const TraceLine& line) {
  std::vector<const BufferInfo*> fields;
  const Backend* backend = find_backend(line.backend);
  if (backend == nullptr || line.phase == "capture") return fields;
  const auto all = backend->info().buffers;
  for (const BufferInfo& field : all) {
    const auto at = line.expect.find(field.recorded);
    // What is dead in some modes is judged in none of these lines.
    const bool dead = std::ranges::any_of(all, [&](const BufferInfo& f) {
      return f.recorded == field.recorded && f.rule == FieldRule::kDead;
    });
    const bool live =
        !dead && (field.rule == FieldRule::kExact || field.rule == FieldRule::kConstant);
    if (live && field.shape != FieldShape::kScalar && at != line.expect.end() &&
        !at->second.data.empty())
      fields.push_back(&field);
  }
  return fields;
}

/// Where an element that counts may be: each row's first, the first offset that may differ, of a
/// list and a mask anywhere.
std::vector<size_t> places_of(const BufferInfo& field, const RecordedField& f) {
  if (field.shape == FieldShape::kIndptr || field.shape == FieldShape::kSizes) return {1};
  if (field.shape != FieldShape::kTable && field.shape != FieldShape::kList &&
      field.shape != FieldShape::kMask)
    return {0};
  std::vector<size_t> places;
  const size_t step = field.shape == FieldShape::kTable ? static_cast<size_t>(f.cols) : 1;
  for (size_t i = 0; i < f.data.size() && step > 0; i += step) places.push_back(i);
  return places;
}

/// A list of no slot: every request begins with this step.
bool is_empty_list(const TraceLine& line, const BufferInfo& field) {
  for (const BufferInfo& other : find_backend(line.backend)->info().buffers) {
    if (other.buffer != field.lens || field.shape != FieldShape::kList) continue;
    const auto at = line.expect.find(other.recorded);
    if (at != line.expect.end()) return at->second.data.back() == 0;
  }
  return false;
}

TEST(TraceVerdicts, EveryLiveElementCounts) {
  int changed = 0;
  for (const TraceLine& line : all_lines()) {
    if (judge_trace(line).kind != Kind::kAgreed) continue;
    for (const BufferInfo* field : compared_fields(line)) {
      TraceLine wrong = line;
      RecordedField& f = wrong.expect.find(field->recorded)->second;
      // A row of a table without keys has no live column; a later one has.
      bool seen = is_empty_list(line, *field);
      for (const size_t i : places_of(*field, f)) {
        if (seen) break;
        f.data[i] = field->shape == FieldShape::kMask ? 1 - f.data[i] : f.data[i] + 1;
        seen = judge_trace(wrong).kind == Kind::kFlagged;
      }
      // Before a tree the prefix may hold no whole page.
      const bool prefix =
          line.expect.contains("expand.page_table") && field->recorded == "page_table";
      EXPECT_TRUE(seen || prefix) << line.id << ' ' << field->recorded;
      changed += seen;
    }
  }
  EXPECT_GT(changed, 100);
}

/// The recorded lengths of the rows of a table; nullptr: the line has none.
const RecordedField* lengths_of(const TraceLine& line, const BufferInfo& table) {
  for (const BufferInfo& field : find_backend(line.backend)->info().buffers) {
    if (field.buffer != table.lens || field.shape != FieldShape::kRows) continue;
    const auto at = line.expect.find(field.recorded);
    if (at != line.expect.end()) return &at->second;
  }
  return nullptr;
}

/// Overwrites the columns that the recorded lengths do not reach. False: there is none.
bool spoil_stale_columns(const BufferInfo& table, TraceLine* line) {
  const auto at = line->expect.find(table.recorded);
  const RecordedField* lens = lengths_of(*line, table);
  if (at == line->expect.end() || lens == nullptr || at->second.shape.size() != 2) return false;
  RecordedField& f = at->second;
  const int64_t unit = table.pages ? line->config.page_size : 1;
  bool changed = false;
  for (int64_t row = 0; row < std::min(f.rows(), lens->rows()); ++row) {
    const int64_t len = std::max<int64_t>(0, lens->data[static_cast<size_t>(row)]);
    for (int64_t c = (len + unit - 1) / unit; c < f.cols; ++c) {
      f.data[static_cast<size_t>(row * f.cols + c)] = -7777;
      changed = true;
    }
  }
  return changed;
}

TEST(TraceVerdicts, NothingBehindALineIsLookedAt) {
  int changed = 0;
  for (const TraceLine& line : all_lines()) {
    const Backend* backend = find_backend(line.backend);
    if (backend == nullptr || judge_trace(line).kind != Kind::kAgreed) continue;
    for (const BufferInfo& field : backend->info().buffers) {
      // Two tables may have one name, a mode each: in slots the live columns are more.
      const bool one =
          std::ranges::count(backend->info().buffers, field.recorded, &BufferInfo::recorded) == 1;
      TraceLine stale = line;
      if (field.shape != FieldShape::kTable || !one || !spoil_stale_columns(field, &stale))
        continue;
      EXPECT_EQ(judge_trace(stale).kind, Kind::kAgreed) << line.id << ' ' << field.recorded;
      ++changed;
    }
  }
  EXPECT_GT(changed, 100);
}

TEST(TraceVerdicts, WhatIsTooLargeToMakeIsSkipped) {
  TraceLine line = decode_line();
  line.mode = "draft_decode";
  line.config.topk = line.config.num_steps = 1 << 24;
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
  line = decode_line();
  line.mode = "draft_extend";
  line.phase = "capture";
  line.config.max_context_len = 1 << 24;
  line.input["num_tokens"] = {"pyint", {}, 1, {int64_t{1} << 62}};
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
  line.input["num_tokens"].data = {1 << 10};
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
}

TEST(TraceVerdicts, WhatIsNotStoredWholeIsLeftOut) {
  TraceLine line = decode_line();
  RecordedField& lens = line.expect["cache_seqlens_int32"];
  lens.cols = 1;
  lens.data = {5};
  RecordedField& offsets = line.expect["cu_seqlens_q"];
  offsets.cols = 2;
  offsets.data = {0, 7};
  const TraceVerdict v = judge_trace(line);
  EXPECT_TRUE(v.findings.ok()) << v.findings.to_string();
  EXPECT_EQ(v.left_out.size(), 2U);
}

TEST(TraceVerdicts, ACaptureHasTheRowsOfItsBucket) {
  TraceLine line = decode_line();
  line.phase = "capture";
  line.input["seq_lens"].data = {1, 1};
  line.input["req_pool_indices"].data = {0, 0};
  line.expect["cache_seqlens_int32"].data = {1, 1};
  line.expect["page_table"].data = {0, 0, 0, 0, 0, 0};
  EXPECT_EQ(found(line), "ok");
  line.expect["cache_seqlens_int32"] = {"int32", {0}, 0, {}};
  EXPECT_EQ(laws(line), Laws{"trace.shape cache_seqlens_int32"});
}

TEST(TraceVerdicts, APageIdIsNoWrappedOne) {
  TraceLine line = decode_line();
  line.expect["page_table"].data[0] += int64_t{1} << 62;  // times 4 it is the right slot again
  EXPECT_EQ(laws(line), Laws{"table.page_id page_table 0 0"});
  line.expect["page_table"].data[0] = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(laws(line), Laws{"table.page_id page_table 0 0"});
}

TEST(TraceVerdicts, ABatchThatContradictsItselfIsAFinding) {
  TraceLine line = decode_line();
  line.input["req_to_token"].data[13] =
      15;  // token 1 of the first request, on its page but not there
  EXPECT_EQ(laws(line)[0], "pool.page req_to_token 1 1");
  line = decode_line();
  line.input["req_to_token"].data[28] = 45;  // token 4 of the second begins no page
  EXPECT_EQ(laws(line)[0], "pool.page req_to_token 2 4");
  line = decode_line();
  line.input["req_pool_indices"] = {"int32", {0}, 0, {}};
  EXPECT_EQ(refusals(line), Laws{"input.req_pool_indices: 0"});
}

TEST(TraceVerdicts, NamesAndOriginHaveNoSay) {
  for (TraceLine line : all_lines()) {
    const TraceVerdict before = judge_trace(line);
    line.id = line.role = "pre99999";
    line.line = 1;
    const TraceVerdict after = judge_trace(line);
    EXPECT_EQ(before.kind, after.kind);
    EXPECT_EQ(std::as_const(before.findings).findings().size(),
              std::as_const(after.findings).findings().size());
  }
}

TEST(TraceVerdicts, TheCuratedLinesThatAreWrongAreFlaggedAndNoOther) {
  if (std::getenv("SHADOWGRAPH_VECTORS") != nullptr)
    GTEST_SKIP() << "flagged.txt lists the curated lines; SHADOWGRAPH_VECTORS names others";
  const std::set<std::string> wrong = known_wrong();
  ASSERT_FALSE(wrong.empty());
  for (const TraceLine& line : all_lines()) {
    if (find_backend(line.backend) == nullptr) continue;
    const TraceVerdict v = judge_trace(line);
    EXPECT_EQ(v.kind, wrong.contains(line.id) ? Kind::kFlagged : Kind::kAgreed)
        << line.id << ": " << v.why << v.findings.to_string();
    EXPECT_TRUE(v.left_out.empty()) << line.id << ": " << v.left_out[0].to_string();
  }
}

}  // namespace
}  // namespace shadowgraph::traces_test
