#include "io/recorded/attention_fields.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace shadowgraph {
namespace {

constexpr const char* kPromises[] = {"empty_rows", "rows_of",       "rows_from",     "rows_count",
                                     "arithmetic", "weights_dtype", "weights_scale", "scores_dtype",
                                     "tf32",       "splits"};

/// exact, or a mark's LSE.
void read_empty_rows(CaseReader& reader, RecordedCase* c) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const JsonValue& value = *reader.field("empty_rows");
  std::optional<double> lse = value.number();
  if (const auto* text = value.as<std::string>()) {
    if (*text == "exact") lse = -kInf;
    if (*text == "inf") lse = kInf;
    if (*text == "nan") lse = std::numeric_limits<double>::quiet_NaN();
  }
  if (!lse)
    return reader.bad_field("empty_rows",
                            "exact, or the LSE that the kernel writes: a number, inf or nan",
                            value.describe());
  for (Recorded& r : c->recorded) r.empty_mark = {.lse = lse};
}

void read_same_rows(CaseReader& reader, RecordedCase* c) {
  SameRows rows;
  rows.of = reader.text("rows_of");
  rows.from = reader.count("rows_from");
  rows.count = reader.integer("rows_count", 1, kMaxVectorTokens);
  c->same_rows = std::move(rows);
}

/// The arithmetic of the kernel, where it is not its form's.
void read_arithmetic(CaseReader& reader, RecordedCase* c) {
  DeclaredArithmetic d;
  const auto names = [](DType t) { return std::string(name_of(t)); };
  if (reader.has("weights_dtype")) d.weights = reader.dtype("weights_dtype");
  if (reader.has("weights_scale")) d.weights_scale = reader.positive("weights_scale");
  if (reader.has("scores_dtype")) d.scores = reader.dtype("scores_dtype");
  if (is_fp8(d.scores)) reader.bad_field("scores_dtype", "f16, bf16 or f32", names(d.scores));
  if (reader.has("tf32")) d.tf32 = reader.flag("tf32");
  if (reader.has("splits")) d.splits = reader.integer("splits", 1, INT16_MAX);
  // A weight is at most 1.
  const DType type = d.weights.value_or(DType::kF32);
  const float largest = type == DType::kE4M3 ? 448.0F : type == DType::kF16 ? 65504.0F : 0x1p100F;
  if (d.weights_scale > largest)
    reader.bad_field("weights_scale", "at most the largest number of " + names(type),
                     std::to_string(d.weights_scale));
  for (Recorded& r : c->recorded) r.declared = d;
  if (!reader.has("arithmetic")) return;
  const std::string name = reader.text("arithmetic");
  for (Recorded& r : c->recorded) r.kernel = name;
}

}  // namespace

AttentionParams read_heads(CaseReader& reader) {
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
  reader.bind("heads", p.num_qo_heads), reader.bind("kv_heads", p.num_kv_heads);
  reader.bind("dim", p.head_dim_qk), reader.bind("dim_v", p.head_dim_vo);
  return p;
}

AttentionParams read_params(CaseReader& reader, std::initializer_list<std::string_view> optional) {
  const auto has = [&](std::string_view field) {
    return reader.has(field) || std::ranges::find(optional, field) == optional.end();
  };
  AttentionParams p = read_heads(reader);
  if (has("causal")) p.causal = reader.flag("causal");
  if (has("window_left")) p.window_left = reader.integer("window_left", -1, INT32_MAX);
  if (has("window_right")) p.window_right = reader.integer("window_right", -1, INT32_MAX);
  if (has("softcap")) p.logits_soft_cap = reader.not_negative("softcap");
  return p;
}

void read_terms(CaseReader& reader, std::span<const int32_t> kv_lens, AttentionParams* p) {
  AttentionTerms& t = p->terms;
  const auto floats = [&](const char* name, std::string_view shape, std::span<const float>* list) {
    if (reader.has_tensor(name)) *list = reader.floats(name, shape);
  };
  const auto integers = [&](const char* name, std::string_view shape,
                            std::span<const int32_t>* list) {
    if (reader.has_tensor(name)) *list = reader.i32(name, shape);
  };
  if (reader.has("alibi"))
    t.alibi =
        static_cast<AttentionTerms::Alibi>(reader.one_of("alibi", {"linear", "distance", "sqrt"}));
  const auto come_together = [&](const char* name, const char* other) {
    if (reader.has_tensor(name) && !reader.has_tensor(other))
      reader.bad_tensor(other, std::string("a tensor, as there is ") + name, "none");
  };
  come_together("bidirectional_ranges", "bidirectional_indptr");
  come_together("bidirectional_indptr", "bidirectional_ranges");
  if (reader.has("alibi") && !reader.has_tensor("alibi_slopes"))
    reader.bad_tensor("alibi_slopes", "a tensor, as there is alibi", "none");
  floats("alibi_slopes", "heads", &t.alibi_slopes);
  const int64_t keys = std::accumulate(kv_lens.begin(), kv_lens.end(), int64_t{0});
  floats("key_bias", "heads " + std::to_string(keys), &t.key_bias);
  floats("qq_bias", "? ?", &t.qq_bias);
  floats("relative_bias", "heads ?", &t.relative_bias);
  for (const char* name : {"qq_bias", "relative_bias"}) {
    const ConstTensorView table =
        reader.has_tensor(name) ? reader.f32(name, "? ?") : ConstTensorView();
    const bool square = name == std::string_view("qq_bias");
    if (!table.defined()) continue;
    if (square ? table.shape[0] != table.shape[1] || table.numel() == 0 : table.shape[1] % 2 == 0)
      reader.bad_tensor(
          name, square ? "[n, n], n from 1" : "[num_qo_heads, 2 n + 1]",
          "[" + std::to_string(table.shape[0]) + ", " + std::to_string(table.shape[1]) + "]");
  }
  if (reader.has("temperature_len"))
    t.temperature_len = reader.integer("temperature_len", 2, INT32_MAX);
  if (reader.has("attention_chunk"))
    t.attention_chunk = reader.integer("attention_chunk", 0, INT32_MAX);
  if (reader.has("chunk_lookback"))
    t.chunk_lookback = reader.integer("chunk_lookback", 0, INT32_MAX);
  const std::string batch = std::to_string(kv_lens.size());
  if (reader.has_tensor("request_causal")) {
    t.request_causal = reader.bytes("request_causal", batch);
    reader.in_range("request_causal", t.request_causal, 0, 1);
  }
  integers("cache_leftpad", batch, &t.cache_leftpad);
  integers("bidirectional_ranges", "? 2", &t.bidirectional_ranges);
  integers("bidirectional_indptr", std::to_string(kv_lens.size() + 1), &t.bidirectional_indptr);
  const std::string of_requests = batch + " kv_heads";
  for (const auto& [name, scales] : {std::pair("k_scale", &t.k_scales), {"v_scale", &t.v_scales}}) {
    if (!reader.has_tensor(name)) continue;
    const std::string_view shape = reader.shape_of(name, {"kv_heads", of_requests});
    if (!shape.empty()) floats(name, shape, scales);
  }
  if (reader.has("q_scale")) t.q_scale = reader.positive("q_scale");
  if (reader.has("out_scale")) t.out_scale = reader.positive("out_scale");
}

void refuse_terms(CaseReader& reader, const AttentionParams& p, const std::string& kind) {
  if (p.terms.any())
    reader.bad_field("kind", "a call in one part, where there are terms of scores or keys", kind);
}

void bind_packed(CaseReader& reader, std::string_view axis, std::string_view padded,
                 std::span<const int32_t> lens) {
  int64_t rows = std::accumulate(lens.begin(), lens.end(), int64_t{0});
  if (reader.has_tensor(padded)) {
    const auto offsets = reader.i32(padded, std::to_string(lens.size() + 1));
    if (!offsets.empty()) rows = offsets.back();
  }
  reader.bind(axis, rows);
}

std::span<const int32_t> read_offsets(CaseReader& reader, std::string_view name,
                                      std::string_view padded, std::span<const int32_t> lens,
                                      std::span<const int32_t>* seqused) {
  if (!reader.has_tensor(padded)) return reader.indices(name, indptr_of(lens));
  if (reader.has_tensor(name)) reader.indices(name, indptr_of(lens));
  const auto offsets = reader.i32(padded, std::to_string(lens.size() + 1));
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t least = i == 0 ? 0 : int64_t{offsets[i - 1]} + lens[i - 1];
    if (i == 0 ? offsets[i] == 0 : offsets[i] >= least) continue;
    reader.bad_tensor(padded,
                      (i == 0 ? "" : ">= ") + std::to_string(least) +
                          (i == 0 ? "" : ", behind the rows of the request before"),
                      std::to_string(offsets[i]), static_cast<int64_t>(i));
    break;
  }
  *seqused = reader.own(std::vector<int32_t>(lens.begin(), lens.end()));
  return offsets;
}

DType read_query_dtype(CaseReader& reader) {
  const DType dtype = reader.dtype("dtype");
  if (is_fp8(dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  return dtype;
}

DType read_kv_dtype(CaseReader& reader, DType of_queries) {
  return reader.has("kv_dtype") ? reader.dtype("kv_dtype") : of_queries;
}

ConstTensorView read_keys(CaseReader& reader, std::string_view name, DType kv_dtype,
                          std::string_view shape) {
  return is_fp8(kv_dtype) ? reader.e4m3(name, shape) : reader.tensor(name, {kv_dtype}, shape);
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

namespace {

ResultAxes result_axes(const CaseReader& reader, const RowAxes& axes) {
  const bool by_request = axes.rows != RowAxes().rows;
  return {by_request ? std::max<int64_t>(0, reader.size("q_len")) : 0,
          axes.lse != RowAxes::Lse::kRowsHeads};
}

}  // namespace

void read_answer(CaseReader& reader, const RowAxes& axes, const std::string& out,
                 const std::string& lse, Recorded* answer) {
  answer->axes = result_axes(reader, axes);
  answer->out = read_rows(reader, axes, out, {DType::kF16, DType::kBF16, DType::kF32}, "dim_v");
  if (reader.has_tensor(lse)) answer->lse = read_lse(reader, axes, lse, {DType::kF32});
}

void read_references(CaseReader& reader, const RowAxes& axes, RecordedCase* c) {
  c->reference.axes = result_axes(reader, axes);
  if (reader.has_tensor("out_ref"))
    c->reference.out = read_rows(reader, axes, "out_ref", {DType::kF32}, "dim_v");
  if (reader.has_tensor("lse_ref"))
    c->reference.lse = read_lse(reader, axes, "lse_ref", {DType::kF64});
}

void read_promises(CaseReader& reader, RecordedCase* c) {
  if (c->recorded.empty()) {
    for (const char* name : kPromises)
      if (reader.has(name))
        reader.bad_field(name, "no such member where gpu is false: it is about the kernel's result",
                         reader.field(name)->describe());
    return;
  }
  if (reader.has("empty_rows")) read_empty_rows(reader, c);
  if (reader.has("rows_of")) read_same_rows(reader, c);
  for (const char* name : {"rows_from", "rows_count"})
    if (reader.has(name) && !reader.has("rows_of"))
      reader.bad_field("rows_of", "the case whose rows " + std::string(name) + " is about",
                       "missing");
  read_arithmetic(reader, c);
}

void read_lse_sink(CaseReader& reader, RecordedCase* c) {
  if (!reader.has("lse_sink")) return;
  constexpr LseSink kSinks[] = {LseSink::kIncluded, LseSink::kExcluded};
  c->gpu().lse_sink = kSinks[reader.one_of("lse_sink", {"included", "excluded"})];
}

bool read_splits(CaseReader& reader) {
  const std::vector<int32_t> splits =
      reader.lengths("splits_per_request", static_cast<int32_t>(reader.size("batch")));
  reader.indices("num_splits", indptr_of(splits));
  return std::ranges::any_of(splits, [](int32_t n) { return n > 1; });
}

}  // namespace shadowgraph
