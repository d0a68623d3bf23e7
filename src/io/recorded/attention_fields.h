// What the readers of attention cases share: parameters, rows of queries and answers.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "io/recorded/case_tensors.h"

namespace shadowgraph {

/// Heads, sizes, sm_scale. In shapes: "heads", "kv_heads", "dim" (of keys), "dim_v".
AttentionParams read_heads(CaseReader& reader);
/// The same, and "causal", "window_left", "window_right", "softcap", of which a case may lack those
/// that are named optional.
AttentionParams read_params(CaseReader& reader,
                            std::initializer_list<std::string_view> optional = {});

/// Terms of scores, masks and scales that a case may have, each a member or tensor named as in
/// AttentionTerms, and k_scale and v_scale as tensors. kv_lens: keys of each request.
void read_terms(CaseReader& reader, std::span<const int32_t> kv_lens, AttentionParams* p);

/// A finding where a case in parts, of that kind, has terms.
void refuse_terms(CaseReader& reader, const AttentionParams& p, const std::string& kind);

/// Offsets of packed rows: the tensor `name`, or `padded` (qo_indptr_padded), between whose
/// requests there may be rows of nobody; *seqused then has the lengths. bind_packed: before tensors
/// are read, `axis` ("rows", "keys") becomes as many rows as there are.
void bind_packed(CaseReader& reader, std::string_view axis, std::string_view padded,
                 std::span<const int32_t> lens);
std::span<const int32_t> read_offsets(CaseReader& reader, std::string_view name,
                                      std::string_view padded, std::span<const int32_t> lens,
                                      std::span<const int32_t>* seqused);

/// "dtype", of queries: f16, bf16 or f32.
DType read_query_dtype(CaseReader& reader);
/// "kv_dtype", of keys and values; as queries' where a case has none.
DType read_kv_dtype(CaseReader& reader, DType of_queries);
/// A plane or packed keys of that type; e4m3 also where a file has it as bytes.
ConstTensorView read_keys(CaseReader& reader, std::string_view name, DType kv_dtype,
                          std::string_view shape);

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
/// The tensors `out` (f16, bf16 or f32) and, where the case has it, `lse` (f32).
void read_answer(CaseReader& reader, const RowAxes& axes, const std::string& out,
                 const std::string& lse, Recorded* answer);
/// out_ref and lse_ref, where the case has them.
void read_references(CaseReader& reader, const RowAxes& axes, RecordedCase* c);

/// Promises that any attention case may make of its kernel: "empty_rows", the mark in rows that see
/// no key; "rows_of", "rows_from", "rows_count", whose bits its rows have (find_same_rows() looks
/// the case up).
void read_promises(CaseReader& reader, RecordedCase* c);

/// "lse_sink", of the kernel's LSE where there are sinks; the case's own family decides without it.
void read_lse_sink(CaseReader& reader, RecordedCase* c);

/// f32 [heads] of that name, more logits of the softmax.
inline std::span<const float> read_sinks(CaseReader& reader, std::string_view name) {
  return reader.floats(name, "heads");
}

/// Is one part not enough for some request? "splits_per_request", which num_splits sums up.
bool read_splits(CaseReader& reader);

}  // namespace shadowgraph
