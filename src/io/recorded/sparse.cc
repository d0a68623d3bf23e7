// Attention over chosen keys, and the latents that it reads: FlashMLA's, DSA's and DeepSeek-V4's.
#include <algorithm>
#include <numeric>
#include <string>

#include "io/recorded/attention_fields.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph {
namespace {

constexpr int64_t kDsaDim = kDsaCodes + kRopeDim, kV4Dim = kV4Codes + kRopeDim;

/// The sizes of latents, for shapes.
void bind_latents(CaseReader& reader) {
  reader.bind("rope", kRopeDim);
  reader.bind("dsa_codes", kDsaCodes), reader.bind("dsa_dim", kDsaDim);
  reader.bind("dsa_bytes", kDsaBytes), reader.bind("dsa_groups", kDsaCodes / kDsaGroup);
  reader.bind("v4_codes", kV4Codes), reader.bind("v4_dim", kV4Dim);
  reader.bind("v4_groups", kV4Codes / kV4Group);
}

/// i32 [tokens], each at most the lists' width.
void read_list_lengths(CaseReader& reader, std::string_view name, ChosenKeys* keys) {
  keys->lengths = reader.i32(name, "tokens");
  reader.in_range(name, keys->lengths, 0, keys->width);
}

/// The case's call with out and out_ref [tokens, heads, dim_v].
void finish(CaseReader& reader, std::string_view dim_v, SparseAttention call, RecordedCase* c) {
  const std::string shape = "tokens heads " + std::string(dim_v);
  c->gpu().out = reader.tensor("out", {DType::kBF16, DType::kF16, DType::kF32}, shape);
  c->reference.out = reader.reference("out_ref", shape);
  call.head_dim_v = static_cast<int32_t>(reader.size(dim_v));
  c->dtype = call.q.dtype;
  c->attention().calls.emplace_back(call);
}

/// buf [pages, bytes] and its list, each with the prefix.
ChosenKeys read_paged_list(CaseReader& reader, const std::string& prefix) {
  ChosenKeys keys;
  const int32_t page_size = reader.dim(prefix + "page_size");
  if (!reader.ok()) return keys;
  const std::string bytes = std::to_string(v4_page_bytes(page_size));
  keys.pool = {reader.tensor(prefix + "buf", {DType::kU8}, "? " + bytes), LatentLayout::kV4,
               page_size};
  if (read_lists(reader, prefix + "indices", "tokens ?", &keys))
    read_list_lengths(reader, prefix + "topk_length", &keys);
  check_chosen(reader, prefix + "indices", keys, reader.size("tokens"));
  return keys;
}

/// Lists one after the other: PREFIX_indptr is from 0, not falling, to the end of PREFIX_indices.
ChosenKeys read_ragged_list(CaseReader& reader, std::string_view pool, const std::string& prefix) {
  const std::string name = prefix + "_indptr";
  const int64_t tokens = reader.size("tokens");
  ChosenKeys keys;
  keys.pool.data = reader.tensor(pool, {DType::kBF16}, "? D");
  keys.indices = reader.i32(prefix + "_indices", "?");
  keys.indptr = reader.i32(name, std::to_string(tokens + 1));
  const int64_t entries = std::ssize(keys.indices);
  for (int64_t t = 0; reader.ok() && t <= tokens; ++t) {
    const auto i = static_cast<size_t>(t);
    const int64_t low = t == 0 ? 0 : t == tokens ? entries : keys.indptr[i - 1];
    const int64_t high = t == 0 ? 0 : entries, got = keys.indptr[i];
    if (got < low || got > high)
      reader.bad_tensor(name, "offsets from 0, not falling, to " + std::to_string(entries),
                        std::to_string(got), t);
  }
  check_chosen(reader, prefix + "_indices", keys, tokens);
  return keys;
}

}  // namespace

/// Decode from packed latents, or prefill of one request from bf16 rows.
void read_flashmla_sparse(CaseReader& reader, RecordedCase* c) {
  const bool decode = c->kind == "sparse_decode_fp8";
  SparseAttention call;
  c->dtype = read_query_dtype(reader);
  const AttentionParams params = read_heads(reader);
  call.head_dim_v = params.head_dim_vo, call.sm_scale = params.sm_scale;
  reader.count("topk");
  const int64_t q_len = reader.integer("q_len", 0, INT16_MAX);
  const int64_t batch = decode ? reader.integer("batch", 0, INT16_MAX) : 1;
  const bool sink = reader.flag("attn_sink");
  reader.known_text("lse_base", "e");
  reader.known_text("lse_layout", decode ? "(B,Hq,s_q)" : "(s_q,Hq)");
  if (decode)
    reader.integer("page_size", 1, kMaxVectorTokens);
  else
    reader.count("kv_len");
  const bool lengths = !decode && reader.flag("topk_length");
  if (!reader.ok()) return;
  bind_latents(reader);
  reader.bind("tokens", batch * q_len), reader.bind("rows", q_len);
  RowAxes axes;
  if (decode) axes = {.rows = "(batch q_len)", .lse = RowAxes::Lse::kBatchHeadsRows};
  call.q = read_rows(reader, axes, "q", {c->dtype}, "dim");
  if (decode) {
    call.keys.pool = {
        reader.tensor("kv_cache_fp8", {DType::kU8}, "(pages page_size) (1 dsa_bytes)"),
        LatentLayout::kDsa, 1};
    reader.bind("slots", call.keys.pool.slots());
    c->attention().latents_ref = reader.tensor("kv_dequantized", {DType::kBF16}, "slots dsa_dim");
  } else {
    call.keys.pool.data = reader.tensor("kv", {c->dtype}, "kv_len (1 dim)");
  }
  const bool lists =
      read_lists(reader, "indices", decode ? "(batch q_len) topk" : "q_len (1 topk)", &call.keys);
  if (lists && lengths) read_list_lengths(reader, "topk_length", &call.keys);
  check_chosen(reader, "indices", call.keys, batch * q_len);
  if (sink) {
    call.sinks = read_sinks(reader, "attn_sink");
    read_lse_sink(reader, c);
  }
  if (decode && read_splits(reader)) c->gpu().kernel += "_split";
  c->attention().calls.emplace_back(call);
  read_answer(reader, axes, "out", "lse", &c->gpu());
  read_references(reader, axes, c);
  if (decode) return;
  c->gpu().max_logits = read_lse(reader, axes, "max_logits", {DType::kF32});
  c->reference.max_logits = read_lse(reader, axes, "max_logits_ref", {DType::kF64});
}

/// Rows of DSA's latents, plain bf16 or plain e4m3.
void read_sparse_mla(CaseReader& reader, RecordedCase* c) {
  reader.bind("tokens", reader.count("n"));
  reader.count("topk"), reader.count("kv");
  reader.bind("heads", reader.dim("H"));
  const bool fp8 = reader.flag("fp8");
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  if (!reader.ok()) return;
  bind_latents(reader);
  const auto read = [&](const char* name, const char* shape) {
    ConstTensorView view = reader.tensor(name, {fp8 ? DType::kU8 : DType::kBF16}, shape);
    if (fp8) view.dtype = DType::kE4M3;
    return view;
  };
  const ConstTensorView nope = read("q_nope", "tokens heads dsa_codes");
  call.q = side_by_side(reader, nope, read("q_rope", "tokens heads rope"));
  call.keys.pool.data = read("kv", "kv dsa_dim");
  read_lists(reader, "indices", "tokens topk", &call.keys);
  check_chosen(reader, "indices", call.keys, reader.size("tokens"));
  finish(reader, "dsa_codes", call, c);
}

void read_sparse_decode(CaseReader& reader, RecordedCase* c) {
  reader.bind("tokens", reader.count("B"));
  reader.bind("heads", reader.dim("H"));
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  const bool extra = reader.integer("extra_page_size", 0, INT16_MAX) > 0;
  reader.known_text("lse", "natural log, INCLUDES the sink when given");
  if (!reader.ok()) return;
  bind_latents(reader);
  call.q = reader.tensor("q", {DType::kBF16}, "tokens heads v4_dim");
  call.keys = read_paged_list(reader, "");
  if (extra) call.extra = read_paged_list(reader, "extra_");
  if (reader.has_tensor("attn_sink")) call.sinks = read_sinks(reader, "attn_sink");
  c->gpu().lse = reader.f32("lse", "tokens heads");
  c->reference.lse = reader.reference("lse_ref", "tokens heads");
  c->gpu().lse_sink = c->reference.lse_sink = call.options.lse_sink = LseSink::kIncluded;
  finish(reader, "v4_dim", call, c);
}

void read_unified(CaseReader& reader, RecordedCase* c) {
  reader.bind("tokens", reader.count("T"));
  reader.bind("heads", reader.dim("H"));
  reader.dim("D");
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  const bool prefill = reader.flag("prefill");
  if (!reader.ok()) return;
  call.q = reader.tensor("q", {DType::kBF16}, "tokens heads D");
  call.keys = read_ragged_list(reader, "unified_kv", "kv");
  if (prefill) call.extra = read_ragged_list(reader, "extend_kv", "extend");
  if (reader.has_tensor("attn_sink")) call.sinks = read_sinks(reader, "attn_sink");
  if (!prefill && c->kind != "unified_decode_fused") c->gpu().kernel += "_split";
  finish(reader, "D", call, c);
}

/// packed [tokens, 656]: token i's in slot i.
void read_kv_quant(CaseReader& reader, RecordedCase* c) {
  PackLatents call;
  Recorded &got = c->gpu(), &ref = c->reference;
  bind_latents(reader);
  got.states = reader.tensor("packed", {DType::kU8}, "tokens dsa_bytes");
  if (!reader.ok()) return;
  const int64_t tokens = reader.size("tokens");
  call.latents = reader.tensor("x", {DType::kBF16}, "(? ?) (1 dsa_dim)");
  if (call.latents.defined() && call.latents.shape[0] != tokens)
    reader.bad_tensor("x", std::to_string(tokens) + " tokens, as packed",
                      std::to_string(call.latents.shape[0]));
  std::vector<int64_t> slots(static_cast<size_t>(tokens));
  std::iota(slots.begin(), slots.end(), int64_t{0});
  call.out_cache_loc = reader.own(std::move(slots));
  call.pool = {without_memory(got.states), LatentLayout::kDsa, 1};
  got.scales = reader.f32("scale", "tokens dsa_groups");
  ref.scales = reader.reference("scale_ref", "tokens dsa_groups");
  got.out = reader.tensor("dequant", {DType::kBF16}, "tokens dsa_dim");
  c->dtype = DType::kBF16;
  c->call = call;
}

void read_kv_pack(CaseReader& reader, RecordedCase* c) {
  const int32_t page_size = reader.dim("page_size");
  const int32_t page_bytes = reader.integer("page_bytes", 1, kMaxVectorTokens);
  if (!reader.ok()) return;
  if (page_bytes != v4_page_bytes(page_size))
    reader.bad_field("page_bytes", std::to_string(v4_page_bytes(page_size)),
                     std::to_string(page_bytes));
  PackLatents call;
  Recorded &got = c->gpu(), &ref = c->reference;
  bind_latents(reader);
  got.states = reader.tensor("buf", {DType::kU8}, "pages page_bytes");
  call.out_cache_loc = reader.i64("loc", "tokens");
  call.latents = reader.tensor("k", {DType::kBF16}, "tokens v4_dim");
  call.pool = {without_memory(got.states), LatentLayout::kV4, page_size};
  got.codes = reader.tensor("nope_fp8", {DType::kU8}, "tokens v4_codes");
  got.rope = reader.tensor("rope", {DType::kBF16}, "tokens rope");
  got.scales = reader.tensor("scale_ue8m0", {DType::kU8}, "tokens v4_groups");
  ref.scales = reader.tensor("scale_ref", {DType::kU8}, "tokens v4_groups");
  ref.out = reader.reference("dequant_ref", "tokens v4_dim");
  c->dtype = DType::kBF16;
  c->call = call;
}

}  // namespace shadowgraph
