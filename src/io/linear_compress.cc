// DeepSeek-V4's compressor: decode steps of both ratios, and pooling with norm and rotation.
#include <string>

#include "io/linear_case.h"

namespace shadowgraph {
namespace {

/// i32 [rows] from `low` to high - 1.
std::span<const int32_t> read_list(CaseReader& reader, std::string_view name, int64_t rows,
                                   int64_t low, int64_t high) {
  const std::span<const int32_t> list = reader.indices(name, rows);
  for (size_t r = 0; r < list.size(); ++r) {
    if (list[r] >= low && list[r] < high) continue;
    reader.bad_tensor(name, std::to_string(low) + " to " + std::to_string(high - 1),
                      std::to_string(list[r]), static_cast<int64_t>(r));
    return {};
  }
  return list;
}

/// emits says of each token whether it ends a block; so the other rows of out are not valid.
void read_emits(CaseReader& reader, const Compress& call, LinearVector* vector) {
  const auto tokens = std::ssize(call.seq_lens);
  const std::span<const uint8_t> emits = reader.bytes("emits", tokens);
  for (size_t t = 0; t < emits.size() && reader.ok(); ++t) {
    const int expected = call.emits(static_cast<int64_t>(t)) ? 1 : 0;
    if (emits[t] == expected) continue;
    reader.bad_tensor("emits", std::to_string(expected) + ", as seq_lens says",
                      std::to_string(emits[t]), static_cast<int64_t>(t));
    return;
  }
  vector->out_valid.assign(emits.begin(), emits.end());
}

/// Each row is one token of a request of its own.
void read_decode(CaseReader& reader, LinearVector* vector) {
  Compress call;
  const int32_t ratio = vector->kind.starts_with("c128") ? 128 : 4;
  call.shape.ratio = reader.integer("ratio", ratio, ratio);
  const int64_t dim = read_dim(reader, "head_dim");
  const RowLengths lengths = same_lens(reader, "indices", 1);
  if (!reader.ok()) return;
  const int64_t rows = lengths.rows(), width = call.shape.channels() * dim;
  call.cu_seqlens_q = reader.own(indptr_of(lengths.lens));
  vector->dtype = reader.tensor_dtype("kv_score_input");
  call.kv_score = reader.tensor("kv_score_input", {vector->dtype}, {rows, width});
  call.ape = reader.tensor("ape", {DType::kF32}, {call.shape.window(), dim});
  const StateType state = {DType::kF32, {ratio, width}};
  call.state = read_pool(reader, state, "buffer_before", "buffer_after", vector);
  if (!reader.ok()) return;
  const int64_t pages = call.state.shape[0];
  vector->reference.states = reader.tensor("buffer_ref", {DType::kF32}, {pages, ratio, width});
  call.seq_lens = read_list(reader, "seq_lens", rows, 1, kMaxVectorTokens);
  call.indices = read_list(reader, "indices", rows, 0, pages);
  call.extra = read_list(reader, "extra", rows, 0, pages);
  if (!reader.ok()) return;
  read_emits(reader, call, vector);
  vector->recorded.out = reader.tensor("out", {vector->dtype}, {rows, dim});
  vector->reference.out = read_reference(reader, "out_ref", {rows, dim});
  call.out = without_memory(vector->recorded.out);
  vector->call = CompressCase(call);
}

void read_pool_norm_rope(CaseReader& reader, LinearVector* vector) {
  PoolNormRope call;
  call.shape.ratio = reader.integer("ratio", 4, 128);
  if (reader.ok() && call.shape.ratio != 4 && call.shape.ratio != 128)
    reader.bad_field("ratio", "4 or 128", std::to_string(call.shape.ratio));
  const int64_t dim = read_dim(reader, "head_dim"), rope = read_dim(reader, "rope_dim");
  if (reader.ok() && (rope % 2 != 0 || rope > dim))
    reader.bad_field("rope_dim", "even, and at most " + std::to_string(dim), std::to_string(rope));
  call.eps = reader.positive("rms_eps");
  known_flag(reader, "overlap", call.shape.overlaps());
  if (!reader.ok()) return;
  vector->dtype = reader.tensor_dtype("kv_score");
  const int64_t width = call.shape.channels() * dim;
  call.kv_score = reader.tensor("kv_score", {vector->dtype}, {-1, call.shape.window(), width});
  if (!reader.ok()) return;
  const int64_t blocks = call.kv_score.shape[0];
  call.ape = reader.tensor("ape", {DType::kF32}, {call.shape.ratio, call.shape.halves() * dim});
  call.weight = reader.tensor("rms_weight", {DType::kF32}, {dim});
  call.freqs = reader.tensor("freqs", {DType::kF32}, {blocks, rope});
  vector->recorded.out = reader.tensor("out", {reader.tensor_dtype("out")}, {blocks, dim});
  vector->reference.out = read_reference(reader, "out_ref", {blocks, dim});
  call.out = without_memory(vector->recorded.out);
  vector->call = CompressCase(call);
}

constexpr LinearKind kKinds[] = {
    {"c4_decode", read_decode},
    {"c128_decode", read_decode},
    {"pool_norm_rope", read_pool_norm_rope},
};

}  // namespace

std::span<const LinearKind> compress_kinds() { return kKinds; }

}  // namespace shadowgraph
