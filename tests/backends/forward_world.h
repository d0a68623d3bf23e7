// Layers of one step on a device: caches, queries and what forward leaves; and the one call that a
// query's result should be.
#pragma once

#include <string>
#include <vector>

#include "backends/fill/rows.h"
#include "backends/paged/flash_attention.h"
#include "backends/step_fixture.h"
#include "core/choices.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

inline constexpr int32_t kHeads = 2, kDim = 16, kPages = 48, kWindow = 2, kChunk = 4;
inline const FlashAttention kFa;

inline LayerKind kind(int32_t window_left = -1) {
  LayerKind k;
  k.params = {.num_qo_heads = kHeads,
              .num_kv_heads = 1,
              .head_dim_qk = kDim,
              .head_dim_vo = kDim,
              .sm_scale = 1,
              .causal = true,
              .window_left = window_left};
  return k;
}
/// All keys; a window; a chunk.
inline ModelConfig model(int32_t page_size) {
  ModelConfig m;
  m.max_context_len = 24;
  m.page_size = page_size;
  m.swa_pool = true, m.attention_chunk = kChunk;
  m.layers = {kind(), kind(kWindow), kind()};
  m.layers[2].local = true;
  return m;
}

/// The device's tensors of one layer a kind; both pools have what their slots say.
class World : public BoundStep {
 public:
  /// latent: K and V of a token are one row (MLA).
  explicit World(const Limits& limits, bool latent = false, const Backend& backend = kFa)
      : BoundStep(backend, limits), latent_(latent) {
    const ModelConfig& m = limits.model;
    for (size_t i = 0; i < m.layers.size(); ++i) {
      Tensors& t = layers_.emplace_back();
      const auto name = [&](const char* s) { return s + std::to_string(i); };
      const int64_t p = m.page_size, dim_qk = m.layers[i].params.head_dim_qk;
      t.q = bind(name("q"), {limits.tokens, kHeads, dim_qk}, kHeads * dim_qk);
      t.out = bind(name("out"), {limits.tokens, kHeads, kDim}, kHeads * kDim);
      t.new_k = bind(name("new_k"), {limits.tokens, 1, dim_qk}, dim_qk);
      t.new_v = bind(name("new_v"), {limits.tokens, 1, kDim}, kDim);
      t.k = bind(name("k"), {kPages, p, 1, dim_qk}, dim_qk);
      t.v = bind(name("v"), {kPages, p, 1, kDim}, kDim);
      for (const Buffer* b : {&t.q, &t.new_k, &t.new_v, &t.k, &t.v}) randomise(*b);
    }
  }

  float k_scale = 1, v_scale = 1;  // of latents

  struct Tensors {
    Buffer q, k, v, new_k, new_v, out;
  };
  std::vector<LayerIo> ios() const {
    std::vector<LayerIo> all;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Tensors& t = layers_[i];
      LayerIo& io = all.emplace_back();
      io.kind = static_cast<int32_t>(i);
      io.q = t.q.view(), io.out = t.out.view();
      io.cache = cache(t);
      if (meta.limits.model.layers[i].cross) continue;
      io.k = t.new_k.view(), io.v = t.new_v.view();
      if (latent_) io.v = io.k, io.v.shape[2] = kDim;
    }
    return all;
  }
  /// Eagerly, then as a replay of a graph that was recorded before the fill.
  void run(const ForwardBatch& batch) {
    const std::vector<LayerIo> all = ios();
    StepIo step;
    step.layers = all;
    if (meta.limits.model.in_graph_tables) {
      step.req_to_token = device_table(batch.req_to_token);
      step.full_to_swa = device_map(batch.full_to_swa);
    }
    const auto body = [&](Stream& s) { kFa.forward(s, meta, step); };
    Graph graph, again;
    GraphExec exec;
    Status status = Graph::record(stream(), body, &graph);
    status.add(GraphExec::instantiate(graph, &exec));
    status.add(fill(batch));
    status.add(Graph::record(stream(), body, &again));
    status.add(same_launches(graph, again));
    body(stream());
    stream().synchronize();
    const auto eager = outputs(batch);
    for (const Tensors& t : layers_) stream().fill(t.out.data, 0x55, t.out.bytes());
    arena().begin_step();
    status.add(fill(batch));
    exec.replay(stream());
    stream().synchronize();
    status.add(stream().take_status());
    status.add(device().take_findings());
    ASSERT_EQ(status.to_string(), "ok");
    ASSERT_TRUE(outputs(batch) == eager);
  }

  /// What one call gives for a query over these slots of layer i's pool.
  std::vector<float> expected(size_t i, int64_t query, const Ints& slots) const {
    const Tensors& t = layers_[i];
    const Ints lens{static_cast<int32_t>(slots.size())};
    std::vector<float> out(kHeads * kDim);
    PagedAttention c;
    c.q = ConstTensorView(t.q.view().at(query, 0, 0), DType::kF32, {1, kHeads, t.q.shape[2]});
    c.cache = slot_view(cache(t));
    c.pages = PageTable::dense(slots, lens[0], lens);
    c.params = meta.limits.model.layers[i].params;
    c.out = TensorView(out.data(), DType::kF32, {1, kHeads, kDim});
    const Status status = attention_with_kvcache(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return out;
  }
  std::vector<float> got(size_t i, int64_t query) const {
    const auto* row = reinterpret_cast<const float*>(layers_[i].out.view().at(query, 0, 0));
    return {row, row + kHeads * kDim};
  }
  /// Row of a buffer.
  static float* row(const Buffer& b, int64_t i) {
    return reinterpret_cast<float*>(b.data) + i * b.numel() / b.shape[0];
  }
  Buffer bind_values(const std::string& name, const std::vector<float>& values) {
    Buffer b = bind(name, {static_cast<int64_t>(values.size())}, 1);
    write(b, 0, values);
    return b;
  }
  const Tensors& layer(size_t i) const { return layers_[i]; }
  void write(const Buffer& b, int64_t first, const std::vector<float>& values) {
    EXPECT_TRUE(arena().write(b, first, std::span<const float>(values)).ok());
    EXPECT_TRUE(arena().upload(stream().handle()).ok());
  }

 private:
  KvCache cache(const Tensors& t) const {
    if (!latent_) return KvCache::nhd(t.k.view(), t.v.view());
    KvCache c = KvCache::mla_latent(
        TensorView(t.k.data, DType::kF32, {kPages, t.k.shape[1], t.k.shape[3]}), kDim);
    c.k_scale = k_scale, c.v_scale = v_scale;
    return c;
  }
  Buffer bind(const std::string& name, std::vector<int64_t> shape, int64_t granule,
              DType dtype = DType::kF32) {
    const BufferSpec spec{name, dtype, std::move(shape), Lifetime::kPersistent, granule};
    std::vector<Buffer> buffers;
    const Status status = arena().bind({&spec, 1}, &buffers);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return buffers.at(0);
  }
  void randomise(const Buffer& b) {
    std::vector<float> values(static_cast<size_t>(b.numel()));
    for (float& x : values) x = rng_.signed_unit();
    write(b, 0, values);
  }
  ConstTensorView device_table(const TokenTable& table) {
    const Buffer b = bind("req_to_token", {table.rows(), table.width}, 1, DType::kI32);
    EXPECT_TRUE(arena().write(b, 0, table.slots).ok());
    return b.view();
  }
  ConstTensorView device_map(std::span<const int64_t> map) {
    const Buffer b = bind("full_to_swa", {static_cast<int64_t>(map.size())}, 1, DType::kI64);
    EXPECT_TRUE(arena().write(b, 0, map).ok());
    return b.view();
  }
  /// The outputs of the batch's own queries.
  std::vector<std::byte> outputs(const ForwardBatch& batch) const {
    int64_t queries = 0;
    for (int64_t i = 0; i < batch.size(); ++i)
      queries += batch.mode == ForwardMode::kDraftDecode ? batch.spec.topk : batch.q_len(i);
    std::vector<std::byte> bytes;
    for (const Tensors& t : layers_)
      bytes.insert(bytes.end(), t.out.data, t.out.view().at(queries, 0, 0));
    return bytes;
  }

  const bool latent_;
  std::vector<Tensors> layers_;
  Rng rng_{1};
};

inline Ints tokens(const ForwardBatch& b, int64_t i, int32_t first, int32_t end) {
  const auto row = b.req_to_token.row(b.req_pool_indices[static_cast<size_t>(i)]);
  return {row.begin() + first, row.begin() + end};
}
inline Ints translated(const ForwardBatch& b, Ints slots) {
  for (int32_t& slot : slots) slot = translate(b.full_to_swa, slot);
  return slots;
}

}  // namespace shadowgraph
