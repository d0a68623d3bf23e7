// Dual-chunk attention: no kernel was recorded, a float64 result is the truth.
#include <cmath>
#include <numeric>
#include <string>

#include "io/linear_case.h"

namespace shadowgraph {
namespace {

struct DualChunkLengths {
  std::vector<int32_t> q, kv;
  int64_t tokens = 0, keys = 0;
};

DualChunkLengths read_dual_lengths(CaseReader& reader) {
  DualChunkLengths lengths;
  lengths.q = reader.lengths("lens", -1);
  const std::vector<int32_t> prefix =
      reader.lengths("prefix", static_cast<int32_t>(std::ssize(lengths.q)));
  if (!reader.ok()) return lengths;
  for (size_t r = 0; r < lengths.q.size(); ++r) lengths.kv.push_back(prefix[r] + lengths.q[r]);
  lengths.tokens = std::accumulate(lengths.q.begin(), lengths.q.end(), int64_t{0});
  lengths.keys = std::accumulate(lengths.kv.begin(), lengths.kv.end(), int64_t{0});
  if (lengths.keys > kMaxVectorTokens) {
    reader.bad_field("prefix", "at most " + std::to_string(kMaxVectorTokens) + " keys in all",
                     std::to_string(lengths.keys));
  }
  return lengths;
}

DualChunk read_chunks(CaseReader& reader) {
  const int32_t size = reader.integer("chunk_size", 1, kMaxVectorTokens);
  const int32_t local = reader.integer("local_size", 0, kMaxVectorTokens);
  const int32_t len = reader.integer("chunk_len", 1, kMaxVectorTokens);
  if (reader.ok() && len != size - local) {
    reader.bad_field("chunk_len", std::to_string(size - local) + ", chunk_size without local_size",
                     std::to_string(len));
  }
  return {len};
}

/// Null, where there are no factors.
std::vector<int32_t> read_orig_lens(CaseReader& reader, int32_t original, size_t rows) {
  const JsonValue* value = reader.field("orig_lens");
  if (value == nullptr) return {};
  const bool none = value->as<std::nullptr_t>() != nullptr;
  if (none && original > 0)
    reader.bad_field("orig_lens", std::to_string(rows) + " lengths", value->describe());
  if (none) return {};
  return reader.lengths("orig_lens", static_cast<int32_t>(rows));
}

/// sm_scale times each row's factor.
std::span<const float> scales_of(CaseReader& reader, const DualChunkCase& c, size_t rows) {
  std::vector<float> scales(rows);
  const double plain = 1 / std::sqrt(static_cast<double>(c.attention.call.params.head_dim_qk));
  for (size_t r = 0; r < rows; ++r) {
    const int32_t len = c.orig_lens.empty() ? 0 : c.orig_lens[r];
    scales[r] = static_cast<float>(plain * dual_chunk_factor(len, c.original_max_position));
  }
  return reader.own(std::move(scales));
}

void read_dual_arrays(CaseReader& reader, const DualChunkLengths& lengths, DualChunkCase* c,
                      LinearVector* vector) {
  RaggedAttention& call = c->attention.call;
  const AttentionParams& p = call.params;
  const int64_t heads = p.num_qo_heads, kv_heads = p.num_kv_heads, dim = p.head_dim_qk;
  const DType dtype = vector->dtype = reader.tensor_dtype("k");
  const char* const names[] = {"q_intra", "q_succ", "q_inter"};
  for (const ChunkPart part : kChunkParts) {
    const auto at = static_cast<size_t>(part);
    c->attention.queries.q[at] = reader.tensor(names[at], {dtype}, {lengths.tokens, heads, dim});
  }
  call.k = reader.tensor("k", {dtype}, {lengths.keys, kv_heads, dim});
  call.v = reader.tensor("v", {dtype}, {lengths.keys, kv_heads, dim});
  call.cu_seqlens_q = reader.indices("cu_q", indptr_of(lengths.q));
  call.cu_seqlens_k = reader.indices("cu_k", indptr_of(lengths.kv));
  c->recorded_factors = reader.tensor("scaling", {DType::kF64}, {std::ssize(lengths.q)});
  vector->reference.out = read_reference(reader, "out_ref", {lengths.tokens, heads, dim});
  vector->reference.lse = read_reference(reader, "lse_ref", {lengths.tokens, heads});
}

void read_dual_chunk(CaseReader& reader, LinearVector* vector) {
  DualChunkCase c;
  known_flag(reader, "reference_only", true);
  const DualChunkLengths lengths = read_dual_lengths(reader);
  c.attention.queries.chunks = read_chunks(reader);
  AttentionParams& p = c.attention.call.params;
  p.num_qo_heads = static_cast<int32_t>(read_dim(reader, "H"));
  p.num_kv_heads = static_cast<int32_t>(read_dim(reader, "Hk"));
  p.head_dim_qk = p.head_dim_vo = static_cast<int32_t>(read_dim(reader, "D"));
  p.causal = true;
  p.sm_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.head_dim_qk)));
  if (reader.ok() && p.num_qo_heads % p.num_kv_heads != 0)
    reader.bad_field("Hk", "a divisor of H", std::to_string(p.num_kv_heads));
  c.original_max_position = reader.integer("original_max_position", 0, INT32_MAX);
  c.orig_lens = read_orig_lens(reader, c.original_max_position, lengths.q.size());
  if (!reader.ok()) return;
  c.attention.queries.scales = scales_of(reader, c, lengths.q.size());
  read_dual_arrays(reader, lengths, &c, vector);
  vector->call = std::move(c);
}

constexpr LinearKind kKinds[] = {
    {"prefill", read_dual_chunk},
    {"decode", read_dual_chunk},
    {"scaled", read_dual_chunk},
};

}  // namespace

std::span<const LinearKind> dualchunk_kinds() { return kKinds; }

}  // namespace shadowgraph
