// What the readers of attention cases share: parameters, rows of queries and answers.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "io/recorded/case_tensors.h"

namespace shadowgraph {

/// Heads, sizes, sm_scale, and "causal", "window_left", "window_right", "softcap", of which a case
/// may lack those that are named optional. In shapes: "heads", "kv_heads", "dim" (of keys),
/// "dim_v".
AttentionParams read_params(CaseReader& reader,
                            std::initializer_list<std::string_view> optional = {});

/// "dtype", of queries: f16, bf16 or f32.
DType read_query_dtype(CaseReader& reader);

/// How a family stores rows of queries and of answers, as axes of the file; and their LSE.
struct RowAxes {
  std::string_view rows = "rows";  // of [rows, heads, ...]; "(batch q_len)": by request
  enum class Lse : uint8_t { kRowsHeads, kHeadsRows, kBatchHeadsRows } lse = Lse::kRowsHeads;
};
/// [rows, heads, last]; last: "dim" or "dim_v".
ConstTensorView read_rows(CaseReader& reader, const RowAxes& axes, std::string_view name,
                          DTypes dtypes, std::string_view last);
/// [rows, heads], whatever the order in the file.
ConstTensorView read_lse(CaseReader& reader, const RowAxes& axes, std::string_view name,
                         DTypes dtypes);
/// The tensors `out` and `lse`, of the case's type and in f32.
void read_answer(CaseReader& reader, const RowAxes& axes, const std::string& out,
                 const std::string& lse, const RecordedCase& c, Recorded* answer);
/// out_ref and lse_ref.
void read_references(CaseReader& reader, const RowAxes& axes, RecordedCase* c);

/// f32 [heads] of that name, more logits of the softmax.
inline std::span<const float> read_sinks(CaseReader& reader, std::string_view name) {
  return reader.floats(name, "heads");
}

/// Is one part not enough for some request? "splits_per_request", which num_splits sums up.
bool read_splits(CaseReader& reader);

}  // namespace shadowgraph
