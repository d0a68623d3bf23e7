// A backend's twin on the simulated device: bound for a bucket of two requests, recorded once, and
// replayed for two batches that it had not seen. Each result is that of one call on the same cache.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "shadowgraph/shadowgraph.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kBucket = 2, kPageSize = 2, kPages = 8, kHeads = 2, kDim = 4, kContext = 8;

void require(const Status& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.to_string().c_str());
  std::exit(1);
}

// One layer of a small model.
ModelConfig model() {
  ModelConfig m;
  m.max_context_len = kContext;
  m.page_size = kPageSize;
  m.layers.emplace_back().params = {.num_qo_heads = kHeads,
                                    .num_kv_heads = 1,
                                    .head_dim_qk = kDim,
                                    .head_dim_vo = kDim,
                                    .sm_scale = 0.5f,
                                    .causal = true};
  return m;
}

// One layer's tensors. Of K and V a granule is a slot, of the others a row.
struct Tensors {
  Buffer q, new_k, new_v, k, v, out;
};

Buffer bind(Arena arena, const char* name, std::vector<int64_t> shape, int64_t granule) {
  const BufferSpec spec{name, DType::kF32, std::move(shape), Lifetime::kPersistent, granule};
  std::vector<Buffer> buffers;
  require(arena.bind({&spec, 1}, &buffers));
  return buffers[0];
}

// Any values, others with every seed.
void write(Arena arena, const Buffer& buffer, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(buffer.numel()));
  for (float& x : values) {
    seed = seed * 1664525 + 1013904223;
    x = static_cast<float>(seed >> 24) / 256 - 0.5f;
  }
  require(arena.write<float>(buffer, 0, values));
}

// Decodes: each request has seq_lens[i] tokens with the new one, in slots that its row names.
struct Decodes {
  std::vector<int32_t> req_to_token, req_pool_indices, seq_lens;
  std::vector<int64_t> out_cache_loc;  // where the new tokens go

  ForwardBatch batch() const {
    ForwardBatch b;
    b.mode = ForwardMode::kDecode;
    b.req_pool_indices = req_pool_indices;
    b.seq_lens = seq_lens;
    b.req_to_token = {req_to_token, kContext};
    b.out_cache_loc = out_cache_loc;
    return b;
  }
};

// The same attention, from the requests alone.
std::vector<float> expected(const Decodes& d, const Tensors& t) {
  const auto n = static_cast<int64_t>(d.seq_lens.size());
  const TokenTable table = d.batch().req_to_token;
  std::vector<int32_t> pages;
  for (const int32_t row : d.req_pool_indices)
    for (int32_t c = 0; c < kContext; c += kPageSize)
      pages.push_back(table.row(row)[static_cast<size_t>(c)] / kPageSize);
  std::vector<float> out(static_cast<size_t>(n) * kHeads * kDim);
  PagedAttention call;
  call.q = ConstTensorView(t.q.data, DType::kF32, {n, kHeads, kDim});
  call.cache = KvCache::nhd(t.k.view(), t.v.view());
  call.pages = PageTable::dense(pages, kContext / kPageSize, d.seq_lens);
  call.params = model().layers[0].params;
  call.out = TensorView(out.data(), DType::kF32, {n, kHeads, kDim});
  require(attention_with_kvcache(call));
  return out;
}

Tensors bind_layer(const Arena& arena) {
  Tensors t;
  t.q = bind(arena, "q", {kBucket, kHeads, kDim}, kHeads * kDim);
  t.new_k = bind(arena, "new_k", {kBucket, 1, kDim}, kDim);
  t.new_v = bind(arena, "new_v", {kBucket, 1, kDim}, kDim);
  t.k = bind(arena, "k", {kPages, kPageSize, 1, kDim}, kDim);
  t.v = bind(arena, "v", {kPages, kPageSize, 1, kDim}, kDim);
  t.out = bind(arena, "out", {kBucket, kHeads, kDim}, kHeads * kDim);
  write(arena, t.k, 1);
  write(arena, t.v, 2);
  return t;
}

}  // namespace

int main() {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Stream stream(device);
  const Tensors t = bind_layer(arena);

  LayerIo io;
  io.q = t.q.view(), io.k = t.new_k.view(), io.v = t.new_v.view(), io.out = t.out.view();
  io.cache = KvCache::nhd(t.k.view(), t.v.view());
  StepIo step;
  step.layers = {&io, 1};

  const Backend* backend = find_backend("flashattention");
  Meta meta;
  const Limits limits = Limits::bucket(ForwardMode::kDecode, kBucket, 1, model());
  require(backend->bind(arena.scope("decode"), limits, &meta));
  Graph graph;
  GraphExec exec;
  require(Graph::record(
      stream, [&](Stream& s) { backend->forward(s, meta, step); }, &graph));
  require(GraphExec::instantiate(graph, &exec));

  const auto right = [&](const Decodes& d, uint32_t seed) {
    arena.begin_step();
    write(arena, t.q, seed);
    write(arena, t.new_k, seed + 1);
    write(arena, t.new_v, seed + 2);
    require(backend->fill(d.batch(), meta));
    require(arena.upload(stream.handle()));
    exec.replay(stream);
    stream.synchronize();
    require(stream.take_status());
    require(device.take_findings());
    const std::vector<float> wanted = expected(d, t);
    const auto* got = reinterpret_cast<const float*>(t.out.data);
    const bool same = std::equal(wanted.begin(), wanted.end(), got);
    std::printf("requests: %zu of at most %d: %s\n", d.seq_lens.size(), kBucket,
                same ? "the same bits" : "not the same");
    return same;
  };
  // Row 0 is padding's, and so is page 0. Pages 3 5 6 and 1 2; then row 2 alone, one token on.
  const std::vector<int32_t> rows = {0, 0, 0,  0,  0,  0, 0, 0,  //
                                     6, 7, 10, 11, 12, 0, 0, 0,  //
                                     2, 3, 4,  5,  0,  0, 0, 0};
  const bool both = right({rows, {1, 2}, {5, 3}, {12, 4}}, 10);
  const bool one = right({rows, {2}, {4}, {5}}, 20);

  // What a backend cannot serve is said, all of it, and nothing is written.
  const Decodes three{rows, {1, 2, 1}, {5, 3, 5}, {12, 4, 12}};
  const Status refused = backend->fill(three.batch(), meta);
  std::printf("%s\n", refused.to_string().c_str());
  return both && one && !refused.ok() ? 0 : 1;
}
