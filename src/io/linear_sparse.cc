// Attention over chosen keys, and the latents that it reads: DSA's and DeepSeek-V4's.
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "io/case_tensors.h"
#include "io/linear_case.h"

namespace shadowgraph {
namespace {

constexpr int64_t kDsaDim = kDsaCodes + kRopeDim, kV4Dim = kV4Codes + kRopeDim;

/// A reading of u8 as e4m3.
ConstTensorView as_fp8(ConstTensorView bytes) {
  bytes.dtype = DType::kE4M3;
  return bytes;
}

std::span<const int32_t> read_list(CaseReader& reader, std::string_view name) {
  const ConstTensorView view = reader.tensor(name, {DType::kI32}, {-1});
  if (!view.defined()) return {};
  return {reinterpret_cast<const int32_t*>(view.data), static_cast<size_t>(view.shape[0])};
}

/// Of attn_sink [heads], where a case has it.
std::span<const float> read_sinks(CaseReader& reader, int64_t heads) {
  if (!reader.has_tensor("attn_sink")) return {};
  const ConstTensorView view = reader.tensor("attn_sink", {DType::kF32}, {heads});
  if (!view.defined()) return {};
  return {reinterpret_cast<const float*>(view.data), static_cast<size_t>(heads)};
}

/// out and out_ref [tokens, heads, head_dim_v].
void read_out(CaseReader& reader, const Shape& shape, SparseAttention* call, LinearVector* vector) {
  vector->recorded.out = reader.tensor("out", {DType::kBF16, DType::kF16, DType::kF32}, shape);
  vector->reference.out = read_reference(reader, "out_ref", shape);
  call->out = without_memory(vector->recorded.out);
  call->head_dim_v = static_cast<int32_t>(shape.back());
}

/// q_nope and q_rope [tokens, heads, ...] side by side.
ConstTensorView read_split_q(CaseReader& reader, DType dtype, int64_t tokens, int64_t heads) {
  const ConstTensorView nope = reader.tensor("q_nope", {dtype}, {tokens, heads, kDsaCodes});
  const ConstTensorView rope = reader.tensor("q_rope", {dtype}, {tokens, heads, kRopeDim});
  if (!nope.defined() || !rope.defined()) return {};
  const size_t size = size_of(dtype), front = kDsaCodes * size, back = kRopeDim * size;
  const auto rows = static_cast<size_t>(tokens * heads);
  std::vector<std::byte> q(rows * (front + back));
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(&q[r * (front + back)], nope.data + r * front, front);
    std::memcpy(&q[r * (front + back) + front], rope.data + r * back, back);
  }
  return {reader.own(std::move(q)).data(), dtype, {tokens, heads, kDsaDim}};
}

/// Rows of DSA's latents, plain bf16 or plain e4m3.
void read_sparse_mla(CaseReader& reader, LinearVector* vector) {
  const int32_t tokens = reader.integer("n", 0, kMaxVectorTokens);
  const int32_t topk = reader.integer("topk", 0, kMaxVectorTokens);
  const int32_t slots = reader.integer("kv", 0, kMaxVectorTokens);
  const int64_t heads = read_dim(reader, "H");
  const bool fp8 = reader.flag("fp8");
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  if (!reader.ok()) return;
  const DType stored = fp8 ? DType::kU8 : DType::kBF16;
  call.q = read_split_q(reader, stored, tokens, heads);
  call.keys.pool.data = reader.tensor("kv", {stored}, {slots, kDsaDim});
  if (fp8) call.q = as_fp8(call.q), call.keys.pool.data = as_fp8(call.keys.pool.data);
  const ConstTensorView indices = reader.tensor("indices", {DType::kI32}, {tokens, topk});
  if (indices.defined())
    call.keys.indices = {reinterpret_cast<const int32_t*>(indices.data),
                         static_cast<size_t>(indices.numel())};
  call.keys.width = topk;
  check_chosen(reader, "indices", call.keys, tokens);
  read_out(reader, {tokens, heads, kDsaCodes}, &call, vector);
  vector->dtype = call.q.dtype;
  vector->kernel = "dsa_sparse_mla";
  vector->call = call;
}

/// buf [pages, bytes] and its list, each with the prefix.
void read_paged_list(CaseReader& reader, const std::string& prefix, int64_t tokens,
                     ChosenKeys* keys) {
  const int32_t page_size = reader.integer(prefix + "page_size", 1, INT16_MAX);
  if (!reader.ok()) return;
  keys->pool = {reader.tensor(prefix + "buf", {DType::kU8}, {-1, v4_page_bytes(page_size)}),
                LatentLayout::kV4, page_size};
  const ConstTensorView indices = reader.tensor(prefix + "indices", {DType::kI32}, {tokens, -1});
  if (!indices.defined()) return;
  keys->width = indices.shape[1];
  keys->indices = {reinterpret_cast<const int32_t*>(indices.data),
                   static_cast<size_t>(indices.numel())};
  keys->lengths = read_list_lengths(reader, prefix + "topk_length", tokens, keys->width);
  check_chosen(reader, prefix + "indices", *keys, tokens);
}

void read_sparse_decode(CaseReader& reader, LinearVector* vector) {
  const int32_t tokens = reader.integer("B", 0, kMaxVectorTokens);
  const int64_t heads = read_dim(reader, "H");
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  const bool extra = reader.integer("extra_page_size", 0, INT16_MAX) > 0;
  reader.known_text("lse", "natural log, INCLUDES the sink when given");
  if (!reader.ok()) return;
  call.q = reader.tensor("q", {DType::kBF16}, {tokens, heads, kV4Dim});
  read_paged_list(reader, "", tokens, &call.keys);
  if (extra) read_paged_list(reader, "extra_", tokens, &call.extra);
  call.sinks = read_sinks(reader, heads);
  read_out(reader, {tokens, heads, kV4Dim}, &call, vector);
  vector->recorded.lse = reader.tensor("lse", {DType::kF32}, {tokens, heads});
  vector->reference.lse = read_reference(reader, "lse_ref", {tokens, heads});
  call.lse = NaturalLse(without_memory(vector->recorded.lse));
  call.options.lse_sink = LseSink::kIncluded;
  vector->dtype = DType::kBF16;
  vector->kernel = "dsv4_sparse_decode";
  vector->call = call;
}

/// From 0, not falling, to the end of the list.
void check_offsets(CaseReader& reader, std::string_view name, std::span<const int32_t> offsets,
                   int64_t entries) {
  if (!reader.ok()) return;
  const auto last = std::ssize(offsets) - 1;
  for (int64_t t = 0; t <= last; ++t) {
    const int64_t low = t == 0 ? 0 : offsets[static_cast<size_t>(t) - 1];
    const int64_t high = t == 0 ? 0 : entries, got = offsets[static_cast<size_t>(t)];
    if (got >= (t == last && t > 0 ? entries : low) && got <= high) continue;
    reader.bad_tensor(name, "offsets from 0, not falling, to " + std::to_string(entries),
                      std::to_string(got), t);
    return;
  }
}

ChosenKeys read_ragged_list(CaseReader& reader, std::string_view pool, const std::string& prefix,
                            int64_t tokens, int64_t dim) {
  ChosenKeys keys;
  keys.pool.data = reader.tensor(pool, {DType::kBF16}, {-1, dim});
  keys.indices = read_list(reader, prefix + "_indices");
  keys.indptr = reader.indices(prefix + "_indptr", tokens + 1);
  check_offsets(reader, prefix + "_indptr", keys.indptr, std::ssize(keys.indices));
  check_chosen(reader, prefix + "_indices", keys, tokens);
  return keys;
}

void read_unified(CaseReader& reader, LinearVector* vector) {
  const int32_t tokens = reader.integer("T", 0, kMaxVectorTokens);
  const int64_t heads = read_dim(reader, "H"), dim = read_dim(reader, "D");
  SparseAttention call;
  call.sm_scale = reader.positive("sm_scale");
  const bool prefill = reader.flag("prefill");
  if (!reader.ok()) return;
  call.q = reader.tensor("q", {DType::kBF16}, {tokens, heads, dim});
  call.keys = read_ragged_list(reader, "unified_kv", "kv", tokens, dim);
  if (prefill) call.extra = read_ragged_list(reader, "extend_kv", "extend", tokens, dim);
  call.sinks = read_sinks(reader, heads);
  read_out(reader, {tokens, heads, dim}, &call, vector);
  vector->dtype = DType::kBF16;
  const bool one_pass = prefill || reader.text("kind") == "unified_decode_fused";
  vector->kernel = one_pass ? "dsv4_unified" : "dsv4_unified_split";
  vector->call = call;
}

/// packed [tokens, 656]: token i's in slot i.
void read_kv_quant(CaseReader& reader, LinearVector* vector) {
  PackLatents call;
  LinearArrays &got = vector->recorded, &ref = vector->reference;
  got.states = reader.tensor("packed", {DType::kU8}, {-1, kDsaBytes});
  if (!got.states.defined()) return;
  const int64_t tokens = got.states.shape[0], groups = kDsaCodes / kDsaGroup;
  const ConstTensorView x = reader.tensor("x", {DType::kBF16}, {-1, -1, 1, kDsaDim});
  if (x.defined() && x.shape[0] * x.shape[1] != tokens)
    reader.bad_tensor("x", std::to_string(tokens) + " tokens, as packed",
                      std::to_string(x.shape[0] * x.shape[1]));
  call.latents = ConstTensorView(x.data, DType::kBF16, {tokens, kDsaDim});
  std::vector<int64_t> slots(static_cast<size_t>(tokens));
  std::iota(slots.begin(), slots.end(), int64_t{0});
  call.out_cache_loc = reader.own(std::move(slots));
  call.pool = {without_memory(got.states), LatentLayout::kDsa, 1};
  got.scales = reader.tensor("scale", {DType::kF32}, {tokens, groups});
  ref.scales = read_reference(reader, "scale_ref", {tokens, groups});
  got.out = reader.tensor("dequant", {DType::kBF16}, {tokens, kDsaDim});
  vector->dtype = DType::kBF16;
  vector->call = call;
}

void read_kv_pack(CaseReader& reader, LinearVector* vector) {
  const int32_t page_size = reader.integer("page_size", 1, INT16_MAX);
  const int32_t page_bytes = reader.integer("page_bytes", 1, kMaxVectorTokens);
  if (!reader.ok()) return;
  if (page_bytes != v4_page_bytes(page_size))
    reader.bad_field("page_bytes", std::to_string(v4_page_bytes(page_size)),
                     std::to_string(page_bytes));
  PackLatents call;
  LinearArrays &got = vector->recorded, &ref = vector->reference;
  got.states = reader.tensor("buf", {DType::kU8}, {-1, page_bytes});
  const ConstTensorView loc = reader.tensor("loc", {DType::kI64}, {-1});
  if (!loc.defined()) return;
  const int64_t tokens = loc.shape[0], groups = kV4Codes / kV4Group;
  call.out_cache_loc = {reinterpret_cast<const int64_t*>(loc.data), static_cast<size_t>(tokens)};
  call.latents = reader.tensor("k", {DType::kBF16}, {tokens, kV4Dim});
  call.pool = {without_memory(got.states), LatentLayout::kV4, page_size};
  got.codes = reader.tensor("nope_fp8", {DType::kU8}, {tokens, kV4Codes});
  got.rope = reader.tensor("rope", {DType::kBF16}, {tokens, kRopeDim});
  got.scales = reader.tensor("scale_ue8m0", {DType::kU8}, {tokens, groups});
  ref.scales = reader.tensor("scale_ref", {DType::kU8}, {tokens, groups});
  ref.out = read_reference(reader, "dequant_ref", {tokens, kV4Dim});
  vector->dtype = DType::kBF16;
  vector->call = call;
}

constexpr LinearKind kDsaKinds[] = {{"sparse_mla", read_sparse_mla}, {"kv_quant", read_kv_quant}};
constexpr LinearKind kDsv4Kinds[] = {{"kv_pack", read_kv_pack},
                                     {"sparse_decode", read_sparse_decode},
                                     {"unified_decode", read_unified},
                                     {"unified_prefill", read_unified}};

}  // namespace

std::span<const LinearKind> dsa_sparse_kinds() { return kDsaKinds; }
std::span<const LinearKind> dsv4_sparse_kinds() { return kDsv4Kinds; }

}  // namespace shadowgraph
