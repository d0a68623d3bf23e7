#include "io/recorded/attention_fields.h"

#include <algorithm>
#include <numeric>

namespace shadowgraph {

AttentionParams read_params(CaseReader& reader, std::initializer_list<std::string_view> optional) {
  const auto has = [&](std::string_view field) {
    return reader.has(field) || std::ranges::find(optional, field) == optional.end();
  };
  AttentionParams p;
  p.num_qo_heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  const bool latent = reader.has("head_dim_qk") || reader.has("head_dim_v");
  // Every head reads the one latent.
  const bool says_kv_heads = !reader.has("head_dim_ckv");
  p.num_kv_heads =
      says_kv_heads ? reader.integer("num_kv_heads", 1, latent ? 1 : kMaxVectorTokens) : 1;
  if (reader.has("head_dim_ckv")) {
    p.head_dim_vo = reader.dim("head_dim_ckv");
    p.head_dim_qk = p.head_dim_vo + reader.dim("head_dim_kpe");
  } else if (latent) {
    p.head_dim_qk = reader.integer("head_dim_qk", 1, kMaxVectorTokens);
    p.head_dim_vo = reader.integer("head_dim_v", 1, kMaxVectorTokens);
  } else {
    p.head_dim_qk = p.head_dim_vo = reader.integer("head_dim", 1, kMaxVectorTokens);
  }
  p.sm_scale = reader.positive("sm_scale");
  if (has("causal")) p.causal = reader.flag("causal");
  if (has("window_left")) p.window_left = reader.integer("window_left", -1, INT32_MAX);
  if (has("window_right")) p.window_right = reader.integer("window_right", -1, INT32_MAX);
  if (has("softcap")) p.logits_soft_cap = reader.not_negative("softcap");
  reader.bind("heads", p.num_qo_heads), reader.bind("kv_heads", p.num_kv_heads);
  reader.bind("dim", p.head_dim_qk), reader.bind("dim_v", p.head_dim_vo);
  return p;
}

DType read_query_dtype(CaseReader& reader) {
  const DType dtype = reader.dtype("dtype");
  if (is_fp8(dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  return dtype;
}

ConstTensorView read_rows(CaseReader& reader, const RowAxes& axes, std::string_view name,
                          DTypes dtypes, std::string_view last) {
  return reader.tensor(name, dtypes, std::string(axes.rows) + " heads " + std::string(last));
}

ConstTensorView read_lse(CaseReader& reader, const RowAxes& axes, std::string_view name,
                         DTypes dtypes) {
  switch (axes.lse) {
    case RowAxes::Lse::kRowsHeads: break;
    case RowAxes::Lse::kHeadsRows: return swap_leading(reader.tensor(name, dtypes, "heads rows"));
    case RowAxes::Lse::kBatchHeadsRows:
      return rows_before_heads(reader, reader.tensor(name, dtypes, "batch heads q_len"));
  }
  return reader.tensor(name, dtypes, "rows heads");
}

void read_answer(CaseReader& reader, const RowAxes& axes, const std::string& out,
                 const std::string& lse, const RecordedCase& c, Recorded* answer) {
  answer->out = read_rows(reader, axes, out, {c.dtype}, "dim_v");
  answer->lse = read_lse(reader, axes, lse, {DType::kF32});
}

void read_references(CaseReader& reader, const RowAxes& axes, RecordedCase* c) {
  c->reference.out = read_rows(reader, axes, "out_ref", {DType::kF32}, "dim_v");
  c->reference.lse = read_lse(reader, axes, "lse_ref", {DType::kF64});
}

bool read_splits(CaseReader& reader) {
  const std::vector<int32_t> splits =
      reader.lengths("splits_per_request", static_cast<int32_t>(reader.size("batch")));
  reader.indices("num_splits", indptr_of(splits));
  return std::ranges::any_of(splits, [](int32_t n) { return n > 1; });
}

}  // namespace shadowgraph
