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
namespace {

/// A pool may hold both a token and the block that ends with it.
Chain of_block(Chain last) { return extend(last, -1); }

}  // namespace

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

std::vector<float> V4World::rows_of_tokens(const Buffer& input,
                                           std::span<const TokenContent> tokens) const {
  const uint64_t salt = Rng::stream(salt_, &input == &latents_ ? 1 : 2).next();
  std::vector<float> all;
  for (const TokenContent& t : tokens) {
    Rng rng = Rng::stream(salt, t.chain);
    const std::vector<float> row = layer_numbers(input.rows(0, 1).count, place_.options.data, rng);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<std::byte> V4World::bytes_of_slot(const Shelf& shelf, int64_t slot,
                                              const std::vector<std::byte>& pool) {
  std::vector<std::byte> bytes;
  const size_t size = size_of(shelf.buffer.dtype);
  for (const Elements e : shelf.places(slot)) {
    const auto first =
        pool.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(e.first) * size);
    bytes.insert(bytes.end(), first,
                 first + static_cast<std::ptrdiff_t>(static_cast<size_t>(e.count) * size));
  }
  return bytes;
}

void V4World::own(Shelf& shelf, int64_t slot, OwnerId owner) {
  (void)shelf.owners.own(static_cast<int32_t>(slot), owner, true);
  for (const Elements e : shelf.places(slot)) (void)scope_.set_owner(shelf.buffer, e, owner);
}

void V4World::disown(Shelf& shelf, int64_t slot) {
  own(shelf, slot, 0);
  shelf.owners.forget(static_cast<int32_t>(slot));
}

void V4World::share(Shelf& shelf, int64_t slot, OwnerId owner) {
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
    fn(tokens_, places.token(p), p);
    if (!layer_.has_blocks()) continue;
    fn(state_, state_row(places, p), p);
    if ((p + 1) % layer_.ratio == 0)
      fn(blocks_.size() > 0 ? blocks_ : tokens_, places.block(p / layer_.ratio), p);
  }
}

template <class Fn>
void V4World::for_read(const V4Places& places, int32_t prefix_len, Fn fn) {
  for (int32_t p = std::max(0, prefix_len + 1 - layer_.window); p < prefix_len; ++p)
    fn(tokens_, places.token(p), p);
  if (!layer_.has_blocks()) return;
  const int32_t block = prefix_len / layer_.ratio;
  for (int32_t b = 0; b < block; ++b)
    fn(blocks_.size() > 0 ? blocks_ : tokens_, places.block(b), (b + 1) * layer_.ratio - 1);
  const int32_t first = std::max(0, block - (layer_.shape().overlaps() ? 1 : 0));
  for (int32_t p = first * layer_.ratio; p < prefix_len; ++p) fn(state_, state_row(places, p), p);
}

void V4World::own_request(const V4Places& places, const RequestExtent& e, OwnerId owner) {
  for_read(places, e.prefix_len,
           [&](Shelf& s, int64_t slot, int32_t /*position*/) { share(s, slot, owner); });
  for_stored(places, e.prefix_len, e.kv_len,
             [&](Shelf& s, int64_t slot, int32_t /*position*/) { own(s, slot, owner); });
}

/// Unified pools have latents and blocks in one, each in slots of its own.
bool V4World::is_block(const Shelf& shelf, int64_t slot, const V4Places& places, int32_t p) const {
  return &shelf == &blocks_ || (&shelf == &tokens_ && slot != places.token(p));
}

/// A slot of a ring has its last token.
void V4World::note(const V4Places& places, std::span<const TokenContent> tokens, int32_t first,
                   int32_t first_latent, HostLatents& pools) {
  const auto end = static_cast<int32_t>(tokens.size());
  std::map<std::pair<Shelf*, int64_t>, int32_t> last;
  for_stored(places, first, end, [&](Shelf& s, int64_t slot, int32_t p) {
    const bool latent = &s == &tokens_ && !is_block(s, slot, places, p);
    if (slot >= s.first && !(latent && p < first_latent)) last[{&s, slot}] = p;
  });
  for (const auto& [place, p] : last) {
    auto& [s, slot] = place;
    const TokenContent& content = tokens[static_cast<size_t>(p)];
    const Chain key = is_block(*s, slot, places, p) ? of_block(content.chain) : content.chain;
    s->made.try_emplace(key, bytes_of_slot(*s, slot, bytes_of(*s, &pools)));
    s->held[slot] = content;
    s->defined[static_cast<size_t>(slot)] = 1;
  }
}

/// Nobody's yet: who reads them next owns them.
void V4World::arrive(const ForwardBatch& batch, int64_t i, int32_t first, int32_t end) {
  const V4Places places(layer_, place_.model, batch, i);
  const std::span<const TokenContent> tokens = tokens_of(i).first(static_cast<size_t>(end));
  const std::span<const TokenContent> fresh = tokens.subspan(static_cast<size_t>(first));
  if (fresh.empty()) return;
  const std::vector<float> latents = rows_of_tokens(latents_, fresh);
  V4Tensors brought = whole_;
  const auto on_host = [&](const std::vector<float>& values, ConstTensorView view) {
    view.data = reinterpret_cast<const std::byte*>(values.data());
    view.shape[0] = end - first;
    return view;
  };
  brought.latents = on_host(latents, whole_.latents);
  std::vector<float> scores;
  if (layer_.has_blocks()) {
    scores = rows_of_tokens(kv_score_, fresh);
    brought.kv_score = on_host(scores, whole_.kv_score);
  }
  V4Request request;
  request.extent = {first, end - first, end};
  request.attends = false;
  v4_alone(layer_, brought, q_.view(), request, places, &before_);
  note(places, tokens, first, first, before_);
  for_stored(places, first, end, [&](Shelf& s, int64_t slot, int32_t /*position*/) {
    if (slot < s.first) return;
    for (const Elements e : s.places(slot)) {
      const std::span<std::byte> at = bytes_at(s.buffer, e);
      moves_.copy(at.data(), bytes_of(s, &before_).data() + (at.data() - s.buffer.data), at.size());
    }
    disown(s, slot);
  });
}

void V4World::arrive_all(const ForwardBatch& batch, bool first) {
  place_.streams.settle();
  before_ = contents();
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    arrive(batch, i, first ? 0 : e.prefix_len, e.kv_len);
  }
  place_.streams.settle();
  known_ = contents();
}

void V4World::receive(const Step& step, const ForwardBatch& batch, bool first) {
  copies_.clear(), moves_.clear();
  contents_ = row_contents(step, batch, place_.model.layers[place_.kind], place_.model);
  arrive_all(batch, first);
}

Status V4World::check_read(Shelf& s, int64_t slot, Chain key, const TokenContent& content) {
  Status status;
  if (slot < s.first) return status;
  const std::vector<std::byte> got = bytes_of_slot(s, slot, bytes_of(s, &before_));
  const auto want = s.made.find(key);
  if (want != s.made.end() && s.defined[static_cast<size_t>(slot)] != 0 && want->second == got)
    return status;
  const auto held = s.held.find(slot);
  status.add(make_finding(
      "life.read", at(s.buffer.name, slot), content.to_string(),
      held == s.held.end() ? "nothing that anybody has stored" : held->second.to_string()));
  if (want == s.made.end()) return status;
  size_t from = 0;
  for (const Elements e : s.places(slot)) {
    const size_t size = size_of(s.buffer.dtype), count = static_cast<size_t>(e.count) * size;
    std::memcpy(bytes_of(s, &right_).data() + static_cast<size_t>(e.first) * size,
                &want->second[from], count);
    from += count;
  }
  return status;
}

Status V4World::check_reads(const ForwardBatch& batch) {
  Status status;
  right_ = before_;
  for (int64_t i = 0; i < batch.size(); ++i) {
    int64_t reads = 0;
    const std::span<const TokenContent> tokens = tokens_of(i);
    const V4Places places(layer_, place_.model, batch, i);
    for_read(places, batch.extent(i).prefix_len, [&](Shelf& s, int64_t slot, int32_t p) {
      ++reads;
      const TokenContent& content = tokens[static_cast<size_t>(p)];
      const Chain key = is_block(s, slot, places, p) ? of_block(content.chain) : content.chain;
      Status wrong = check_read(s, slot, key, content);
      if (status.ok()) status = std::move(wrong);
    });
    judged("life.read", reads);
  }
  return status;
}

Status V4World::begin_step(const Step& step, const ForwardBatch& batch, bool first) {
  place_.streams.settle();
  copies_.clear(), moves_.clear();
  contents_ = row_contents(step, batch, place_.model.layers[place_.kind], place_.model);
  Status status = check_still();
  if (batch.mode == ForwardMode::kPrebuilt) {
    arrive_all(batch, first);
    return status;
  }
  const int64_t tokens = std::ssize(contents_.fresh);
  for (const Buffer* b : {&q_, &index_scores_})
    if (b->data != nullptr && tokens > 0) copies_.copy(b->data, numbers(b->rows(0, tokens).count));
  for (const Buffer* b : {&latents_, &kv_score_})
    if (b->data != nullptr && tokens > 0)
      copies_.copy(b->data, rows_of_tokens(*b, contents_.fresh));
  before_ = contents();
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (first) arrive(batch, i, 0, batch.extent(i).prefix_len);
    own_request(V4Places(layer_, place_.model, batch, i), batch.extent(i),
                step.requests[static_cast<size_t>(i)]);
  }
  place_.streams.settle();
  before_ = contents();
  for (Shelf* s : shelves()) s->defined_before = s->defined;
  status.add(check_reads(batch));
  return status;
}

void V4World::clear_outputs() {
  place_.streams.forward().fill(out_.data, kUnwritten, out_.bytes());
}

void V4World::rewind() {
  place_.streams.settle();
  for (Shelf* s : shelves()) {
    std::vector<std::byte>& bytes = bytes_of(*s, &before_);
    place_.streams.forward().copy(s->buffer.data, bytes.data(), bytes.size());
    place_.streams.settle();
    s->defined = s->defined_before;
    retire_undefined(*s);
  }
}

/// What they held is gone: a step that goes back to it goes back to nothing.
void V4World::begin_history(uint64_t number) {
  rng_ = place_.rng_of(number);
  salt_ = place_.rng_of(number).next();
  known_ = {};
  for (Shelf* s : shelves()) {
    for (int64_t slot = 0; slot < std::ssize(s->defined); ++slot)
      if (!s->owners.of(static_cast<int32_t>(slot)).empty()) disown(*s, slot);
    std::ranges::fill(s->defined, uint8_t{0});
    s->made.clear(), s->held.clear();
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
  known_ = right_;
  V4Request request;
  request.prefill = DeepseekV4Hip::is_prefill(batch.mode);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const V4Places places(layer_, place_.model, batch, i);
    request.extent = batch.extent(i);
    status.add(compare_outputs(out_, request.first,
                               v4_alone(layer_, whole_, q_.view(), request, places, &known_)));
    // A prefill of unified pools stores its last window alone.
    const bool window = layer_.pools == V4Pools::kUnified && request.prefill;
    note(places, tokens_of(i), request.extent.prefix_len,
         window ? request.extent.kv_len - layer_.window : 0, known_);
    request.first += request.extent.q_len;
  }
  status.add(compare_pools(known_));
  return status;
}

/// Between steps nothing changes, in slots that nobody reads either.
Status V4World::check_still() const {
  Status status;
  if (known_.tokens.empty()) return status;
  HostLatents now = contents(), then = known_;
  for (const Shelf* s : shelves()) {
    judged("life.still", std::ssize(s->held));
    for (const auto& [slot, content] : s->held) {
      if (bytes_of_slot(*s, slot, bytes_of(*s, &now)) ==
          bytes_of_slot(*s, slot, bytes_of(*s, &then)))
        continue;
      status.add(
          make_finding("life.still", at(s->buffer.name, slot), content.to_string(), "other bytes"));
      break;
    }
  }
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
