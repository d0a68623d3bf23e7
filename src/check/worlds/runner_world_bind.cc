// The buffers of a runner's world, and the layers that they are.
#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "attn/tensor_rows.h"
#include "backends/fill/rows.h"
#include "check/mistakes/diagnose.h"
#include "check/worlds/runner_world.h"

namespace shadowgraph {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 23;

TensorView first_rows(const Buffer& b, int64_t rows) { return rows_of(b.view(), 0, rows); }

std::unique_ptr<SimDevice> device_of(const RunnerOptions& o) {
  if (o.make_device) return o.make_device(o.device);
  return o.tap != nullptr ? o.tap->device(o.device) : std::make_unique<SimDevice>(o.device);
}

}  // namespace

RunnerWorld::RunnerWorld(const ModelConfig& model, const RunnerOptions& options, bool whole_draft)
    : device(device_of(options)),
      arena(*device, kArenaBytes),
      stream(*device),
      model_(model),
      options_(options),
      steps_(whole_draft ? static_cast<size_t>(std::max(1, model.num_steps - 1)) : 1),
      rng_(Rng::stream(options.seed, 0)),
      data_(options.data),
      kv_dtype_(options.kv_dtype),
      k_scale_(options.k_scale),
      v_scale_(options.v_scale),
      copies_(stream),
      ready_(bind(options_)) {}

Status RunnerWorld::bind(const RunnerOptions& options) {
  Status status;
  layers_.resize(model_.layers.size());
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    others_.push_back(nullptr);
    status.add(is_dense(kind) ? bind_layer(kind, options, &layers_[kind])
                              : bind_other(kind, options));
    const int64_t slots = layers_[kind].swa ? options.swa_slots : options.slots;
    owners_.emplace_back(slots);
  }
  if (model_.in_graph_tables) status.add(bind_tables(options));
  stream.synchronize();
  status.add(stream.take_status());
  return status;
}

Status RunnerWorld::bind_tables(const RunnerOptions& o) {
  std::vector<BufferSpec> specs = {{.name = "req_to_token",
                                    .shape = {o.pool_rows, o.pool_width},
                                    .lifetime = Lifetime::kPersistent}};
  if (model_.swa_pool)
    specs.push_back({.name = "full_to_swa",
                     .dtype = DType::kI64,
                     .shape = {o.slots + 1},  // index -1 is the last
                     .lifetime = Lifetime::kPersistent});
  std::vector<Buffer> bound;
  Status status = arena.scope("pool").bind(specs, &bound);
  if (!status.ok()) return status;
  req_to_token_ = std::move(bound[0]);
  if (model_.swa_pool) full_to_swa_ = std::move(bound[1]);
  return status;
}

Status RunnerWorld::bind_other(size_t kind, const RunnerOptions& options) {
  const LayerPlace place{model_, options, kind, arena.scope("layer" + std::to_string(kind)),
                         stream};
  others_[kind] = make_layer_world(place);
  assert(others_[kind] != nullptr);
  return others_[kind]->bind();
}

Status RunnerWorld::bind_layer(size_t kind, const RunnerOptions& o, Layer* layer) {
  const LayerKind& k = model_.layers[kind];
  const AttentionParams& p = k.params;
  layer->swa = in_window_pool(model_, k);
  layer->latent = k.mla;
  const int64_t slots = layer->swa ? o.swa_slots : o.slots;
  const int64_t pages = slots / model_.page_size;
  std::vector<BufferSpec> specs = {
      f32_vectors("k_cache", {pages, model_.page_size, p.num_kv_heads, p.head_dim_qk}),
      f32_vectors("v_cache", {pages, model_.page_size, p.num_kv_heads, p.head_dim_vo})};
  for (BufferSpec& spec : specs) spec.dtype = kv_dtype_;
  Arena scope = arena.scope("layer" + std::to_string(kind));
  std::vector<Buffer> bound;
  Status status = scope.bind(specs, &bound);
  layer->steps.resize(steps_);
  for (size_t s = 0; s < steps_ && status.ok(); ++s) {
    Arena of_step = scope;
    if (s > 0) of_step = scope.scope("step" + std::to_string(s));
    status.add(bind_tensors(k, o.max_tokens, of_step, &layer->steps[s]));
  }
  if (!status.ok()) return status;
  layer->k_cache = std::move(bound[0]), layer->v_cache = std::move(bound[1]);
  // The sink is read for padding rows, and is NaN: no other row may feel it.
  for (int64_t slot = 0; slot < slots && o.full_pools; ++slot)
    write_slot(*layer, static_cast<int32_t>(slot));
  for (const Buffer* b : {&layer->k_cache, &layer->v_cache}) {
    if (pages > 0 && !o.full_pools)
      stream.fill(b->data, kNanByte, b->bytes() / static_cast<size_t>(pages));
  }
  return status;
}

Status RunnerWorld::bind_tensors(const LayerKind& kind, int64_t tokens, Arena scope, Tensors* to) {
  const AttentionParams& p = kind.params;
  std::vector<BufferSpec> specs = {
      f32_vectors("q", {tokens, query_heads(kind), p.head_dim_qk}),
      f32_vectors("k", {tokens, p.num_kv_heads, p.head_dim_qk}),
      f32_vectors("v", {tokens, p.num_kv_heads, p.head_dim_vo}),
      f32_vectors("out", {tokens, p.num_qo_heads, p.head_dim_vo}, Lifetime::kOutput),
      f32_vectors("lse", {tokens, p.num_qo_heads}, Lifetime::kOutput)};
  specs.back().granule = 1;
  std::vector<Buffer> bound;
  Status status = scope.bind(specs, &bound);
  if (!status.ok()) return status;
  Buffer* const buffers[] = {&to->q, &to->k, &to->v, &to->out, &to->lse};
  for (size_t i = 0; i < bound.size(); ++i) *buffers[i] = std::move(bound[i]);
  return status;
}

std::vector<const Buffer*> RunnerWorld::caches(const Layer& l) {
  if (l.latent) return {&l.k_cache};
  return {&l.k_cache, &l.v_cache};
}

LayerIo RunnerWorld::io(size_t step, size_t kind, int64_t tokens) const {
  LayerIo io;
  io.kind = static_cast<int32_t>(kind);
  if (!is_dense(kind)) {
    others_[kind]->describe(tokens, &io);
    return io;
  }
  const Layer& l = layers_[kind];
  const Tensors& t = l.steps[step];
  io.q = first_rows(t.q, tokens);
  const LayerKind& k = model_.layers[kind];
  if (!k.cross) {
    io.k = first_rows(t.k, tokens);
    TensorView v = first_rows(l.latent ? t.k : t.v, tokens);
    v.shape[2] = k.params.head_dim_vo;
    io.v = v;
  }
  io.out = first_rows(t.out, tokens);
  io.lse = NaturalLse(first_rows(t.lse, tokens));
  if (!l.latent) {
    io.cache = KvCache::nhd(l.k_cache.view(), l.v_cache.view());
    io.cache.k_scale = k_scale_, io.cache.v_scale = v_scale_;
    return io;
  }
  TensorView latent = l.k_cache.view();
  latent.rank = 3;
  latent.shape[2] = latent.shape[3];
  latent.stride[2] = 1;
  io.cache = KvCache::mla_latent(latent, k.params.head_dim_vo);
  io.cache.k_scale = io.cache.v_scale = k_scale_;
  return io;
}

std::vector<LayerIo> RunnerWorld::layers(int64_t tokens) const {
  std::vector<LayerIo> all;
  for (size_t step = 0; step < steps_; ++step) {
    for (size_t kind = 0; kind < layers_.size(); ++kind) all.push_back(io(step, kind, tokens));
  }
  return all;
}

std::vector<ForwardBatch> RunnerWorld::steps_of(const ForwardBatch& batch) const {
  std::vector<ForwardBatch> all(steps_, batch);
  for (size_t s = 0; s < steps_; ++s) all[s].spec.step += static_cast<int32_t>(s);
  return all;
}

std::vector<const Buffer*> RunnerWorld::outputs() const {
  std::vector<const Buffer*> all;
  for (const Layer& l : layers_) {
    for (const Tensors& t : l.steps) all.insert(all.end(), {&t.out, &t.lse});
  }
  return all;
}

}  // namespace shadowgraph
