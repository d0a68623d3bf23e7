// Lines that slips are made of: windows with a pool of their own, chunks, drafts, encoders.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "check/plan_lines.h"

namespace shadowgraph {

inline RecordedField table_of(int64_t width, std::vector<int64_t> data) {
  const auto rows = static_cast<int64_t>(data.size()) / width;
  return {"int32", {rows, width}, width, std::move(data)};
}

/// A second pool, in which slot s of the first 60 is s + 100.
inline void give_window_pool(TraceLine* line) {
  std::vector<int64_t> slots(160);
  for (size_t s = 0; s < 60; ++s) slots[s] = static_cast<int64_t>(s) + 100;
  line->input["full_to_swa"] = vector_of(std::move(slots), "int64");
  line->config.window = 3;
}

/// The decode in a window's pool, as tables.
inline TraceLine window_decode() {
  TraceLine line = decode_line();
  give_window_pool(&line);
  line.expect["swa_page_table"] = table_of(3, {27, 30, 77, 28, 35, 26});
  return line;
}

/// The same as lists.
inline TraceLine planned_window_decode() {
  TraceLine line = planned_decode();
  give_window_pool(&line);
  line.calls.push_back({"decode_wrappers[1]", "decode[1]", "plan"});
  for (const std::string argument : {"kv_indptr", "kv_indices", "kv_last_page_len"})
    line.expect["decode[1]." + argument] = line.expect["decode[0]." + argument];
  line.expect["decode[0].kv_indptr"] = vector_of({0, 4, 8});
  line.expect["decode[0].kv_indices"] = vector_of({109, 110, 111, 120, 141, 142, 143, 104});
  return line;
}

/// An extend by 2 and 1 tokens in chunks of 4: tokens 3 | 4 | 8.
inline TraceLine local_extend() {
  TraceLine line = decode_line();
  line.mode = "extend";
  line.config.chunk = 4;
  line.input["extend_seq_lens"] = vector_of({2, 1});
  line.expect.clear();
  line.expect["local.query_start_loc"] = vector_of({0, 1, 2, 3});
  line.expect["local.seqused_k"] = vector_of({4, 1, 1});
  line.expect["local.block_table"] = table_of(1, {2, 5, 1});
  return line;
}

/// The first of two steps of a draft, two branches each, behind 4 and 8 tokens.
inline TraceLine drafted_tree() {
  TraceLine line = decode_line();
  line.backend = "flashinfer";
  line.mode = "draft_decode";
  line.config.page_size = 1, line.config.num_steps = 2, line.config.topk = 2;
  line.input["seq_lens"] = vector_of({4, 8});
  line.input["req_to_token"] = table_of(12, {0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0,  //
                                             8,  9,  10, 11, 20, 21, 22, 23, 0, 0, 0, 0,  //
                                             12, 13, 14, 15, 40, 41, 42, 43, 4, 5, 6, 7});
  line.input["out_cache_loc"] = vector_of({20, 21, 22, 23, 4, 5, 6, 7}, "int64");
  line.calls = {{"decode_wrappers[0]", "decode[0]", "plan"}};
  line.expect.clear();
  line.expect["decode[0].kv_indptr"] = vector_of({0, 5, 10, 19, 28});
  line.expect["decode[0].kv_indices"] =
      vector_of({8,  9,  10, 11, 20, 8,  9,  10, 11, 22, 12, 13, 14, 15,
                 40, 41, 42, 43, 4,  12, 13, 14, 15, 40, 41, 42, 43, 6});
  line.expect["decode[0].kv_last_page_len"] = vector_of({1, 1, 1, 1});
  return line;
}

/// A decode of a model with an encoder: 7 and 2 of its tokens before 3 and 5 of text.
inline TraceLine encoded_decode() {
  TraceLine line = decode_line();
  line.mode = "cross_decode";
  line.config.page_size = 1;
  line.input["seq_lens"] = vector_of({3, 5});
  line.input["encoder_lens"] = vector_of({9, 2});
  line.expect.clear();
  line.expect["cache_seqlens_int32"] = vector_of({3, 5});
  line.expect["cu_seqlens_q"] = vector_of({0, 1, 2});
  line.input["req_to_token"] = table_of(12, {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,   //
                                             8,  9,  10, 11, 20, 21, 22, 23, 24, 25, 26, 27,  //
                                             12, 13, 14, 15, 40, 41, 42, 43, 4,  5,  6,  7});
  line.expect["page_table"] = table_of(5, {25, 26, 27, 0, 0, 14, 15, 40, 41, 42});
  line.expect["encoder_page_table"] =
      table_of(9, {8, 9, 10, 11, 20, 21, 22, 23, 24, 12, 13, 0, 0, 0, 0, 0, 0, 0});
  line.expect["encoder_lens_int32"] = vector_of({9, 2});
  return line;
}

}  // namespace shadowgraph
