// Every way in which a line of a trace goes wrong has its own words.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "check/slip_lines.h"

namespace shadowgraph::trace_slips_test {
namespace {

struct Change {
  const char* what;
  TraceLine (*line)();
  std::function<void(TraceLine&)> change;
  const char* found;
};

void expect_found(const std::vector<Change>& changes) {
  for (const Change& c : changes) {
    TraceLine line = c.line();
    EXPECT_EQ(found(line), "ok") << c.what;
    c.change(line);
    EXPECT_EQ(found(line), c.found) << c.what;
  }
}

RecordedField& at(TraceLine& line, const char* name) { return line.expect[name]; }

TEST(TraceSlips, LengthsOfVirtualRequests) {
  expect_found({
      {"never written", local_extend,
       [](TraceLine& l) { at(l, "local.seqused_k").data[0] = -7777; },
       "len.kv_extent: x: local.seqused_k[0] is -7777: never written, expected 4"},
      {"the next row's", local_extend, [](TraceLine& l) { at(l, "local.seqused_k").data[0] = 1; },
       "len.kv_extent: x: local.seqused_k[0] is 1: what row 1 should have, expected 4"},
      {"the row's before", local_extend, [](TraceLine& l) { at(l, "local.seqused_k").data[1] = 4; },
       "len.kv_extent: x: local.seqused_k[1] is 4: rounded up to whole pages, expected 1"},
      {"no row's", local_extend, [](TraceLine& l) { at(l, "local.seqused_k").data[1] = 3; },
       "len.kv_extent: x: local.seqused_k[1] is 3, expected 1"},
      {"the next row's page", local_extend,
       [](TraceLine& l) { at(l, "local.block_table").data[0] = 5; },
       "table.slot: x: local.block_table[0, 0] is 5: what row 1 should have there, expected page "
       "2, slot 8 of token 0"},
      {"nobody's page", local_extend, [](TraceLine& l) { at(l, "local.block_table").data[1] = 99; },
       "table.slot: x: local.block_table[1, 0] is 99: of no request in this step, expected page "
       "5, slot 20 of token 0"},
      {"a row too few", local_extend,
       [](TraceLine& l) {
         at(l, "local.block_table") = table_of(1, {2, 5});
       },
       "trace.shape: x: local.block_table is 2 rows long, expected 3"},
      {"queries of another row", local_extend,
       [](TraceLine& l) {
         at(l, "local.query_start_loc").data = {0, 2, 2, 3};
       },
       "len.q_extent: x: local.query_start_loc[1] is 2 after 0, expected 1 (1 more)"},
  });
}

TEST(TraceSlips, ColumnsOfAWindowsPool) {
  const auto put = [](int64_t got) {
    return [got](TraceLine& l) { at(l, "swa_page_table").data[3] = got; };
  };
  expect_found({
      {"not translated", window_decode, put(3),
       "table.slot: x: swa_page_table[1, 0] is 3: a page of the full pool, not translated, "
       "expected page 28, slot 112 of token 0"},
      {"a translated page id", window_decode, put(103),
       "table.slot: x: swa_page_table[1, 0] is 103: a page id translated as if it were a slot, "
       "expected page 28, slot 112 of token 0"},
      {"a slot", window_decode, put(112),
       "table.unit: x: swa_page_table[1, 0] is 112: a slot where an id of a page belongs, expected "
       "page 28, slot 112 of token 0"},
      {"nobody's", window_decode, put(29),
       "table.slot: x: swa_page_table[1, 0] is 29: a page of no request in this step: stale, or "
       "another's, expected page 28, slot 112 of token 0"},
      {"of the other row", window_decode, put(27),
       "table.slot: x: swa_page_table[1, 0] is 27: what row 0 should have there, expected page 28, "
       "slot 112 of token 0"},
      {"the full pool's table", window_decode,
       [](TraceLine& l) { at(l, "page_table").data[3] = 9; },
       "table.slot: x: page_table[1, 0] is 9: a page of no request in this step: stale, or "
       "another's, expected page 3, slot 12 of token 0"},
  });
}

TEST(TraceSlips, SlotsOfAWindowsPool) {
  const auto put = [](int64_t got) {
    return [got](TraceLine& l) { at(l, "decode[0].kv_indices").data[5] = got; };
  };
  expect_found({
      {"an untranslated slot", planned_window_decode, put(42),
       "table.slot: x: decode[0].kv_indices[1, 1] is 42: a slot of the full pool, not translated, "
       "expected slot 142"},
      {"a token too late", planned_window_decode, put(143),
       "table.slot: x: decode[0].kv_indices[1, 1] is 143: its request's token 7 where token 6 "
       "belongs, 1 too late, expected slot 142"},
      {"none", planned_window_decode, put(0),
       "table.slot: x: decode[0].kv_indices[1, 1] is 0: a slot of padding, expected slot 142"},
      {"nobody's slot", planned_window_decode, put(150),
       "table.slot: x: decode[0].kv_indices[1, 1] is 150: a slot of no request in this step: "
       "stale, or another's, expected slot 142"},
      {"one key too few", planned_window_decode,
       [](TraceLine& l) {
         at(l, "decode[0].kv_indptr").data = {0, 4, 7};
       },
       "len.q_extent: x: decode[0].kv_indptr[2] is 7 after 4: as many keys as the window, without "
       "the "
       "query's own, expected 8 (4 more)"},
      {"keys before the window", planned_window_decode,
       [](TraceLine& l) {
         at(l, "decode[0].kv_indptr").data = {0, 4, 13};
         at(l, "decode[0].kv_indices") =
             vector_of({109, 110, 111, 120, 112, 113, 114, 115, 140, 141, 142, 143, 104});
       },
       "len.q_extent: x: decode[0].kv_indptr[2] is 13 after 4: as without a window, "
       "expected 8 (4 more)"},
      {"another count", planned_window_decode,
       [](TraceLine& l) {
         at(l, "decode[0].kv_indptr").data = {0, 4, 6};
       },
       "len.q_extent: x: decode[0].kv_indptr[2] is 6 after 4, expected 8 (4 more)"},
  });
}

TEST(TraceSlips, SlotsOfADraft) {
  const auto put = [](int64_t got) {
    return [got](TraceLine& l) { at(l, "decode[0].kv_indices").data[9] = got; };
  };
  expect_found({
      {"the branch's before", drafted_tree, put(20),
       "table.slot: x: decode[0].kv_indices[1, 4] is 20: what row 0 should have there, expected "
       "slot 22"},
      {"another request's", drafted_tree, put(4),
       "table.slot: x: decode[0].kv_indices[1, 4] is 4: there lies token 8 of request 1, expected "
       "slot 22"},
      {"no branch's", drafted_tree, put(50),
       "table.slot: x: decode[0].kv_indices[1, 4] is 50: of no request in this step, expected slot "
       "22"},
      {"its drafts are missing", drafted_tree,
       [](TraceLine& l) {
         at(l, "decode[0].kv_indptr").data = {0, 4, 8, 16, 24};
         at(l, "decode[0].kv_indices") =
             vector_of({8,  9,  10, 11, 8,  9,  10, 11, 12, 13, 14, 15,
                        40, 41, 42, 43, 12, 13, 14, 15, 40, 41, 42, 43});
       },
       "len.q_extent: x: decode[0].kv_indptr[1] is 4 after 0: the tokens of this draft, its own "
       "included, are missing, expected 5 (5 more)"},
  });
}

TEST(TraceSlips, RowsBehindAnEncoder) {
  const auto put = [](size_t i, int64_t got) {
    return [i, got](TraceLine& l) { at(l, "page_table").data[i] = got; };
  };
  expect_found({
      {"behind request 0's encoder", encoded_decode, put(5, 5),
       "table.slot: x: page_table[1, 0] is 5: a slot of no request in this step: stale, or "
       "another's, expected slot 14 of token 0"},
      {"behind the width of the table", encoded_decode, put(8, 99),
       "table.slot: x: page_table[1, 3] is 99: of no request in this step, expected slot 41 of "
       "token 3"},
      {"an encoder's token", encoded_decode, put(5, 12),
       "table.slot: x: page_table[1, 0] is 12: there lies the encoder's token 0 of request 1, "
       "expected slot 14 of token 0"},
      {"another's encoder", encoded_decode, put(5, 24),
       "table.slot: x: page_table[1, 0] is 24: there lies the encoder's token 8 of request 0, "
       "expected slot 14 of token 0"},
      {"another's text", encoded_decode, put(6, 26),
       "table.slot: x: page_table[1, 1] is 26: what row 0 should have there, expected slot 15 of "
       "token 1"},
      {"request 0's length", encoded_decode,
       [](TraceLine& l) { at(l, "encoder_lens_int32").data[1] = 9; },
       "len.kv_extent: x: encoder_lens_int32[1] is 9: request 0's encoder length in place of "
       "its own, expected 2"},
  });
}

/// In a bucket of three rows, with slots to store in.
TraceLine window_replay() {
  TraceLine line = planned_replay();
  give_window_pool(&line);
  line.backend = "triton";
  line.calls.clear();
  line.input["out_cache_loc"] = vector_of({20, 4, 0}, "int64");
  line.expect.clear();
  line.expect["swa_out_cache_loc"] = vector_of({120, 104, 0}, "int64");
  return line;
}

TraceLine window_extend() {
  TraceLine line = decode_line();
  line.backend = "trtllm_mha";
  line.mode = "extend";
  line.config.page_size = 16;
  line.input["extend_seq_lens"] = vector_of({2, 1});
  line.input["req_to_token"] = table_of(12, {0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0,  //
                                             16, 17, 18, 19, 20, 0,  0,  0,  0,  0, 0, 0,  //
                                             32, 33, 34, 35, 36, 37, 38, 39, 40, 0, 0, 0});
  give_window_pool(&line);
  line.input["out_cache_loc"] = vector_of({19, 20, 40}, "int64");
  line.expect.erase("page_table");
  line.expect["cu_seqlens_q"] = vector_of({0, 2, 3});
  line.expect["swa_out_cache_loc"] = vector_of({119, 120, 140}, "int64");
  return line;
}

TEST(TraceSlips, SlotsToStoreIn) {
  const auto put = [](size_t i, int64_t got) {
    return [i, got](TraceLine& l) { at(l, "swa_out_cache_loc").data[i] = got; };
  };
  expect_found({
      {"a replay stores elsewhere", window_replay, put(1, 4),
       "slot.write: x: swa_out_cache_loc[1] is 4, expected 104"},
      {"padding stores in a slot", window_replay, put(2, 120),
       "slot.write: x: swa_out_cache_loc[2] is 120, expected 0 for padding"},
      {"an extend stores elsewhere", window_extend, put(0, 120),
       "slot.write: x: swa_out_cache_loc[0] is 120, expected 119"},
  });
  TraceLine line = window_extend();
  line.input.erase("out_cache_loc");
  EXPECT_EQ(left_out(line),
            Laws{"swa_out_cache_loc: the line does not say where its tokens are stored"});
}

TEST(TraceSlips, WindowsOfPlans) {
  const auto put = [](int64_t got) {
    return [got](TraceLine& l) { l.expect["paged[0].window_left"] = scalar_of(got); };
  };
  expect_found({
      {"another window", paged_extend, put(2),
       "mask.window: x: paged[0].window_left is 2: not the window, expected 3"},
      {"no window", paged_extend, put(-1),
       "mask.window: x: paged[0].window_left is -1: as without a window, expected 3"},
      {"a window without need", ragged_extend, put(2),
       "mask.window: x: paged[0].window_left is 2: not the window, expected -1, or 3"},
  });
  TraceLine line = ragged_extend();
  for (const int64_t wide : {-1, 3, 8}) {
    put(wide)(line);
    EXPECT_EQ(found(line), "ok") << wide;
  }
  line = planned_verify();
  put(2)(line);
  EXPECT_EQ(found(line), "mask.window: x: paged[0].window_left is 2: not the window, expected -1");
}

TEST(TraceSlips, CopiesOfOffsets) {
  const auto replay = [] {
    TraceLine line = planned_replay();
    line.expect["decode[0].global_override_indptr_cpu"] = line.expect["decode[0].kv_indptr"];
    return line;
  };
  expect_found({{"padding is another's", replay,
                 [](TraceLine& l) { at(l, "decode[0].global_override_indptr_cpu").data[3] = 14; },
                 "len.q_extent: x: decode[0].global_override_indptr_cpu[3] is 14, expected 15, as "
                 "the other copy of these offsets"}});
  // If the arrays are longer, the rest is not known.
  TraceLine line = replay();
  for (const char* name : {"decode[0].kv_indptr", "decode[0].global_override_indptr_cpu"})
    line.expect[name].shape[0] = 9;
  line.expect["decode[0].global_override_indptr_cpu"].data[3] = 14;
  EXPECT_EQ(found(line), "ok");
}

TEST(TraceSlips, LengthsBesideOffsets) {
  const auto extend = [] {
    TraceLine line = ragged_extend();
    line.expect["paged[0].kv_lens_host"] = vector_of({3, 3});
    return line;
  };
  const auto put = [](TraceLine& l) { at(l, "paged[0].kv_lens_host").data[1] = 4; };
  expect_found(
      {{"of another row", extend, put,
        "plan.argument: x: paged[0].kv_lens_host[1] is 4, expected 3, as the offsets step"}});
  TraceLine line = extend();
  line.calls.clear();
  line.expect.erase("paged[0].kv_indptr");
  EXPECT_EQ(found(line), "ok");
  put(line);
  EXPECT_EQ(laws(line), Laws{"plan.argument paged[0].kv_lens_host 1"}) << "by the twin's offsets";
}

TEST(TraceSlips, Masks) {
  const auto mask = [](TraceLine& l) -> RecordedField& { return at(l, "paged[0].custom_mask"); };
  expect_found({
      {"of one pair", ragged_extend, [&](TraceLine& l) { mask(l) = vector_of({1}, "bool"); },
       "mask.size: x: paged[0].custom_mask is 1, expected 9 pairs of the queries and keys of its "
       "lists"},
      {"of a pair more", ragged_extend,
       [&](TraceLine& l) {
         mask(l) = vector_of({1, 1, 1, 0, 1, 1, 1, 1, 1, 1}, "bool");
       },
       "mask.size: x: paged[0].custom_mask is 10, expected 9 pairs of the queries and keys of its "
       "lists"},
      {"of integers", ragged_extend, [&](TraceLine& l) { mask(l).dtype = "int32"; },
       "trace.dtype: x: paged[0].custom_mask is int32, expected bool or uint8"},
      {"a query sees less", ragged_extend, [&](TraceLine& l) { mask(l).data[8] = 0; },
       "mask.bit: x: paged[0].custom_mask[1, 2] is 0, expected 1: query 0 sees key 2 of its list"},
      {"a query sees more", ragged_extend, [&](TraceLine& l) { mask(l).data[3] = 1; },
       "mask.bit: x: paged[0].custom_mask[0, 3] is 1, expected 0: query 1 does not see key 0 of "
       "its list"},
      {"offsets before the first", ragged_extend,
       [&](TraceLine& l) {
         at(l, "paged[0].kv_indptr").data = {-1, 3, 6};
       },
       "len.indptr_first: x: paged[0].kv_indptr[0] is -1, expected 0"},
      {"offsets that fall", ragged_extend,
       [&](TraceLine& l) {
         at(l, "paged[0].kv_indptr").data = {0, 7, 6};
       },
       "table.capacity: x: paged[0].kv_indices is 6 elements long: the kernel reads on behind the "
       "last, expected at least 7, where the offsets end row 0\nlen.q_extent: x: "
       "paged[0].kv_indptr[1] is 7 after 0, expected 3 (3 more)"},
      {"offsets of 64 bits", ragged_extend,
       [&](TraceLine& l) {
         at(l, "paged[0].kv_indptr").data = {0, int64_t{1} << 40, 6};
       },
       "table.capacity: x: paged[0].kv_indices is 6 elements long: the kernel reads on behind the "
       "last, expected at least 1099511627776, where the offsets end row 0\nlen.q_extent: x: "
       "paged[0].kv_indptr[1] is 1099511627776 after "
       "0, expected 3 (3 more)"},
  });
  TraceLine line = ragged_extend();
  mask(line).cols = 5, mask(line).data.resize(5);
  EXPECT_EQ(left_out(line), Laws{"paged[0].custom_mask: live pairs are not stored"});
}

TEST(TraceSlips, WhatIsNotStoredOfATableIsNotJudged) {
  TraceLine line = decode_line();
  RecordedField& table = line.expect["page_table"];
  table.cols = 2, table.data = {2, 5, 3, 10};
  EXPECT_EQ(left_out(line), Laws{"page_table: live columns are not stored"});
  table.data[2] = 99;
  EXPECT_EQ(laws(line), Laws{"table.slot page_table 1 0"});
}

TEST(TraceSlips, PaddingOfAPoolOfKnownSize) {
  const auto lists = [] {
    TraceLine line = planned_window_decode();
    const TraceLine replay = planned_replay();
    line.phase = "replay";
    for (const char* key : {"raw_bs", "seq_lens", "req_pool_indices"})
      line.input[key] = replay.input.at(key);
    line.calls[0].bucket = line.calls[1].bucket = 3;
    line.expect["decode[0].kv_indptr"].data = {0, 4, 8, 9};
    line.expect["decode[0].kv_indices"].data.push_back(0);
    line.expect["decode[1].kv_indptr"].data = {0, 5, 14, 15};
    line.expect["decode[1].kv_indices"].data[14] = 0;
    for (const char* name : {"decode[0].kv_indptr", "decode[0].kv_indices", "decode[1].kv_indptr"})
      ++line.expect[name].shape[0], ++line.expect[name].cols;
    for (const char* name : {"decode[0].kv_last_page_len", "decode[1].kv_last_page_len"})
      line.expect[name] = vector_of({1, 1, 1});
    return line;
  };
  const auto put = [](int64_t got) {
    return [got](TraceLine& l) { at(l, "decode[0].kv_indices").data[8] = got; };
  };
  expect_found({{"behind the pool", lists, put(159),
                 "table.page_id: x: decode[0].kv_indices[2, 0] is 159; full_to_swa has 160 "
                 "entries, expected a slot of the pool "
                 "in padding, too"},
                {"before the pool", lists, put(-1),
                 "table.page_id: x: decode[0].kv_indices[2, 0] is -1, expected a slot of the pool "
                 "in padding, too"}});
  TraceLine line = lists();
  put(158)(line);
  EXPECT_EQ(found(line), "ok");
}

TEST(TraceSlips, PlansOfAStep) {
  expect_found({
      {"planned as a graph's", planned_decode, [](TraceLine& l) { l.calls[0].bucket = 3; },
       "plan.missing: x: decode[0].wrapper is decode_wrappers[0], expected the wrapper of eager "
       "steps"},
      {"planned as an eager step's", planned_replay, [](TraceLine& l) { l.calls[0].bucket = 0; },
       "plan.missing: x: decode[0].wrapper is decode_cuda_graph_metadata[3][0], expected the "
       "wrapper of graphs of 3 rows"},
      {"not planned", planned_decode,
       [](TraceLine& l) {
         l.calls.clear(), l.no_calls = true;
         l.expect.erase("decode[0].num_qo_heads"), l.expect.erase("decode[0].num_kv_heads");
       },
       "plan.missing: x: decode[0] is not planned, expected planned"},
  });
  TraceLine line = planned_decode();
  line.calls.push_back({"decode_wrappers[0]", "", "plan"});
  line.calls.push_back({"prefill_wrappers[0]", "", "plan"});
  line.calls[0].kind = "plans";
  EXPECT_EQ(left_out(line),
            (Laws{"decode[0].call: not known: plans; did you mean plan?",
                  "decode_wrappers[0]: planned again", "prefill_wrappers[0]: not known"}));
}

TEST(TraceSlips, AStepWithoutRequestsPlansNothing) {
  TraceLine line = planned_decode();
  line.mode = "idle";
  line.calls.clear(), line.no_calls = true;
  line.input["seq_lens"] = line.input["req_pool_indices"] = vector_of({});
  line.expect.clear();
  line.expect["decode[0].kv_indptr"] = vector_of({0});
  EXPECT_EQ(found(line), "ok");
  line.expect["decode[0].kv_indptr"] = vector_of({});
  EXPECT_EQ(laws(line), Laws{"trace.shape decode[0].kv_indptr"});
}

}  // namespace
}  // namespace shadowgraph::trace_slips_test
