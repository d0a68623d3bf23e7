// Words of traces: what no trace says is refused, and what nobody looks at is named.
#include "check/traces/trace_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "check/mistakes/hints.h"
#include "check/trace_lines.h"
#include "core/laws.h"
#include "core/refs.h"
#include "faults/faults.h"

namespace shadowgraph::trace_names_test {
namespace {

TEST(TraceNames, WordsThatNoTraceHasAreRefusedWithTheNearest) {
  TraceLine line = decode_line();
  line.line = 7;
  line.mode = "decoding";
  line.phase = "graph";
  line.config.seq_lens_semantics = "prefix";
  EXPECT_EQ(refusals(line),
            (Laws{"mode: decoding; did you mean decode?", "phase: graph; did you mean replay?",
                  "config.seq_lens_semantics: prefix; did you mean prefix_only?"}));
  line.backend = "flashinfer";
  EXPECT_EQ(refusals(line).size(), 3U);
}

TEST(TraceNames, AKnownArrayThatIsNoneIsRefusedWithAllTheOthers) {
  TraceLine line = decode_line();
  line.expect["page_table"].unreadable = "of dtype float32";
  line.expect["cu_seqlens_k"].unreadable = "the float 5";
  line.expect["calls"].unreadable = "a list with an object of 1";
  line.input["positions"].unreadable = "true";
  line.input.erase("seq_lens");
  line.input["seq_len"] = {};
  EXPECT_EQ(left_out(line), (Laws{"input.seq_len: not known; did you mean seq_lens?",
                                  "calls: no field of flashattention"}));
  EXPECT_EQ(refusals(line),
            (Laws{"input.positions: true", "expect.cu_seqlens_k: the float 5",
                  "expect.page_table: of dtype float32", "input.seq_lens: missing"}));
}

TEST(TraceNames, InputsAreNumbersInRange) {
  TraceLine line = replay_line();
  line.input["raw_bs"].data = {4};
  line.input["req_pool_indices"].data[0] = int64_t{1} << 31;
  EXPECT_EQ(refusals(line), (Laws{"input.raw_bs: 4", "input.req_pool_indices: 2147483648"}));
  line = decode_line();
  line.mode = "cross_decode";
  EXPECT_EQ(refusals(line), Laws{"input.encoder_lens: missing"});
  line.mode = "mixed";
  EXPECT_EQ(refusals(line), Laws{"input.extend_seq_lens: missing"});
}

TEST(TraceNames, NothingThatIsGivenIsUnusedInSilence) {
  TraceLine line = decode_line();
  line.expect.erase("cache_seqlens_int32");
  line.expect["cache_seqlens int32"] = {};  // no backend can own a name with a space
  line.expect["swa_page_table"] = line.expect["page_table"];
  line.expect["kv_indptr"] = {};
  line.input["seq_len"] = {};
  line.config_keys = {"pagesize", "max_bs", "raw_bs"};
  line.line_keys = {"notes", "colours"};
  line.null_inputs = {"positions", "position_ids"};
  line.null_fields = {"encoder_page_table", "encoder_table", "kv_indices"};
  const TraceVerdict v = judge_trace(line);
  EXPECT_EQ(v.kind, Kind::kAgreed) << found(line);
  EXPECT_EQ(left_out(line),
            (Laws{"colours: not known", "config.pagesize: not known; did you mean page_size?",
                  "config.raw_bs: not known; it belongs into input",
                  "input.seq_len: not known; did you mean seq_lens?",
                  "input.position_ids: not known; did you mean positions?",
                  "swa_page_table: the twin has no such buffer in this mode",
                  "cache_seqlens int32: not known; did you mean cache_seqlens_int32?",
                  "kv_indptr: no field of flashattention", "encoder_page_table: null",
                  "encoder_table: not known", "kv_indices: no field of flashattention"}));
  std::map<std::string_view, int> ids;
  for (const LeftOut& one : v.left_out) ++ids[one.law];
  EXPECT_EQ(ids, (std::map<std::string_view, int>{{"left_out.unknown_name", 7},
                                                  {"left_out.other_backend", 2},
                                                  {"left_out.null", 1},
                                                  {"left_out.no_buffer", 1}}));
}

TEST(TraceNames, ANullHasItsOwnNameBesideAFieldOfItsRole) {
  TraceLine line = decode_line();
  line.expect["lens_here"] = line.expect["cache_seqlens_int32"];
  line.expect.erase("cache_seqlens_int32");
  line.roles = {{"lens_here", "cache_seqlens_int32"}, {"lens_of_draft", "cache_seqlens_int32"}};
  line.null_fields = {"lens_of_draft"};
  EXPECT_EQ(left_out(line), Laws{"lens_of_draft: null"});
  line.expect.erase("lens_here");
  line.null_fields = {"lens_here", "lens_of_draft"};
  EXPECT_EQ(left_out(line), (Laws{"lens_here: null", "lens_of_draft: null"}));
}

TEST(TraceNames, AFieldOfAnotherBackendIsHeldAgainstTheLinesOwn) {
  TraceLine line = decode_line();
  line.expect["max_seq_len_succ"] = {};  // dual_chunk's
  EXPECT_EQ(left_out(line),
            Laws{"max_seq_len_succ: no field of flashattention; did you mean max_seq_len_q?"});
}

TEST(TraceNames, ANameOfAnotherEngineMeansTheFieldThatIsTheSame) {
  TraceLine line = decode_line();
  line.expect["block_tables"] = line.expect["page_table"];
  line.expect["query_start_loc"] = line.expect["cu_seqlens_q"];
  line.expect["slot_mapping"] = {};
  line.input["num_scheduled_tokens"] = {};
  EXPECT_EQ(left_out(line),
            (Laws{"input.num_scheduled_tokens: not known; did you mean extend_seq_lens?",
                  "block_tables: no field of flashattention; did you mean page_table?",
                  "query_start_loc: no field of flashattention; did you mean cu_seqlens_q?",
                  "slot_mapping: not known; did you mean input.out_cache_loc?"}));
}

TEST(TraceNames, WhatTheModeDoesNotReadIsNotSuggested) {
  TraceLine line = decode_line();
  line.expect["encoder_page_tabel"] = {};
  EXPECT_EQ(left_out(line), Laws{"encoder_page_tabel: not known"});
  line.mode = "cross_decode";
  line.input["encoder_lens"] = {"int32", {2}, 2, {4, 0}};
  EXPECT_EQ(left_out(line).back(),
            "encoder_page_tabel: not known; did you mean encoder_page_table?");
}

TEST(TraceNames, AComposedBackendIsTracedPartByPart) {
  for (const Backend* backend : all_backends()) {
    if (!names_of_fields(backend->info()).empty()) continue;
    TraceLine line = decode_line();
    line.backend = backend->info().name;
    const TraceVerdict v = judge_trace(line);
    EXPECT_EQ(v.kind, Kind::kSkipped);
    EXPECT_EQ(v.why, backend->info().dense ? "trace each part under its own backend's name"
                                           : "metadata of its layers is not judged in traces yet");
    EXPECT_EQ(v.skip, "skip.composed");
    EXPECT_TRUE(v.left_out.empty());
    EXPECT_FALSE(v.unknown_backend());
    line.phase = "reply";
    EXPECT_EQ(refusals(line), Laws{"phase: reply; did you mean replay?"});
  }
}

TEST(TraceNames, EveryForwardModeIsAModeOfTraces) {
  for (int i = 0; i < kNumForwardModes; ++i) {
    const auto mode = static_cast<ForwardMode>(i);
    const TraceMode* named = find_trace_mode(name_of(mode));
    ASSERT_NE(named, nullptr) << name_of(mode);
    EXPECT_EQ(named->mode, mode);
  }
  EXPECT_EQ(find_trace_mode("decoding"), nullptr);
}

/// A line of two requests, with these keys and those that every line needs.
TraceLine line_with(const TraceMode& mode, const std::set<std::string>& keys) {
  TraceLine line = decode_line();
  line.mode = mode.name;
  line.input["req_to_token"].data = {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,   //
                                     8,  9,  10, 11, 20, 21, 22, 23, 24, 25, 26, 27,  //
                                     12, 13, 14, 15, 40, 41, 42, 43, 4,  5,  6,  7};
  for (const char* rows : {"extend_seq_lens", "num_accept_tokens", "encoder_lens"})
    if (keys.contains(rows)) line.input[rows] = {"int32", {2}, 2, {1, 1}};
  line.config.num_draft_tokens = keys.contains("num_draft_tokens") ? 1 : 0;
  line.config.num_steps = keys.contains("num_steps") ? 1 : 0;
  return line;
}

/// The batch is whole: it is judged, and does not contradict itself.
bool is_judged(const TraceLine& line) {
  const TraceVerdict v = judge_trace(line);
  return v.kind == Kind::kAgreed ||
         (v.kind == Kind::kFlagged && found(line).find("len.spec") == std::string::npos);
}

TEST(TraceNames, AModeNeedsTheKeysThatItNamesAndNoOther) {
  for (const TraceMode& mode : kTraceModes) {
    if (mode.mode == ForwardMode::kIdle || mode.mode == ForwardMode::kPrebuilt) continue;
    std::istringstream words{std::string(mode.needs.substr(0, mode.needs.find(';')))};
    const std::set<std::string> keys{std::istream_iterator<std::string>(words), {}};
    EXPECT_TRUE(is_judged(line_with(mode, keys))) << mode.name << found(line_with(mode, keys));
    for (const std::string& key : keys) {
      const bool known = is_trace_key("input", key) || is_trace_key("config", key);
      EXPECT_TRUE(known || key == "or") << key;
      std::set<std::string> others = keys;
      others.erase(key);
      EXPECT_EQ(is_judged(line_with(mode, others)), keys.contains("or")) << mode.name << ' ' << key;
    }
  }
}

TEST(TraceNames, KeysAreNamedOnceAndNoTwinIsForeign) {
  std::set<std::string> keys;
  for (const TraceKey& key : kTraceKeys)
    EXPECT_TRUE(keys.insert(std::string(key.of) + '.' + std::string(key.name)).second) << key.name;
  for (const Backend* backend : all_backends())
    EXPECT_FALSE(is_foreign_backend(backend->info().name));
  EXPECT_TRUE(is_foreign_backend("torch_native"));
}

TEST(TraceNames, EveryFieldHasLawsButWhatNothingReads) {
  for (const Backend* backend : all_backends()) {
    for (const BufferInfo& field : backend->info().buffers) {
      if (field.shape == FieldShape::kNone) continue;
      EXPECT_EQ(laws_of(field).empty(), field.rule == FieldRule::kDead) << field.recorded;
      EXPECT_TRUE(is_field_of_any(field.recorded));
    }
  }
  EXPECT_FALSE(is_field_of_any("colour"));
}

/// Laws of the fields of each kind; the text of laws_of() stands for the kind.
using LawsOfKinds = std::map<std::string, std::set<std::string>>;

/// What the readings of a name can break, in whatever mode.
std::string laws_of_name(const BackendInfo& backend, const std::string& name) {
  std::string laws;
  for (const BufferInfo& field : backend.buffers) {
    if (field.recorded == name && field.rule != FieldRule::kDead) laws = laws_of(field);
  }
  return laws;
}

/// `explain` knows these: references, faults, hints, and whatever they cite.
std::set<std::string> all_refs() {
  std::string refs;
  for (const Reference& r : kReferences) refs += ' ' + std::string(r.id);
  for (const Fault& f : all_faults()) refs += ' ' + std::string(f.id) + ' ' + std::string(f.refs);
  for (const Law& law : kLaws) refs += ' ' + std::string(law.refs);
  for (const Hint& hint : kHints) refs += ' ' + std::string(hint.id) + ' ' + std::string(hint.refs);
  for (const Backend* backend : all_backends()) {
    for (const BufferInfo& field : backend->info().buffers) refs += ' ' + std::string(field.refs);
  }
  std::istringstream words(refs);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<RecordedField> spoilt(const RecordedField& field, int64_t page_size) {
  std::vector<RecordedField> all(3, field);
  all[0].dtype = "int64";
  all[1].data.clear();
  if (!field.shape.empty()) all[1].shape[0] = all[1].cols = 0;
  all[2].shape.push_back(1);
  if (field.shape.size() == 2) {
    RecordedField& narrow = all.emplace_back(field);
    narrow.shape[1] = narrow.cols = std::min<int64_t>(1, field.cols);
    narrow.data.resize(static_cast<size_t>(narrow.rows() * narrow.cols));
  }
  const size_t size = field.data.size();
  const auto last_row = static_cast<size_t>(std::max<int64_t>(0, field.rows() - 1) * field.cols);
  for (const size_t i : {size_t{0}, size_t{1}, last_row, size - 1}) {
    if (i >= size) continue;
    for (const int64_t value :
         {field.data[i] + 1, field.data[i] * page_size, field.data[i] / page_size, int64_t{0},
          int64_t{1} << 20, int64_t{-5}}) {
      all.push_back(field);
      all.back().data[i] = value;
    }
  }
  return all;
}

TEST(TraceNames, TheLawsOfAFieldAreThoseThatItsFindingsBreak) {
  LawsOfKinds found;
  const std::set<std::string> known = all_refs();
  std::vector<TraceLine> lines = all_lines();
  ASSERT_TRUE(
      read_traces(std::string(SHADOWGRAPH_TEST_DATA) + "/reports/pages_in_lists.jsonl", &lines)
          .ok());
  ASSERT_TRUE(
      read_traces(std::string(SHADOWGRAPH_TEST_DATA) + "/reports/roles.jsonl", &lines).ok());
  for (const TraceLine& line : lines) {
    if (judge_trace(line).kind != Kind::kAgreed || !line.roles.empty()) continue;
    for (const auto& [name, recorded] : line.expect) {
      const bool is_input = name == "out_cache_loc" || name == "positions";
      if (is_input && line.backend == "laws") continue;
      const std::string laws = laws_of_name(find_backend(line.backend)->info(), name);
      TraceLine wrong = line;
      for (const RecordedField& bad : spoilt(recorded, line.config.page_size)) {
        wrong.expect[name] = bad;
        const TraceVerdict v = judge_trace(wrong);
        for (const Finding& f : v.findings.findings()) {
          if (f.where.field != name) continue;
          EXPECT_NE((' ' + laws + ' ').find(' ' + f.id + ' '), std::string::npos) << f.to_string();
          found[laws].insert(f.id);
          for (const std::string& ref : f.refs)
            EXPECT_TRUE(known.contains(ref)) << "nothing explains " << ref;
        }
      }
    }
  }
  for (const auto& [laws, broken] : found) {
    std::string all;
    for (const std::string& law : broken) all += law + ' ';
    EXPECT_EQ(broken.size(), static_cast<size_t>(std::ranges::count(laws, ' ')) + 1)
        << laws << "; found " << all;
  }
  for (const Backend* backend : all_backends()) {
    for (const BufferInfo& field : backend->info().buffers)
      EXPECT_TRUE(laws_of(field).empty() || found.contains(laws_of(field)))
          << field.recorded << ": " << laws_of(field);
  }
}

}  // namespace
}  // namespace shadowgraph::trace_names_test
