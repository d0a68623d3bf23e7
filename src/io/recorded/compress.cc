// DeepSeek-V4's compressor: decode steps of both ratios, and pooling with norm and rotation.
#include <string>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {

/// Each row is one token of a request of its own. emits: the tokens that end a block; the other
/// rows of out are not valid.
void read_compress(CaseReader& reader, RecordedCase* c) {
  Compress call;
  const int32_t ratio = c->kind.starts_with("c128") ? 128 : 4;
  call.shape.ratio = reader.integer("ratio", ratio, ratio);
  const int64_t dim = reader.dim("head_dim");
  const std::vector<int32_t> lens = read_equal_lens(reader, "indices", 1);
  if (!reader.ok()) return;
  reader.bind("width", call.shape.channels() * dim);
  reader.bind("window", call.shape.window());
  call.cu_seqlens_q = reader.own(indptr_of(lens));
  c->dtype = reader.tensor_dtype("kv_score_input");
  call.kv_score = reader.tensor("kv_score_input", {c->dtype}, "rows width");
  call.ape = reader.f32("ape", "window head_dim");
  const StateType state = {DType::kF32, "ratio width"};
  call.state = read_pool(reader, state, "buffer_before", "buffer_after", c);
  if (!reader.ok()) return;
  const int64_t pages = call.state.shape[0];
  c->reference.states = reader.f32("buffer_ref", "slots ratio width");
  call.seq_lens = reader.i32("seq_lens", "rows");
  call.indices = reader.i32("indices", "rows");
  call.extra = reader.i32("extra", "rows");
  reader.in_range("seq_lens", call.seq_lens, 1, kMaxVectorTokens - 1);
  reader.in_range("indices", call.indices, 0, pages - 1);
  reader.in_range("extra", call.extra, 0, pages - 1);
  if (!reader.ok()) return;
  const std::span<const uint8_t> emits = reader.bytes("emits", "rows");
  const auto expected = [&](size_t t) { return call.emits(static_cast<int64_t>(t)); };
  reader.all_as("emits", emits, expected, "seq_lens says");
  c->out_valid.assign(emits.begin(), emits.end());
  c->gpu().out = reader.tensor("out", {c->dtype}, "rows head_dim");
  c->reference.out = reader.reference("out_ref", "rows head_dim");
  call.out = without_memory(c->gpu().out);
  c->call = call;
}

void read_pool_norm_rope(CaseReader& reader, RecordedCase* c) {
  PoolNormRope call;
  call.shape.ratio = reader.integer("ratio", 4, 128);
  if (reader.ok() && call.shape.ratio != 4 && call.shape.ratio != 128)
    reader.bad_field("ratio", "4 or 128", std::to_string(call.shape.ratio));
  const int64_t dim = reader.dim("head_dim"), rope = reader.dim("rope_dim");
  if (reader.ok() && (rope % 2 != 0 || rope > dim))
    reader.bad_field("rope_dim", "even, and at most " + std::to_string(dim), std::to_string(rope));
  call.eps = reader.positive("rms_eps");
  reader.known_flag("overlap", call.shape.overlaps());
  if (!reader.ok()) return;
  c->dtype = reader.tensor_dtype("kv_score");
  reader.bind("window", call.shape.window());
  reader.bind("width", call.shape.channels() * dim);
  reader.bind("of_members", call.shape.halves() * dim);
  call.kv_score = reader.tensor("kv_score", {c->dtype}, "blocks window width");
  if (!reader.ok()) return;
  call.ape = reader.f32("ape", "ratio of_members");
  call.weight = reader.f32("rms_weight", "head_dim");
  call.freqs = reader.f32("freqs", "blocks rope_dim");
  c->gpu().out = reader.tensor("out", {reader.tensor_dtype("out")}, "blocks head_dim");
  c->reference.out = reader.reference("out_ref", "blocks head_dim");
  call.out = without_memory(c->gpu().out);
  c->call = call;
}

}  // namespace shadowgraph
