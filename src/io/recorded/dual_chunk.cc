// Dual-chunk attention: no kernel was recorded, a float64 result is the truth.
#include <cmath>
#include <numeric>
#include <string>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

/// Keys of each row: "lens" of new tokens and "prefix" before them. In shapes: "keys".
std::vector<int32_t> read_kv_lens(CaseReader& reader, std::span<const int32_t> q_lens) {
  std::vector<int32_t> kv_lens = reader.lengths("prefix", static_cast<int32_t>(std::ssize(q_lens)));
  if (!reader.ok()) return kv_lens;
  for (size_t r = 0; r < q_lens.size(); ++r) kv_lens[r] += q_lens[r];
  const int64_t keys = std::accumulate(kv_lens.begin(), kv_lens.end(), int64_t{0});
  if (keys > kMaxVectorTokens)
    reader.bad_field("prefix", "at most " + std::to_string(kMaxVectorTokens) + " keys in all",
                     std::to_string(keys));
  reader.bind("keys", keys);
  return kv_lens;
}

DualChunk read_chunks(CaseReader& reader) {
  const int32_t size = reader.integer("chunk_size", 1, kMaxVectorTokens);
  const int32_t local = reader.count("local_size");
  const int32_t len = reader.integer("chunk_len", 1, kMaxVectorTokens);
  if (reader.ok() && len != size - local)
    reader.bad_field("chunk_len", std::to_string(size - local) + ", chunk_size without local_size",
                     std::to_string(len));
  return {len};
}

/// sm_scale times each row's factor.
std::span<const float> scales_of(CaseReader& reader, const DualChunkCase& d, size_t rows) {
  std::vector<float> scales(rows);
  const double plain = 1 / std::sqrt(static_cast<double>(d.attention.call.params.head_dim_qk));
  for (size_t r = 0; r < rows; ++r) {
    const int32_t len = d.orig_lens.empty() ? 0 : d.orig_lens[r];
    scales[r] = static_cast<float>(plain * dual_chunk_factor(len, d.original_max_position));
  }
  return reader.own(std::move(scales));
}

}  // namespace

void read_dual_chunk(CaseReader& reader, RecordedCase* c) {
  DualChunkCase d;
  RaggedAttention& call = d.attention.call;
  reader.known_flag("reference_only", true);
  const std::vector<int32_t> q_lens = read_lens(reader), kv_lens = read_kv_lens(reader, q_lens);
  d.attention.queries.chunks = read_chunks(reader);
  AttentionParams& p = call.params;
  p.num_qo_heads = reader.dim("H");
  p.num_kv_heads = reader.dim("Hk");
  p.head_dim_qk = p.head_dim_vo = reader.dim("D");
  p.causal = true;
  p.sm_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.head_dim_qk)));
  if (reader.ok() && p.num_qo_heads % p.num_kv_heads != 0)
    reader.bad_field("Hk", "a divisor of H", std::to_string(p.num_kv_heads));
  d.original_max_position = reader.integer("original_max_position", 0, INT32_MAX);
  if (!reader.is_null("orig_lens"))
    d.orig_lens = reader.lengths("orig_lens", static_cast<int32_t>(q_lens.size()));
  else if (reader.ok() && d.original_max_position > 0)
    reader.bad_field("orig_lens", std::to_string(q_lens.size()) + " lengths", "null");
  if (!reader.ok()) return;
  d.attention.queries.scales = scales_of(reader, d, q_lens.size());
  c->dtype = reader.tensor_dtype("k");
  constexpr std::string_view kQueries[] = {"q_intra", "q_succ", "q_inter"};
  for (const ChunkPart part : kChunkParts) {
    const auto at = static_cast<size_t>(part);
    d.attention.queries.q[at] = reader.tensor(kQueries[at], {c->dtype}, "tokens H D");
  }
  call.k = reader.tensor("k", {c->dtype}, "keys Hk D");
  call.v = reader.tensor("v", {c->dtype}, "keys Hk D");
  call.cu_seqlens_q = reader.indices("cu_q", indptr_of(q_lens));
  call.cu_seqlens_k = reader.indices("cu_k", indptr_of(kv_lens));
  d.recorded_factors = reader.tensor("scaling", {DType::kF64}, "rows");
  c->reference.out = reader.reference("out_ref", "tokens H D");
  c->reference.lse = reader.reference("lse_ref", "tokens H");
  c->call = std::move(d);
}

}  // namespace shadowgraph
