// FlashMLA over chosen keys: decode from packed latents, prefill from bf16 rows.
#include <algorithm>

#include "io/case_tensors.h"
#include "io/vector_families.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kDecode = "sparse_decode_fp8", kPrefill = "sparse_prefill";

struct SparseCase {
  DType dtype = DType::kBF16;
  int32_t heads = 0, dim = 0, dim_v = 0, topk = 0;
  int32_t batch = 1, q_len = 0;  // of prefill one request
  float sm_scale = 0;
  bool sink = false;

  int64_t tokens() const { return int64_t{batch} * q_len; }
};

SparseCase read_metadata(CaseReader& reader, bool decode) {
  SparseCase c;
  c.dtype = reader.dtype("dtype");
  if (is_fp8(c.dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  c.heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  reader.integer("num_kv_heads", 1, 1);  // every head reads the one latent
  c.dim = reader.integer("head_dim_qk", 1, kMaxVectorTokens);
  c.dim_v = reader.integer("head_dim_v", 1, kMaxVectorTokens);
  c.topk = reader.integer("topk", 0, kMaxVectorTokens);
  c.q_len = reader.integer("q_len", 0, INT16_MAX);
  if (decode) c.batch = reader.integer("batch", 0, INT16_MAX);
  c.sm_scale = reader.positive("sm_scale");
  c.sink = reader.flag("attn_sink");
  reader.known_text("lse_base", "e");
  reader.known_text("lse_layout", decode ? "(B,Hq,s_q)" : "(s_q,Hq)");
  return c;
}

/// [pages, page_size, 1, 656] as [slots, 656].
ChosenKeys read_packed(CaseReader& reader, KernelVector* vector) {
  const int32_t page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  ChosenKeys keys;
  const ConstTensorView pages =
      reader.tensor("kv_cache_fp8", {DType::kU8}, {-1, page_size, 1, kDsaBytes});
  if (!pages.defined()) return keys;
  const int64_t slots = pages.shape[0] * page_size;
  keys.pool = {ConstTensorView(pages.data, DType::kU8, {slots, kDsaBytes}), LatentLayout::kDsa, 1};
  vector->latents_ref =
      reader.tensor("kv_dequantized", {DType::kBF16}, {slots, keys.pool.head_dim()});
  return keys;
}

/// [keys, 1, head_dim] as rows.
ChosenKeys read_plain(CaseReader& reader, const SparseCase& c) {
  const int32_t count = reader.integer("kv_len", 0, kMaxVectorTokens);
  ChosenKeys keys;
  const ConstTensorView kv = reader.tensor("kv", {c.dtype}, {count, 1, c.dim});
  if (kv.defined())
    keys.pool = {ConstTensorView(kv.data, kv.dtype, {count, c.dim}), LatentLayout::kRows, 1};
  return keys;
}

/// [tokens, heads, dim]
ConstTensorView read_rows(CaseReader& reader, const SparseCase& c, bool decode,
                          std::string_view name, DType dtype, int64_t dim) {
  if (!decode) return reader.tensor(name, {dtype}, {c.q_len, c.heads, dim});
  return merge_leading(reader.tensor(name, {dtype}, {c.batch, c.q_len, c.heads, dim}));
}

/// [tokens, heads]
ConstTensorView read_lse(CaseReader& reader, const SparseCase& c, bool decode,
                         std::string_view name, DType dtype) {
  if (!decode) return reader.tensor(name, {dtype}, {c.q_len, c.heads});
  return rows_before_heads(reader, reader.tensor(name, {dtype}, {c.batch, c.heads, c.q_len}));
}

void read_lists(CaseReader& reader, const SparseCase& c, bool decode, ChosenKeys* keys) {
  const ConstTensorView indices =
      decode ? merge_leading(reader.tensor("indices", {DType::kI32}, {c.batch, c.q_len, c.topk}))
             : reader.tensor("indices", {DType::kI32}, {c.q_len, 1, c.topk});
  keys->width = c.topk;
  if (indices.defined())
    keys->indices = {reinterpret_cast<const int32_t*>(indices.data),
                     static_cast<size_t>(c.tokens() * c.topk)};
  if (!decode && reader.flag("topk_length"))
    keys->lengths = read_list_lengths(reader, "topk_length", c.tokens(), c.topk);
  check_chosen(reader, "indices", *keys, c.tokens());
}

/// Is a request's work cut into parts?
bool read_splits(CaseReader& reader, const SparseCase& c) {
  const std::vector<int32_t> splits = reader.lengths("splits_per_request", c.batch);
  reader.indices("num_splits", indptr_of(splits));
  return std::any_of(splits.begin(), splits.end(), [](int n) { return n > 1; });
}

}  // namespace

bool is_flashmla_sparse_kind(std::string_view kind) { return kind == kDecode || kind == kPrefill; }

void read_flashmla_sparse_vector(CaseReader& reader, KernelVector* vector) {
  vector->kind = reader.text("kind");
  const bool decode = vector->kind == kDecode;
  const SparseCase c = read_metadata(reader, decode);
  if (!reader.ok()) return;
  SparseAttention call;
  call.q = read_rows(reader, c, decode, "q", c.dtype, c.dim);
  call.keys = decode ? read_packed(reader, vector) : read_plain(reader, c);
  read_lists(reader, c, decode, &call.keys);
  call.head_dim_v = c.dim_v;
  call.sm_scale = c.sm_scale;
  if (c.sink) {
    const ConstTensorView sinks = reader.tensor("attn_sink", {DType::kF32}, {c.heads});
    if (sinks.defined())
      call.sinks = {reinterpret_cast<const float*>(sinks.data), static_cast<size_t>(c.heads)};
  }
  const bool split = decode && read_splits(reader, c);
  vector->dtype = c.dtype;
  vector->calls.emplace_back(call);
  Recorded gpu = recorded_by(split ? "flashmla_sparse_split" : "flashmla_sparse", "gpu");
  gpu.out = read_rows(reader, c, decode, "out", c.dtype, c.dim_v);
  gpu.lse = read_lse(reader, c, decode, "lse", DType::kF32);
  if (!decode) {
    gpu.max_logits = read_lse(reader, c, decode, "max_logits", DType::kF32);
    vector->max_logits_ref = read_lse(reader, c, decode, "max_logits_ref", DType::kF64);
  }
  vector->recorded.push_back(gpu);
  vector->out_ref = read_rows(reader, c, decode, "out_ref", DType::kF32, c.dim_v);
  vector->lse_ref = read_lse(reader, c, decode, "lse_ref", DType::kF64);
}

}  // namespace shadowgraph
