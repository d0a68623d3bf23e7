#include "check/runner_world.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "backends/rows.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 23;

size_t row_bytes(const Buffer& b) {
  return b.bytes() / static_cast<size_t>(std::max<int64_t>(1, b.shape[0]));
}

/// Of a pool [pages, page_size, heads, head_dim].
size_t slot_bytes(const Buffer& b) {
  return static_cast<size_t>(b.shape[2] * b.shape[3]) * sizeof(float);
}

/// Whole vectors are written at a time.
BufferSpec f32(const char* name, std::vector<int64_t> shape, Lifetime lifetime) {
  const int64_t granule = shape.back();
  return {name, DType::kF32, std::move(shape), lifetime, granule};
}

TensorView first_rows(const Buffer& b, int64_t rows) {
  TensorView v = b.view();
  v.shape[0] = rows;
  return v;
}

}  // namespace

RunnerWorld::RunnerWorld(const ModelConfig& model, const RunnerOptions& options, bool whole_draft)
    : device(options.device),
      arena(device, kArenaBytes),
      stream(device),
      model_(model),
      steps_(whole_draft ? static_cast<size_t>(std::max(1, model.num_steps - 1)) : 1),
      rng_(Rng::stream(options.seed, 0)),
      uniform_(options.uniform),
      ready_(bind(options)) {}

Status RunnerWorld::bind(const RunnerOptions& options) {
  Status status;
  layers_.resize(model_.layers.size());
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    status.add(bind_layer(kind, options, &layers_[kind]));
    const int64_t slots = layers_[kind].swa ? options.swa_slots : options.slots;
    owners_.emplace_back(static_cast<size_t>(slots));
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

Status RunnerWorld::bind_layer(size_t kind, const RunnerOptions& o, Layer* layer) {
  const LayerKind& k = model_.layers[kind];
  const AttentionParams& p = k.params;
  layer->swa = in_window_pool(model_, k);
  layer->latent = k.mla;
  const int64_t slots = layer->swa ? o.swa_slots : o.slots;
  const int64_t pages = slots / model_.page_size;
  const std::vector<BufferSpec> specs = {
      f32("k_cache", {pages, model_.page_size, p.num_kv_heads, p.head_dim_qk},
          Lifetime::kPersistent),
      f32("v_cache", {pages, model_.page_size, p.num_kv_heads, p.head_dim_vo},
          Lifetime::kPersistent)};
  Arena scope = arena.scope("layer" + std::to_string(kind));
  std::vector<Buffer> bound;
  Status status = scope.bind(specs, &bound);
  layer->steps.resize(steps_);
  for (size_t s = 0; s < steps_ && status.ok(); ++s) {
    const Arena of_step = s == 0 ? scope : scope.scope("step" + std::to_string(s));
    status.add(bind_tensors(p, o.max_tokens, of_step, &layer->steps[s]));
  }
  if (!status.ok()) return status;
  layer->k_cache = std::move(bound[0]), layer->v_cache = std::move(bound[1]);
  // The sink is read for padding rows, and holds numbers.
  for (const Buffer* b : {&layer->k_cache, &layer->v_cache}) {
    if (pages > 0) stream.fill(b->data, 0, row_bytes(*b));
  }
  return status;
}

Status RunnerWorld::bind_tensors(const AttentionParams& p, int64_t tokens, Arena scope,
                                 Tensors* to) {
  std::vector<BufferSpec> specs = {
      f32("q", {tokens, p.num_qo_heads, p.head_dim_qk}, Lifetime::kPersistent),
      f32("k", {tokens, p.num_kv_heads, p.head_dim_qk}, Lifetime::kPersistent),
      f32("v", {tokens, p.num_kv_heads, p.head_dim_vo}, Lifetime::kPersistent),
      f32("out", {tokens, p.num_qo_heads, p.head_dim_vo}, Lifetime::kOutput),
      f32("lse", {tokens, p.num_qo_heads}, Lifetime::kOutput)};
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
  const Layer& l = layers_[kind];
  const Tensors& t = l.steps[step];
  LayerIo io;
  io.kind = static_cast<int32_t>(kind);
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
    return io;
  }
  TensorView latent = l.k_cache.view();
  latent.rank = 3;
  latent.shape[2] = latent.shape[3];
  latent.stride[2] = 1;
  io.cache = KvCache::mla_latent(latent, k.params.head_dim_vo);
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

void RunnerWorld::upload(const Buffer& b, const void* values, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(values);
  in_flight_.emplace_back(from, from + bytes);
  stream.copy(b.data, in_flight_.back().data(), bytes);
}

void RunnerWorld::randomise(const Buffer& b, bool zero) {
  std::vector<float> values(static_cast<size_t>(b.numel()));
  if (!zero) {
    for (float& x : values) x = rng_.signed_unit();
  }
  upload(b, values.data(), b.bytes());
}

void RunnerWorld::clear_outputs() {
  for (const Buffer* b : outputs()) stream.fill(b->data, 0xff, b->bytes());
}

void RunnerWorld::forget_new_tokens(const ForwardBatch& batch) {
  for (const ForwardBatch& step : steps_of(batch)) forget_new_tokens_of(step);
}

void RunnerWorld::forget_new_tokens_of(const ForwardBatch& batch) {
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    for (const int32_t slot : canonical_rows(batch, model_.layers[kind], model_).stored) {
      if (slot < 0) continue;
      for (const Buffer* b : caches(layers_[kind]))
        stream.fill(b->data + static_cast<size_t>(slot) * slot_bytes(*b), 0xff, slot_bytes(*b));
    }
  }
}

void RunnerWorld::forget_owners() {
  for (Owners& of_layer : owners_) std::ranges::fill(of_layer, std::vector<OwnerId>{});
}

void RunnerWorld::begin_step(const Step& step) {
  const ForwardBatch batch = step.batch();
  stream.synchronize();
  in_flight_.clear();
  arena.begin_step();
  tokens_ = Limits::exact(batch, model_).tokens;
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    const Layer& l = layers_[kind];
    for (const Tensors& t : l.steps) {
      randomise(t.q, uniform_);
      randomise(t.k, false);
      randomise(t.v, false);
    }
    for (const ForwardBatch& of_step : steps_of(batch)) own(of_step, kind, step.requests);
    // What is copied are text tokens.
    for (const SlotCopy& c : step.copies) {
      if (!model_.layers[kind].cross) copy_slot(l, c, step.full_to_swa);
    }
  }
  if (req_to_token_.data != nullptr)
    upload(req_to_token_, step.req_to_token.data(), step.req_to_token.size() * sizeof(int32_t));
  if (full_to_swa_.data != nullptr)
    upload(full_to_swa_, step.full_to_swa.data(), step.full_to_swa.size() * sizeof(int64_t));
  device.set_row_owners(step.requests);
  clear_outputs();
  stream.synchronize();
}

void RunnerWorld::own(const ForwardBatch& batch, size_t kind, std::span<const OwnerId> owners) {
  const Layer& l = layers_[kind];
  const CanonicalRows rows = canonical_rows(batch, model_.layers[kind], model_);
  const auto per_request =
      batch.size() == 0 ? 1 : static_cast<int64_t>(rows.keys.size()) / batch.size();
  for (size_t r = 0; r < rows.keys.size(); ++r) {
    const OwnerId owner = owners[r / static_cast<size_t>(per_request)];
    for (const int32_t slot : rows.old_keys(r)) {
      if (slot < model_.page_size) continue;  // evicted from its window
      // A history may begin in the middle: what was stored before it is written here.
      if (owners_[kind][static_cast<size_t>(slot)].empty()) write_slot(l, slot);
      set_owner(l, slot, owner, false);
    }
    for (const int32_t slot : rows.stored_by(r)) {
      if (slot < 0) continue;
      if (batch.mode == ForwardMode::kPrebuilt) write_slot(l, slot);
      set_owner(l, slot, owner, true);
    }
  }
}

void RunnerWorld::set_owner(const Layer& l, int32_t slot, OwnerId owner, bool alone) {
  auto& mine = owners_[static_cast<size_t>(&l - layers_.data())][static_cast<size_t>(slot)];
  if (!alone && std::ranges::find(mine, owner) != mine.end()) return;
  alone = alone || mine.empty();
  if (alone) mine.clear();
  mine.push_back(owner);
  for (const Buffer* b : caches(l)) {
    const int64_t elements = b->shape[2] * b->shape[3];
    const Elements range{slot * elements, elements};
    ready_.add(alone ? arena.set_owner(*b, range, owner) : arena.add_owner(*b, range, owner));
  }
}

void RunnerWorld::write_slot(const Layer& l, int32_t slot) {
  for (const Buffer* b : caches(l)) {
    std::vector<float> values(static_cast<size_t>(b->shape[2] * b->shape[3]));
    for (float& x : values) x = rng_.signed_unit();
    const size_t bytes = values.size() * sizeof(float);
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    in_flight_.emplace_back(from, from + bytes);
    stream.copy(b->data + static_cast<size_t>(slot) * bytes, in_flight_.back().data(), bytes);
  }
}

void RunnerWorld::copy_slot(const Layer& l, SlotCopy c, std::span<const int64_t> full_to_swa) {
  assert(model_.dcp_size == 1);  // ranks have chains, of which what is accepted stays where it is
  if (l.swa) {
    c.from = static_cast<int32_t>(full_to_swa[static_cast<size_t>(c.from)]);
    c.to = static_cast<int32_t>(full_to_swa[static_cast<size_t>(c.to)]);
  }
  for (const Buffer* b : caches(l)) {
    const size_t bytes = slot_bytes(*b);
    stream.copy(b->data + static_cast<size_t>(c.to) * bytes,
                b->data + static_cast<size_t>(c.from) * bytes, bytes);
  }
  const Owners& owners = owners_[static_cast<size_t>(&l - layers_.data())];
  bool alone = true;
  for (const OwnerId owner : std::vector(owners[static_cast<size_t>(c.from)]))
    set_owner(l, c.to, owner, std::exchange(alone, false));
}

void RunnerWorld::keep_outputs() {
  kept_.clear();
  for (const Buffer* b : outputs()) {
    const size_t bytes = row_bytes(*b) * static_cast<size_t>(tokens_);
    kept_.insert(kept_.end(), b->data, b->data + bytes);
  }
}

Status RunnerWorld::same_outputs() const {
  Status status;
  const std::byte* kept = kept_.data();
  for (const Buffer* b : outputs()) {
    const size_t row = row_bytes(*b);
    for (int64_t t = 0; t < tokens_; ++t, kept += row) {
      if (std::memcmp(kept, b->data + static_cast<size_t>(t) * row, row) == 0) continue;
      status.add(make_finding("num.bits", at(b->name, t), "the bits of the eager step",
                              "others in the replay"));
      kept += row * static_cast<size_t>(tokens_ - t);
      break;
    }
  }
  return status;
}

Status RunnerWorld::check_stored(const CanonicalRows& rows, const LayerIo& io) const {
  Status status;
  if (!io.k.defined()) return status;
  const Layer& l = layers_[static_cast<size_t>(io.kind)];
  for (size_t t = 0; t < rows.stored.size(); ++t) {
    const int32_t slot = rows.stored[t];
    const auto differs = [&](const Buffer& cache, const ConstTensorView& given) {
      const size_t bytes = slot_bytes(cache);
      return std::memcmp(cache.data + static_cast<size_t>(slot) * bytes, given.data + t * bytes,
                         bytes) != 0;
    };
    if (slot < 0 || !(differs(l.k_cache, io.k) || (!l.latent && differs(l.v_cache, io.v))))
      continue;
    status.add(make_finding("slot.write", at("out_cache_loc", static_cast<int64_t>(t)),
                            "its K and V in slot " + std::to_string(slot), "others there"));
    return status;
  }
  return status;
}

}  // namespace shadowgraph
