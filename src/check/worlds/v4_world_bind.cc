// The buffers of a world of DeepSeek-V4.
#include <algorithm>
#include <utility>

#include "check/mistakes/diagnose.h"
#include "check/worlds/v4_world.h"

namespace shadowgraph {
namespace {

/// A pool of so many slots; whole pages where it has some.
BufferSpec pool(const char* name, const V4Layer& l, int64_t slots, int32_t page_size) {
  if (l.layout == LatentLayout::kRows) return f32_vectors(name, {slots, l.head_dim});
  BufferSpec spec{name,
                  DType::kU8,
                  {slots / page_size, v4_page_bytes(page_size)},
                  Lifetime::kPersistent,
                  kV4Scales};
  return spec;
}

}  // namespace

V4World::V4World(const LayerPlace& place, const V4Layer& layer)
    : place_(place),
      layer_(layer),
      scope_(place.scope),
      rng_(place.rng_of(0)),
      salt_(place.rng_of(0).next()),
      copies_(place.streams.forward()),
      moves_(place.streams.pools()) {}

Status V4World::bind() {
  Status status = bind_pools();
  if (status.ok()) status = bind_inputs();
  if (!status.ok()) return status;
  make_weights();
  // Padding's rows are whatever an older step has left.
  for (const Buffer* b : {&q_, &latents_, &kv_score_, &index_scores_})
    if (b->data != nullptr) copies_.copy(b->data, numbers(b->numel()));
  // Padding reads its slots, and no other row may feel it.
  for (const Shelf* s : std::as_const(*this).shelves()) {
    if (s == &state_) continue;
    for (int64_t slot = 0; slot < s->first && slot < std::ssize(s->defined); ++slot)
      for (const Elements e : s->places(slot)) {
        const std::span<std::byte> at = bytes_at(s->buffer, e);
        place_.streams.forward().fill(at.data(), kNanByte, at.size());
      }
  }
  place_.streams.settle();
  return status;
}

Status V4World::bind_pools() {
  const RunnerOptions& o = place_.options;
  const ModelConfig& m = place_.model;
  const bool unified = layer_.pools == V4Pools::kUnified;
  const int64_t slots = m.swa_pool ? o.swa_slots : o.slots;
  const int64_t rings = V4Places::rings(layer_, m);
  const int64_t blocks = layer_.has_blocks() ? o.slots / layer_.ratio : 0;
  const int32_t page_blocks = layer_.has_blocks() ? m.page_size / layer_.ratio : 1;
  std::vector<BufferSpec> specs = {unified ? pool("latents", layer_, rings + blocks, 1)
                                           : pool("tokens", layer_, slots, m.page_size),
                                   pool("blocks", layer_, unified ? 0 : blocks, page_blocks)};
  if (layer_.has_blocks()) {
    const int64_t states = V4Places::states_a_page(layer_, m);
    const int64_t pages = unified ? layer_.rows : slots / m.page_size;
    specs.push_back(f32_vectors("states", {pages * states, layer_.ratio, layer_.state_width()}));
  }
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  if (!status.ok()) return status;
  add_shelf(&tokens_, bound[0], layer_.layout, m.page_size, V4Places::first_token(layer_, m));
  whole_.tokens = tokens_.pool;
  if (!layer_.has_blocks()) return status;
  if (!unified) {
    add_shelf(&blocks_, bound[1], layer_.layout, page_blocks, V4Places::first_block(layer_, m));
    whole_.blocks = blocks_.pool;
  }
  state_.buffer = bound[2];
  state_.first = int64_t{V4Places::states_a_page(layer_, m)} * layer_.ratio;
  state_.defined.resize(static_cast<size_t>(bound[2].shape[0] * layer_.ratio));
  state_.owners = SlotOwners(std::ssize(state_.defined));
  whole_.state = bound[2].view();
  return status;
}

void V4World::add_shelf(Shelf* shelf, const Buffer& buffer, LatentLayout layout, int32_t page_size,
                        int64_t first) {
  shelf->buffer = buffer;
  shelf->pool = {buffer.view(), layout, layout == LatentLayout::kV4 ? page_size : 1};
  shelf->first = first;
  shelf->defined.resize(static_cast<size_t>(shelf->pool.slots()));
  shelf->owners = SlotOwners(std::ssize(shelf->defined));
}

Status V4World::bind_inputs() {
  const int64_t tokens = place_.options.max_tokens, dim = layer_.head_dim;
  const ModelConfig& m = place_.model;
  std::vector<BufferSpec> specs = {
      f32_vectors("q", {tokens, layer_.num_heads, dim}), f32_vectors("latents_in", {tokens, dim}),
      f32_vectors("sinks", {layer_.num_heads}),
      f32_vectors("out", {tokens, layer_.num_heads, dim}, Lifetime::kOutput)};
  std::vector<Buffer*> to = {&q_, &latents_, &sinks_, &out_};
  if (layer_.has_blocks()) {
    const int64_t positions = m.max_context_len + std::max(m.num_draft_tokens, m.num_steps);
    specs.push_back(f32_vectors("kv_score", {tokens, layer_.state_width()}));
    specs.push_back(f32_vectors("ape", {layer_.shape().window(), dim}));
    specs.push_back(f32_vectors("norm_weight", {dim}));
    specs.push_back(f32_vectors("freqs", {positions, layer_.rope_dim}));
    to.insert(to.end(), {&kv_score_, &ape_, &weight_, &freqs_});
    if (layer_.pools == V4Pools::kPaged && layer_.shape().overlaps()) {
      specs.push_back(f32_vectors("index_scores", {tokens, positions / layer_.ratio + 1}));
      to.push_back(&index_scores_);
    }
  }
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  for (size_t i = 0; i < bound.size(); ++i) *to[i] = std::move(bound[i]);
  return status;
}

void V4World::make_weights() {
  for (const Buffer* b : {&sinks_, &ape_, &weight_, &freqs_})
    if (b->data != nullptr) copies_.copy(b->data, numbers(b->numel()));
  whole_.latents = latents_.view();
  whole_.sinks = {reinterpret_cast<const float*>(sinks_.data),
                  static_cast<size_t>(layer_.num_heads)};
  if (!layer_.has_blocks()) return;
  whole_.kv_score = kv_score_.view(), whole_.ape = ape_.view();
  whole_.weight = weight_.view(), whole_.freqs = freqs_.view();
  if (index_scores_.data != nullptr) whole_.index_scores = index_scores_.view();
}

}  // namespace shadowgraph
