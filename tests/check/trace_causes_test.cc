// Every cause that a finding of a trace may name: a state in which it is true, and states beside it
// in which it must not appear.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "check/mistakes/hints.h"
#include "check/slip_lines.h"
#include "core/laws.h"

namespace shadowgraph::trace_causes_test {
namespace {

using Put = std::function<void(TraceLine&)>;

/// Elements of a field from `first` on.
Put put(const char* field, size_t first, const std::vector<int64_t>& values) {
  return [=](TraceLine& line) {
    RecordedField& f = line.expect.at(field);
    for (size_t i = 0; i < values.size(); ++i) f.data.at(first + i) = values[i];
  };
}
Put offsets(const char* field, const std::vector<int64_t>& values) {
  return [=](TraceLine& line) {
    line.expect.at(field) = vector_of(values);
    // The lists have as many elements as the offsets count.
    for (auto& [name, list] : line.expect) {
      if (name.ends_with("kv_indices")) list.data.resize(32), list.shape = {32}, list.cols = 32;
    }
  };
}

struct State {
  TraceLine (*line)();
  Put change;
  std::string words;  // what is recorded, and why: "8: never written"
};
struct Cause {
  HintId id;
  State truly;
  std::vector<State> beside;
};

/// The first request begins with this step's token.
TraceLine first_tokens() {
  TraceLine line = decode_line();
  line.input["seq_lens"] = line.expect["cache_seqlens_int32"] = vector_of({5, 1});
  return line;
}
TraceLine second_tokens() {
  TraceLine line = first_tokens();
  line.input["seq_lens"].data[1] = line.expect["cache_seqlens_int32"].data[1] = 2;
  return line;
}
TraceLine second_token_of_first() {
  TraceLine line = decode_line();
  line.input["seq_lens"].data[0] = line.expect["cache_seqlens_int32"].data[0] = 2;
  return line;
}
/// One key more is a page's end.
TraceLine almost_a_page() {
  TraceLine line = first_tokens();
  line.input["seq_lens"].data[1] = line.expect["cache_seqlens_int32"].data[1] = 3;
  return line;
}
/// The last step of a draft of three, behind 4 and 8 tokens.
TraceLine third_draft() {
  TraceLine line = decode_line();
  line.mode = "draft_decode";
  line.config.page_size = 1, line.config.num_steps = 3, line.config.step_id = 1;
  line.input["seq_lens"] = vector_of({4, 8});
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = vector_of({6, 10});
  return line;
}
/// Plans without pages, so that every key is a page's last.
TraceLine slots_of_a_window() { return planned_window_decode(); }

/// Text of 3 tokens each, behind 9 and 2 of an encoder.
TraceLine short_text() {
  TraceLine line = encoded_decode();
  line.input["seq_lens"] = line.expect["cache_seqlens_int32"] = vector_of({3, 3});
  return line;
}

/// A window's pool whose pages are the full pool's, one later; request 1 has three in a row.
TraceLine window_one_page_later() {
  TraceLine line = decode_line();
  line.config.window = 3;
  line.input["req_to_token"] = table_of(12, {0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0,  //
                                             8,  9,  10, 11, 28, 0,  0,  0,  0,  0, 0, 0,  //
                                             12, 13, 14, 15, 16, 17, 18, 19, 20, 0, 0, 0});
  std::vector<int64_t> slots(160);
  for (size_t s = 4; s < 60; ++s) slots[s] = static_cast<int64_t>(s) + 4;
  line.input["full_to_swa"] = vector_of(std::move(slots), "int64");
  line.expect["page_table"] = table_of(3, {2, 7, 77, 3, 4, 5});
  line.expect["swa_page_table"] = table_of(3, {3, 8, 77, 4, 5, 6});
  return line;
}

/// Request 0 has page 12.
TraceLine page_12() {
  TraceLine line = decode_line();
  const std::vector<int64_t> slots = {48, 49, 50, 51};
  std::ranges::copy(slots, line.input["req_to_token"].data.begin() + 12);
  line.expect["page_table"].data[0] = 12;
  return line;
}

/// A graph of two queries a row, of which the first request has one.
TraceLine short_draft_extend() {
  TraceLine line = decode_line();
  line.backend = "flashinfer";
  line.mode = "draft_extend_v2";
  line.phase = "replay";
  line.config.num_draft_tokens = 2;
  line.input["extend_seq_lens"] = vector_of({1, 2});
  line.expect.clear();
  line.expect["paged[0].kv_indptr"] = vector_of({0, 5, 14});
  line.expect["paged[0].kv_indices"] =
      vector_of({8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43, 4});
  line.expect["paged[0].qo_indptr"] = vector_of({0, 1, 3});
  return line;
}

Put row_1(const std::vector<int64_t>& values) { return put("page_table", 3, values); }
Put length_1(int64_t value) { return put("cache_seqlens_int32", 1, {value}); }
Put window_1(int64_t value) { return put("swa_page_table", 3, {value}); }
Put slot_7(int64_t value) { return put("decode[0].kv_indices", 7, {value}); }

std::vector<Cause> causes_of_lengths() {
  return {
      {"memory.unwritten",
       {decode_line, length_1(-7777), "-7777: never written"},
       {{decode_line, length_1(-1), "-1, expected"}}},
      {"extent.none",
       {decode_line, length_1(0), "0: no keys"},
       {{decode_line, length_1(1), "1, expected"},
        {local_extend, put("local.seqused_k", 2, {0}), "0, expected"}}},
      {"extent.short_by_extend",
       {decode_line, length_1(8), "8: only the cached prefix, the new tokens are missing"},
       {{second_tokens, length_1(1), "1: as many as the cached prefix, and as the new tokens"},
        {first_tokens, length_1(0), "0: no keys"},
        {decode_line, length_1(7), "7, expected"}}},
      // The second row tells it from the new tokens.
      {"extent.short_by_extend",
       {second_token_of_first, put("cache_seqlens_int32", 0, {1, 8}),
        "1: only the cached prefix, the new tokens are missing (and 1 more row)"},
       {{second_token_of_first, put("cache_seqlens_int32", 0, {1, 7}),
         "1: as many as the cached prefix, and as the new tokens (and 1 more row)"}}},
      {"extent.prefix_or_new",
       {second_tokens, length_1(1), "1: as many as the cached prefix, and as the new tokens"},
       {{decode_line, length_1(8), "8: only the cached prefix, the new tokens are missing"}}},
      {"extent.long_by_extend",
       {decode_line, length_1(10), "10: the new tokens are counted twice"},
       {{decode_line, length_1(11), "11, expected"}}},
      {"extent.draft_missing",
       {third_draft, length_1(8), "8: the tokens of this draft, its own included, are missing"},
       {{third_draft, length_1(9), "9: only the cached prefix, the new tokens are missing"},
        {decode_line, length_1(8), "8: only the cached prefix, the new tokens are missing"}}},
      {"extent.capacity",
       {decode_line, length_1(12), "12: rounded up to whole pages"},
       {{decode_line, length_1(16), "16, expected"},
        {planned_decode, put("decode[0].kv_last_page_len", 1, {4}), "4, expected"}}},
      // Both give it.
      {"extent.capacity",
       {almost_a_page, length_1(4),
        "4: the new tokens are counted twice, or rounded up to whole pages"},
       {{decode_line, length_1(10), "10: the new tokens are counted twice"}}},
      {"encoder.of_request_0",
       {encoded_decode, put("encoder_lens_int32", 1, {9}),
        "9: request 0's encoder length in place of its own"},
       {{encoded_decode, put("encoder_lens_int32", 1, {8}), "8, expected"},
        {encoded_decode, put("cache_seqlens_int32", 1, {9}), "9, expected"}}},
      {"extent.of_request",
       {local_extend, put("local.seqused_k", 0, {1}), "1: what row 1 should have"},
       {{local_extend, put("local.seqused_k", 2, {0}), "0, expected"},
        // Row 2 is padding.
        {triton_replay, put("num_kv_splits", 1, {1}), "1, expected"}}},
  };
}

std::vector<Cause> causes_of_counts() {
  return {
      {"window.shorter",
       {slots_of_a_window, offsets("decode[0].kv_indptr", {0, 4, 7}),
        "7 after 4: as many keys as the window, without the query's own"},
       {{slots_of_a_window, offsets("decode[0].kv_indptr", {0, 4, 6}), "6 after 4, expected"},
        // The list of all keys.
        {slots_of_a_window, offsets("decode[1].kv_indptr", {0, 3, 12}), "3 after 0, expected"}}},
      {"window.ignored",
       {slots_of_a_window, offsets("decode[0].kv_indptr", {0, 4, 13}),
        "13 after 4: as without a window"},
       {{slots_of_a_window, offsets("decode[0].kv_indptr", {0, 4, 12}), "12 after 4, expected"}}},
      {"extent.new_listed",
       {ragged_extend, offsets("paged[1].kv_indptr", {0, 5, 14}),
        "5 after 0: the new tokens, too, which the step itself adds"},
       {{ragged_extend, offsets("paged[1].kv_indptr", {0, 4, 12}), "4 after 0, expected"},
        {paged_extend, offsets("paged[1].kv_indptr", {0, 6, 15}), "6 after 0, expected"}}},
      {"extent.new_in_window",
       {ragged_extend, offsets("paged[0].kv_indptr", {0, 3, 7}),
        "7 after 3: as many as its queries see together, the new tokens among them"},
       {{ragged_extend, offsets("paged[0].kv_indptr", {0, 3, 8}), "8 after 3, expected"}}},
      {"queries.of_width",
       {short_draft_extend, put("paged[0].qo_indptr", 1, {2, 4}),
        "2 after 0: the graph's width; so they stand at the end of its keys, too early"},
       {{short_draft_extend, put("paged[0].qo_indptr", 1, {2, 3}), "2 after 0, expected"}}},
      {"window.ignored",
       {paged_extend, put("paged[0].window_left", 0, {-1}), "-1: as without a window"},
       {{paged_extend, put("paged[0].window_left", 0, {2}), "2: not the window"}}},
  };
}

std::vector<Cause> causes_of_columns() {
  const char* const kStale = ": a page of no request in this step: stale, or another's";
  return {
      {"memory.unwritten",
       {decode_line, row_1({-7777}), "-7777: never written"},
       {{decode_line, row_1({-1}), "-1: no page of any pool"}}},
      {"table.no_page",
       {window_decode, row_1({50}), "50: no page of any pool"},
       {{window_decode, row_1({39}), "39" + std::string(kStale)},
        {decode_line, row_1({40}), "40: a slot, of token 4 of request 1, where"}}},
      {"table.other_column",
       {decode_line, row_1({10}), "10: what belongs to column 1"},
       {{decode_line, row_1({9}), "9" + std::string(kStale)}}},
      {"table.of_request",
       {decode_line, row_1({2}), "2: what row 0 should have there"},
       // Row 0 has no such column.
       {{decode_line, put("page_table", 5, {0}), "0: a page of padding"},
        {decode_line, put("page_table", 5, {77}), "77: of no request in this step"}}},
      {"table.one_foreign",
       {decode_line, row_1({5}), "5: there lies token 4 of request 0"},
       {{window_decode, window_1(5), "5" + std::string(kStale)},
        {decode_line, row_1({7}), "7" + std::string(kStale)}}},
      {"table.padding",
       {decode_line, row_1({0}), "0: a page of padding"},
       {{decode_line, row_1({1}), "1: what belongs to column 2"}}},
      {"table.left_over",
       {decode_line, row_1({9}), "9" + std::string(kStale)},
       {{decode_line, row_1({1000}), "1000: of no request in this step"}}},
      {"table.of_nobody",
       {decode_line, row_1({1000}), "1000: of no request in this step"},
       {{decode_line, row_1({9}), "9" + std::string(kStale)},
        {decode_line, row_1({5}), "5: there lies token 4 of request 0"}}},
      {"table.behind_length",
       {decode_line,
        [](TraceLine& line) {
          length_1(8)(line);
          put("page_table", 5, {9})(line);
        },
        "9: behind the recorded length 8"},
       {{decode_line, put("page_table", 5, {9}), "9" + std::string(kStale)}}},
      {"table.untranslated",
       {window_decode, window_1(3), "3: a page of the full pool, not translated"},
       {{window_one_page_later, put("swa_page_table", 4, {4}), "4: what belongs to column 0"},
        {window_decode, row_1({9}), "9" + std::string(kStale)}}},
      // All are, though 4 is a page of the window's as well.
      {"table.untranslated",
       {window_one_page_later, put("swa_page_table", 3, {3, 4, 5}),
        "3: a page of the full pool, not translated"},
       {{window_one_page_later, put("swa_page_table", 3, {4, 4, 5}),
         "4: what belongs to column 0"}}},
      {"table.id_translated",
       {window_decode, window_1(103), "103: a page id translated as if it were a slot"},
       {{window_decode, window_1(106), "106: of no request in this step"}}},
  };
}

std::vector<Cause> causes_of_units() {
  return {
      {"table.other_unit",
       {decode_line, row_1({12, 40, 4}), "12: a slot where an id of a page belongs"},
       {{decode_line, row_1({12, 77, 1}), "12: of no request in this step"},
        {page_12, row_1({12}), "12: what row 0 should have there"}}},
      {"table.other_unit",
       {decode_line, row_1({12, 13, 14}), "12: a slot where an id of a page belongs"},
       {{decode_line, row_1({12, 14, 13}), "12: of no request in this step"}}},
      {"table.other_unit",
       {decode_line, row_1({12}), "12: a slot where an id of a page belongs"},
       {{decode_line, row_1({13, 77}), "13: of no request in this step"}}},
      {"table.other_unit",
       {decode_line, row_1({41}), "41: a slot, of token 5 of request 1, where an id of a page"},
       // Page 9 may be an older one; slot 20 is another request's.
       {{decode_line, put("page_table", 0, {9}), "9: a page of no request in this step: stale"},
        {decode_line, row_1({20}), "20: of no request in this step"}}},
      {"table.other_unit",
       {planned_decode, slot_7(3), "3: an id of a page where a slot belongs"},
       {{planned_decode, put("decode[0].kv_indices", 9, {10}),
         "10: there lies token 2 of request 0"},
        {planned_decode, put("decode[0].kv_indices", 7, {3, 77}), "3: a slot of padding"}}},
  };
}

std::vector<Cause> causes_of_lists_and_text() {
  return {
      {"table.shifted",
       {planned_decode, slot_7(40), "40: its request's token 4 where token 2 belongs, 2 too late"},
       {{planned_decode, slot_7(10), "10: what row 0 should have there"},
        {planned_decode, slot_7(9), "9: there lies token 1 of request 0"}}},
      {"table.untranslated",
       {slots_of_a_window, put("decode[0].kv_indices", 5, {42}),
        "42: a slot of the full pool, not translated"},
       {{slots_of_a_window, put("decode[0].kv_indices", 5, {41}),
         "41: a slot of no request in this step: stale"}}},
      {"encoder.of_request_0",
       {short_text, put("page_table", 5, {5, 6, 7}),
        "5: request 0's encoder length in place of its own"},
       {{short_text, put("page_table", 5, {5}), "5: a slot of no request in this step: stale"}}},
      {"encoder.not_skipped",
       {short_text, put("page_table", 5, {12, 13, 14}), "12: the encoder's tokens are not skipped"},
       {{short_text, put("page_table", 5, {12}),
         "12: there lies the encoder's token 0 of request 1"}}},
  };
}

std::vector<Cause> all_causes() {
  std::vector<Cause> all;
  for (const auto causes : {causes_of_lengths, causes_of_counts, causes_of_columns, causes_of_units,
                            causes_of_lists_and_text})
    std::ranges::move(causes(), std::back_inserter(all));
  return all;
}

/// Whether a finding of the state names the cause.
bool is_named(const State& state, HintId id) {
  TraceLine line = state.line();
  EXPECT_EQ(found(line), "ok") << state.words;
  state.change(line);
  EXPECT_NE(found(line).find(" is " + state.words), std::string::npos)
      << found(line) << "\nnot " << state.words;
  const TraceVerdict verdict = judge_trace(line);
  return std::ranges::any_of(verdict.findings.findings(), [&](const Finding& f) {
    return std::ranges::count(f.refs, id.hint().id) > 0;
  });
}

TEST(TraceCauses, AreNamedWhereTheyAreTrueAndNotBesideIt) {
  for (const Cause& cause : all_causes()) {
    EXPECT_TRUE(is_named(cause.truly, cause.id)) << cause.id.hint().id;
    EXPECT_FALSE(cause.beside.empty()) << cause.id.hint().id;
    for (const State& state : cause.beside)
      EXPECT_FALSE(is_named(state, cause.id)) << cause.id.hint().id << ": " << state.words;
  }
}

TEST(TraceCauses, AreAllHintsOfTheList) {
  const std::vector<Cause> causes = all_causes();
  for (const Hint& hint : kHints) {
    EXPECT_TRUE(std::ranges::any_of(causes, [&](const Cause& cause) {
      return cause.id.hint().id == hint.id;
    })) << hint.id;
    EXPECT_EQ(std::ranges::count(kHints, hint.id, &Hint::id), 1) << hint.id;
    EXPECT_EQ(find_law(hint.id), nullptr) << hint.id << ": explain would say the law";
  }
}

TEST(TraceCauses, AUnitIsALawOfItsOwnOnlyWhereNothingElseGivesTheColumn) {
  for (const Cause& cause : causes_of_units()) {
    TraceLine line = cause.truly.line();
    cause.truly.change(line);
    EXPECT_EQ(laws(line)[0].substr(0, 10), "table.unit") << cause.truly.words;
    for (const State& state : cause.beside) {
      line = state.line();
      state.change(line);
      EXPECT_EQ(laws(line)[0].substr(0, 10), "table.slot") << state.words;
    }
  }
}

TEST(TraceCauses, NothingIsExpectedOfASlotThatWasNeverAllocated) {
  TraceLine line = decode_line();
  line.config.page_size = 1;
  line.expect["page_table"] = table_of(9, {8, 9, 10, 11, 20, 0, 0, 0, 0,  //
                                           12, 13, 14, 15, 40, 41, 42, 43, 4});
  EXPECT_EQ(found(line), "ok");
  line.input["req_to_token"].data[25] = 0;  // token 1 of request 1
  EXPECT_EQ(laws(line), Laws{"pool.slot req_to_token 2 1"});
  line.expect["page_table"].data[11] = 99;
  EXPECT_EQ(laws(line), (Laws{"pool.slot req_to_token 2 1", "table.slot page_table 1 2"}));
  line = planned_decode();
  line.config.page_size = 1;
  line.input["req_to_token"].data[25] = 0;
  EXPECT_EQ(laws(line), Laws{"pool.slot req_to_token 2 1"});
}

}  // namespace
}  // namespace shadowgraph::trace_causes_test
