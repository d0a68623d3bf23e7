// Lines with plans of FlashInfer's wrappers, and with Triton's lists, for tests to change.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/trace_lines.h"

namespace shadowgraph {

inline RecordedField vector_of(std::vector<int64_t> data, const char* dtype = "int32") {
  const auto size = static_cast<int64_t>(data.size());
  return {dtype, {size}, size, std::move(data)};
}
inline RecordedField scalar_of(int64_t value) { return {"pyint", {}, 1, {value}}; }

/// Whether the first finding stands on it.
inline bool has_ref(const TraceLine& line, const std::string& ref) {
  const TraceVerdict v = judge_trace(line);
  return std::ranges::count(v.findings.findings()[0].refs, ref) == 1;
}

/// The decode of trace_lines.h as FlashInfer plans it.
inline TraceLine planned_decode() {
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
inline TraceLine planned_replay() {
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
inline TraceLine ragged_extend() {
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
inline TraceLine paged_extend() {
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
inline TraceLine planned_verify() {
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
inline TraceLine triton_replay() {
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

}  // namespace shadowgraph
