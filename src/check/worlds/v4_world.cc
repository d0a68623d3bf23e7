#include "check/worlds/v4_world.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "attn/tensor_rows.h"
#include "backends/sparse/deepseek_v4_hip.h"
#include "check/bits.h"
#include "check/mistakes/diagnose.h"
#include "core/laws.h"

namespace shadowgraph {

std::vector<Elements> V4World::Shelf::places(int64_t slot) const {
  if (!pool.defined()) {
    const int64_t width = buffer.shape.back();
    return {{slot * width, width}};
  }
  if (pool.layout != LatentLayout::kV4) return {{pool.latent_at(slot), pool.head_dim()}};
  return {{pool.latent_at(slot), kV4Bytes}, {pool.scales_at(slot), kV4Scales}};
}

std::vector<V4World::Shelf*> V4World::shelves() {
  std::vector<Shelf*> all;
  for (Shelf* s : {&tokens_, &blocks_, &state_})
    if (s->size() > 0) all.push_back(s);
  return all;
}

std::vector<const V4World::Shelf*> V4World::shelves() const {
  std::vector<const Shelf*> all;
  for (const Shelf* s : {&tokens_, &blocks_, &state_})
    if (s->size() > 0) all.push_back(s);
  return all;
}

std::vector<std::byte>& V4World::bytes_of(const Shelf& shelf, HostLatents* pools) const {
  if (&shelf == &tokens_) return pools->tokens;
  return &shelf == &blocks_ ? pools->blocks : pools->state;
}

HostLatents V4World::contents() const {
  return {bytes_in(tokens_.buffer), bytes_in(blocks_.buffer), bytes_in(state_.buffer)};
}

/// Into before_, and from there to the device.
void V4World::write(Shelf& shelf, int64_t slot) {
  std::vector<std::byte>& bytes = bytes_of(shelf, &before_);
  if (shelf.pool.defined()) {
    const std::vector<float> values = numbers(layer_.head_dim);
    PackLatents pack;
    pack.latents = ConstTensorView(values.data(), DType::kF32, {1, layer_.head_dim});
    pack.out_cache_loc = {&slot, 1};
    pack.pool = in_host(shelf.pool, &bytes);
    (void)pack_latents(pack);
  } else {
    const std::vector<float> values = numbers(layer_.state_width());
    std::memcpy(bytes.data() + static_cast<size_t>(shelf.places(slot)[0].first) * sizeof(float),
                values.data(), values.size() * sizeof(float));
  }
  for (const Elements e : shelf.places(slot)) {
    const std::span<std::byte> at = bytes_at(shelf.buffer, e);
    place_.stream.copy(at.data(), bytes.data() + (at.data() - shelf.buffer.data), at.size());
  }
  // The bytes in flight may be written again: of a ring, by a later token.
  place_.stream.synchronize();
  shelf.defined[static_cast<size_t>(slot)] = 1;
}

void V4World::own(Shelf& shelf, int64_t slot, OwnerId owner) {
  (void)shelf.owners.own(static_cast<int32_t>(slot), owner, true);
  for (const Elements e : shelf.places(slot)) (void)scope_.set_owner(shelf.buffer, e, owner);
}

void V4World::disown(Shelf& shelf, int64_t slot) {
  own(shelf, slot, 0);
  shelf.owners.forget(static_cast<int32_t>(slot));
}

void V4World::need(Shelf& shelf, int64_t slot, OwnerId owner) {
  if (shelf.defined[static_cast<size_t>(slot)] == 0) write(shelf, slot);
  const std::optional<bool> alone = shelf.owners.own(static_cast<int32_t>(slot), owner, false);
  if (!alone) return;
  for (const Elements e : shelf.places(slot))
    (void)(*alone ? scope_.set_owner(shelf.buffer, e, owner)
                  : scope_.add_owner(shelf.buffer, e, owner));
}

int64_t V4World::state_row(const V4Places& places, int32_t position) const {
  return int64_t{places.state(position / layer_.ratio)} * layer_.ratio + position % layer_.ratio;
}

template <class Fn>
void V4World::for_stored(const V4Places& places, int32_t first, int32_t end, Fn fn) {
  for (int32_t p = first; p < end; ++p) {
    fn(tokens_, places.token(p));
    if (!layer_.has_blocks()) continue;
    fn(state_, state_row(places, p));
    if ((p + 1) % layer_.ratio == 0)
      fn(blocks_.size() > 0 ? blocks_ : tokens_, places.block(p / layer_.ratio));
  }
}

void V4World::prepare(const V4Places& places, const RequestExtent& e, OwnerId owner) {
  for (int32_t p = std::max(0, e.prefix_len + 1 - layer_.window); p < e.prefix_len; ++p)
    need(tokens_, places.token(p), owner);
  if (layer_.has_blocks()) {
    const int32_t block = e.prefix_len / layer_.ratio;
    for (int32_t b = 0; b < block; ++b)
      need(blocks_.size() > 0 ? blocks_ : tokens_, places.block(b), owner);
    const int32_t first = std::max(0, block - (layer_.shape().overlaps() ? 1 : 0));
    for (int32_t p = first * layer_.ratio; p < e.prefix_len; ++p)
      need(state_, state_row(places, p), owner);
  }
  for_stored(places, e.prefix_len, e.kv_len, [&](Shelf& s, int64_t slot) { own(s, slot, owner); });
}

/// Nobody's yet: who reads them next owns them.
void V4World::arrive(const ForwardBatch& batch) {
  place_.stream.synchronize();
  before_ = contents();
  for (int64_t i = 0; i < batch.size(); ++i) {
    const V4Places places(layer_, place_.model, batch, i);
    const RequestExtent e = batch.extent(i);
    for_stored(places, e.prefix_len, e.kv_len, [&](Shelf& s, int64_t slot) {
      write(s, slot);
      disown(s, slot);
    });
  }
  place_.stream.synchronize();
}

void V4World::receive(const ForwardBatch& batch) { arrive(batch); }

void V4World::begin_step(const Step& step, const ForwardBatch& batch) {
  place_.stream.synchronize();
  copies_.clear();
  if (batch.mode == ForwardMode::kPrebuilt) return arrive(batch);
  for (const Buffer* b : {&q_, &latents_, &kv_score_, &index_scores_})
    if (b->data != nullptr) copies_.copy(b->data, numbers(b->numel()));
  before_ = contents();
  for (int64_t i = 0; i < batch.size(); ++i)
    prepare(V4Places(layer_, place_.model, batch, i), batch.extent(i),
            step.requests[static_cast<size_t>(i)]);
  place_.stream.synchronize();
  for (Shelf* s : shelves()) s->defined_before = s->defined;
}

void V4World::clear_outputs() { place_.stream.fill(out_.data, kUnwritten, out_.bytes()); }

void V4World::rewind() {
  place_.stream.synchronize();
  for (Shelf* s : shelves()) {
    std::vector<std::byte>& bytes = bytes_of(*s, &before_);
    place_.stream.copy(s->buffer.data, bytes.data(), bytes.size());
    place_.stream.synchronize();
    s->defined = s->defined_before;
    retire_undefined(*s);
  }
}

/// What they held is gone: a step that goes back to it goes back to nothing.
void V4World::begin_history(uint64_t number) {
  rng_ = place_.rng_of(number);
  for (Shelf* s : shelves()) {
    for (int64_t slot = 0; slot < std::ssize(s->defined); ++slot)
      if (!s->owners.of(static_cast<int32_t>(slot)).empty()) disown(*s, slot);
    std::ranges::fill(s->defined, uint8_t{0});
    retire_undefined(*s);
  }
}

void V4World::retire_undefined(const Shelf& shelf) {
  for (int64_t slot = shelf.first; slot < std::ssize(shelf.defined); ++slot)
    for (const Elements e : shelf.places(slot))
      if (shelf.defined[static_cast<size_t>(slot)] == 0) (void)scope_.retire(shelf.buffer, e);
}

void V4World::describe(int64_t tokens, size_t /*step*/, LayerIo* io) const {
  io->own = &described_.first(tokens, whole_);
  io->q = rows_of(q_.view(), 0, tokens);
  io->out = rows_of(out_.view(), 0, tokens);
}

Status V4World::judge_alone(const ForwardBatch& batch) {
  Status status;
  HostLatents pools = before_;
  V4Request request;
  request.prefill = DeepseekV4Hip::is_prefill(batch.mode);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const V4Places places(layer_, place_.model, batch, i);
    request.extent = batch.extent(i);
    status.add(compare_outputs(out_, request.first,
                               v4_alone(layer_, whole_, q_.view(), request, places, &pools)));
    for_stored(places, request.extent.prefix_len, request.extent.kv_len,
               [](Shelf& s, int64_t slot) { s.defined[static_cast<size_t>(slot)] = 1; });
    request.first += request.extent.q_len;
  }
  status.add(compare_pools(pools));
  return status;
}

/// All but padding's: slots that the step leaves alone have what they had.
Status V4World::compare_pools(HostLatents& want) const {
  Status status;
  for (const Shelf* s : shelves()) {
    const std::vector<std::byte>& bytes = bytes_of(*s, &want);
    const size_t size = size_of(s->buffer.dtype);
    judged("latent.pool", std::ssize(s->defined) - s->first);
    for (int64_t slot = s->first; slot < std::ssize(s->defined); ++slot) {
      for (const Elements e : s->places(slot)) {
        const size_t from = static_cast<size_t>(e.first) * size;
        const int64_t i =
            first_difference(bytes.data() + from, s->buffer.data + from, e.count, s->buffer.dtype);
        if (i < 0) continue;
        const size_t byte = from + static_cast<size_t>(i) * size;
        status.add(make_finding("latent.pool", at(s->buffer.name, slot, i),
                                bits_of(bytes.data() + byte, s->buffer.dtype),
                                bits_of(s->buffer.data + byte, s->buffer.dtype)));
        break;
      }
    }
  }
  return status;
}

}  // namespace shadowgraph
