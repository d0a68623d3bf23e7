#include "check/worlds/runner_world.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "attn/validate/shared_bytes.h"

namespace shadowgraph {
namespace {

/// Fresh memory is poisoned, so small histories have a small arena.
size_t arena_bytes(const RunnerOptions& o) {
  if (has_wide_pools(o)) return size_t{1} << 39;
  return size_t{1} << (o.slots > 256 || o.max_tokens > 64 ? 26 : 23);
}

std::unique_ptr<SimDevice> device_of(const RunnerOptions& o) {
  if (o.make_device) return o.make_device(o.device);
  SimOptions device = o.device;
  if (has_wide_pools(o)) device.memory_bytes += arena_bytes(o);
  std::unique_ptr<SimDevice> substitute = o.tap != nullptr ? o.tap->device(device) : nullptr;
  return substitute != nullptr ? std::move(substitute) : std::make_unique<SimDevice>(device);
}

size_t steps_of(const Backend& backend, const ModelConfig& model) {
  return backend.info().whole_draft ? static_cast<size_t>(std::max(1, model.num_steps - 1)) : 1;
}

/// Tensors and pools that a layer brings beside q, k, v, out, LSE and cache.
std::vector<ConstTensorView> tensors_of(std::monostate) { return {}; }
std::vector<ConstTensorView> tensors_of(const RecurrentTensors* t) {
  return {t->x,
          t->weight,
          t->conv_bias,
          t->gate,
          t->a_log,
          t->dt_bias,
          t->b,
          t->skip,
          t->z,
          t->log_decay,
          t->conv_states,
          t->states,
          t->draft_conv_states,
          t->draft_states};
}
std::vector<ConstTensorView> tensors_of(const SparseTensors* t) {
  return {t->index_q,       t->index_weights, t->index_k,
          t->index_k_scale, t->index_pages,   t->latents.data};
}
std::vector<ConstTensorView> tensors_of(const V4Tensors* t) {
  return {t->latents,      t->kv_score, t->ape,         t->weight,     t->freqs,
          t->index_scores, t->state,    t->blocks.data, t->tokens.data};
}

/// Each kind of layer has these for its own.
std::vector<LayerBytes> own_bytes(std::span<const LayerIo> layers) {
  std::vector<LayerBytes> all;
  for (const LayerIo& io : layers) {
    const auto own = std::visit([](const auto& t) { return tensors_of(t); }, io.own);
    std::vector<ConstTensorView> views = {io.q, io.k, io.v, io.out, io.lse.tensor};
    views.insert(views.end(), own.begin(), own.end());
    for (const ConstTensorView& t : views) {
      int64_t first = 0, last = 0;
      if (t.data == nullptr || t.numel() == 0 || !element_range(t, &first, &last)) continue;
      all.push_back({t.data, static_cast<size_t>(last + 1) * size_of(t.dtype), io.kind});
    }
    for (const KvPlane* p : {&io.cache.k, &io.cache.v})
      if (p->data != nullptr) all.push_back({p->data, 1, io.kind});
  }
  return all;
}

}  // namespace

RunnerWorld::RunnerWorld(const Backend& backend, const ModelConfig& model,
                         const RunnerOptions& options)
    : device(device_of(options)),
      arena(*device, arena_bytes(options)),
      streams(*device, options),
      model_(model),
      options_(options),
      steps_(steps_of(backend, model)),
      rng_(Rng::stream(options.seed, 0)),
      copies_(streams.pools()),
      ready_(bind(backend)) {}

Status RunnerWorld::bind(const Backend& backend) {
  Status status;
  for (size_t kind = 0; kind < model_.layers.size(); ++kind) {
    const Arena scope = arena.scope("layer" + std::to_string(kind));
    layers_.push_back(
        make_layer_world({backend, model_, options_, kind, steps_, scope, streams, rng_}));
    status.add(layers_.back()->bind());
    if (const std::span<const float> sinks = layers_.back()->sinks(); !sinks.empty())
      model_.layers[kind].params.sinks = sinks;
  }
  if (model_.in_graph_tables) status.add(bind_tables());
  if (status.ok()) device->set_layers(own_bytes(layers(options_.max_tokens)));
  for (Stream* s : {&streams.forward(), &streams.pools()}) s->synchronize();
  status.add(streams.take_status());
  return status;
}

Status RunnerWorld::bind_tables() {
  const RunnerOptions& o = options_;
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

/// Is there work on the pools before the step?
bool RunnerWorld::moves_pools(const Step& step) const {
  return (first_ && ran_) || !step.copies.empty() || !step.state_moves.empty() ||
         step.mode == ForwardMode::kPrebuilt || req_to_token_.data != nullptr;
}

void RunnerWorld::begin_step(const Step& step) {
  const ForwardBatch batch = step.batch();
  streams.settle();
  copies_.clear();
  if (moves_pools(step)) streams.wait(StreamWait::kPoolsOnForward);
  arena.begin_step();
  for (const auto& layer : layers_) {
    begun_.add(layer->move_states(step));
    begun_.add(layer->begin_step(step, batch, first_));
  }
  first_ = first_ && step.requests.empty();
  if (req_to_token_.data != nullptr) copies_.copy(req_to_token_.data, step.req_to_token);
  if (full_to_swa_.data != nullptr) copies_.copy(full_to_swa_.data, step.full_to_swa);
  device->set_row_owners(step.requests);
  streams.wait(StreamWait::kForwardOnPools);
  ran_ = true;
  for (const auto& layer : layers_) layer->clear_outputs();
  streams.settle();
}

Status RunnerWorld::pass(const Step& step) {
  Status status;
  const ForwardBatch batch = step.batch();
  streams.settle();
  streams.wait(StreamWait::kPoolsOnForward);
  for (const auto& layer : layers_) {
    status.add(layer->move_states(step));
    layer->receive(step, batch, first_);
  }
  first_ = false;
  return status;
}

void RunnerWorld::rewind() {
  for (const auto& layer : layers_) layer->clear_outputs();
  for (const auto& layer : layers_) layer->rewind();
}

void RunnerWorld::begin_history(uint64_t number) {
  rng_ = Rng::stream(options_.seed + number, 0);
  first_ = true;
  for (const auto& layer : layers_) layer->begin_history(number);
}

std::vector<LayerIo> RunnerWorld::layers(int64_t tokens) const {
  std::vector<LayerIo> all;
  for (size_t step = 0; step < steps_; ++step) {
    for (size_t kind = 0; kind < layers_.size(); ++kind) {
      LayerIo& io = all.emplace_back();
      io.kind = static_cast<int32_t>(kind);
      layers_[kind]->describe(tokens, step, &io);
    }
  }
  return all;
}

Status RunnerWorld::judge_outputs(const ForwardBatch& batch, const Limits& limits) const {
  Status status;
  for (size_t step = 0; step < steps_; ++step)
    for (const auto& layer : layers_) status.add(layer->judge_outputs(batch, step, limits));
  return status;
}

void RunnerWorld::keep_outputs() {
  for (const auto& layer : layers_) layer->keep_outputs();
}

Status RunnerWorld::same_outputs() const {
  Status status;
  for (const auto& layer : layers_) status.add(layer->same_outputs());
  return status;
}

Status RunnerWorld::check_stored(const ForwardBatch& batch) const {
  Status status;
  for (size_t step = 0; step < steps_; ++step) {
    for (const auto& layer : layers_)
      if (status.ok()) status = layer->check_stored(batch, step);
  }
  return status;
}

Status RunnerWorld::judge_alone(const ForwardBatch& batch) {
  Status status;
  for (const auto& layer : layers_) status.add(layer->judge_alone(batch));
  return status;
}

}  // namespace shadowgraph
