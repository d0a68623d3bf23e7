#include "check/worlds/sparse_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attn/index_page.h"
#include "attn/tensor_rows.h"
#include "check/bits.h"
#include "check/mistakes/diagnose.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph {

SparseWorld::SparseWorld(const LayerPlace& place, const SparseLayer& layer)
    : place_(place),
      layer_(layer),
      scope_(place.scope),
      rng_(place.rng_of(0)),
      copies_(place.streams.forward()),
      moves_(place.streams.pools()),
      owners_(place.options.slots),
      contents_(layer_, place.rng_of(0).next()) {}

Status SparseWorld::bind_buffers() {
  const int64_t tokens = place_.options.max_tokens, slots = place_.options.slots;
  const int64_t heads = layer_.num_heads, dim = layer_.head_dim;
  const WritableLatentPool pool = latent_pool(layer_, nullptr, slots);
  // A key and its scale are two places of a page.
  BufferSpec pages =
      vectors_of("index_k_with_scale", DType::kU8, {slots / kIndexPageTokens, kIndexPageBytes});
  pages.granule = static_cast<int64_t>(sizeof(float));
  BufferSpec scales = f32_vectors("index_k_scale", {tokens});
  scales.granule = 1;
  const std::vector<BufferSpec> specs = {
      pages,
      vectors_of("latents", pool.data.dtype, {slots, pool.data.shape[1]}),
      vectors_of("index_q", DType::kE4M3, {tokens, layer_.index_heads, kIndexDim}),
      f32_vectors("index_weights", {tokens, layer_.index_heads}),
      vectors_of("index_k", DType::kE4M3, {tokens, kIndexDim}),
      scales,
      f32_vectors("q", {tokens, heads, dim}),
      f32_vectors("k", {tokens, dim}),
      f32_vectors("out", {tokens, heads, layer_.head_dim_v}, Lifetime::kOutput),
      f32_vectors("lse", {tokens, heads}, Lifetime::kOutput)};
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  Buffer* const to[] = {&index_pages_,   &latents_, &index_q_, &index_weights_, &index_k_,
                        &index_k_scale_, &q_,       &k_,       &out_,           &lse_};
  for (size_t i = 0; i < bound.size(); ++i) *to[i] = std::move(bound[i]);
  return status;
}

Status SparseWorld::bind() {
  Status status = bind_buffers();
  if (!status.ok()) return status;
  whole_ = {index_q_.view(),     index_weights_.view(),
            index_k_.view(),     index_k_scale_.view(),
            index_pages_.view(), latent_pool(layer_, latents_.data, place_.options.slots)};
  for (int32_t slot = 0; slot < place_.options.slots; ++slot) {
    // What padding reads is NaN: no other row may feel it.
    if (slot < place_.model.page_size && !place_.options.full_pools) fill_slot(slot, kNanByte);
    const TokenContent nobodys{extend(kNoTokens, slot), 0, slot};
    if (place_.options.full_pools) write_slot(slot, contents_.number(nobodys));
  }
  held_.clear();
  // Padding's rows are whatever an older step has left.
  for (const Buffer* b : {&index_q_, &index_weights_, &index_k_, &index_k_scale_, &q_, &k_})
    place_.streams.forward().fill(b->data, 0, b->bytes());
  place_.streams.settle();
  copies_.clear(), moves_.clear();
  return status;
}

std::vector<Elements> SparseWorld::places(const Buffer& pool, int32_t slot) const {
  if (&pool == &latents_) return {pool.rows(slot, 1)};
  const IndexKeyPlace at =
      place_in_pages(pool.view(), slot / kIndexPageTokens, slot % kIndexPageTokens);
  return {{at.key, kIndexDim}, {at.scale, static_cast<int64_t>(sizeof(float))}};
}

void SparseWorld::randomise(const Buffer& b, int64_t rows) {
  if (rows == 0) return;
  copies_.copy(b.data, sparse_numbers(b.dtype, b.rows(0, rows).count, false, rng_));
}

void SparseWorld::fill_slot(int32_t slot, uint8_t byte) {
  for (const Buffer* b : {&index_pages_, &latents_}) {
    for (const Elements& e : places(*b, slot)) {
      const std::span<std::byte> at = bytes_at(*b, e);
      place_.streams.forward().fill(at.data(), byte, at.size());
    }
  }
}

/// What a token leaves there.
void SparseWorld::write_slot(int32_t slot, int32_t number) {
  const auto copy = [&](const Buffer& b, const std::vector<std::byte>& from,
                        std::span<const Elements> of) {
    const std::vector<Elements> to = places(b, slot);
    for (size_t i = 0; i < to.size(); ++i) {
      const std::span<std::byte> at = bytes_at(b, to[i]);
      moves_.copy(at.data(), &from[static_cast<size_t>(of[i].first) * size_of(b.dtype)], at.size());
    }
  };
  copy(index_pages_, contents_.pools().index_pages, places(index_pages_, number));
  copy(latents_, contents_.pools().latents, places(latents_, number));
  held_[slot] = number;
}

bool SparseWorld::holds(int32_t slot, int32_t number) const {
  const auto has = [&](const Buffer& b, const std::vector<std::byte>& from) {
    const std::vector<Elements> at = places(b, slot), of = places(b, number);
    for (size_t i = 0; i < at.size(); ++i) {
      const std::span<std::byte> got = bytes_at(b, at[i]);
      if (std::memcmp(got.data(), &from[static_cast<size_t>(of[i].first) * size_of(b.dtype)],
                      got.size()) != 0)
        return false;
    }
    return true;
  };
  return has(index_pages_, contents_.pools().index_pages) &&
         has(latents_, contents_.pools().latents);
}

std::string SparseWorld::told(int32_t slot) const {
  const auto at = held_.find(slot);
  if (at == held_.end()) return "nothing that anybody has stored";
  const std::string token = contents_[at->second].to_string();
  return holds(slot, at->second) ? token : "other bytes than those of " + token;
}

void SparseWorld::own(int32_t slot, OwnerId owner, bool alone) {
  const std::optional<bool> now = owners_.own(slot, owner, alone);
  if (!now) return;
  for (const Buffer* b : {&index_pages_, &latents_}) {
    for (const Elements& at : places(*b, slot)) {
      if (*now) {
        (void)scope_.set_owner(*b, at, owner);
      } else {
        (void)scope_.add_owner(*b, at, owner);
      }
    }
  }
}

void SparseWorld::begin_history(uint64_t number) {
  owners_.forget_all();
  held_.clear();
  rng_ = place_.rng_of(number);
  contents_.clear(place_.rng_of(number).next());
}

void SparseWorld::read_step(const Step& step, const ForwardBatch& batch) {
  rows_ = canonical_rows(batch, place_.model.layers[place_.kind], place_.model);
  const RowContents contents =
      row_contents(step, batch, place_.model.layers[place_.kind], place_.model);
  keys_.clear(), fresh_.clear();
  for (const std::vector<TokenContent>& row : contents.keys) {
    std::vector<int32_t>& keys = keys_.emplace_back();
    for (const TokenContent& c : row) keys.push_back(contents_.number(c));
  }
  for (const TokenContent& c : contents.fresh) fresh_.push_back(contents_.number(c));
}

/// A history may begin in the middle.
void SparseWorld::adopt() {
  for (size_t r = 0; r < keys_.size(); ++r) {
    const std::span<const int32_t> old = rows_.old_keys(r);
    for (size_t k = 0; k < old.size(); ++k)
      if (old[k] >= place_.model.page_size) write_slot(old[k], keys_[r][k]);
  }
}

void SparseWorld::arrive() {
  for (size_t t = 0; t < fresh_.size(); ++t)
    if (rows_.stored[t] >= 0) write_slot(rows_.stored[t], fresh_[t]);
}

void SparseWorld::give() {
  const auto tokens = std::ssize(fresh_);
  for (const Buffer* b : {&index_q_, &index_weights_, &q_}) randomise(*b, tokens);
  SparseContents::Given all;
  for (const int32_t number : fresh_) {
    const SparseContents::Given& g = contents_.given(number);
    all.index_k.insert(all.index_k.end(), g.index_k.begin(), g.index_k.end());
    all.index_k_scale.insert(all.index_k_scale.end(), g.index_k_scale.begin(),
                             g.index_k_scale.end());
    all.latent.insert(all.latent.end(), g.latent.begin(), g.latent.end());
  }
  if (tokens > 0) {
    copies_.copy(index_k_.data, all.index_k);
    copies_.copy(index_k_scale_.data, all.index_k_scale);
    copies_.copy(k_.data, all.latent);
  }
}

void SparseWorld::own_rows(std::span<const OwnerId> owners) {
  for (size_t r = 0; r < rows_.keys.size(); ++r) {
    for (const int32_t slot : rows_.old_keys(r))
      if (slot >= place_.model.page_size) own(slot, owners[r], false);
    for (const int32_t slot : rows_.stored_by(r)) own(slot, owners[r], true);
  }
}

void SparseWorld::receive(const Step& step, const ForwardBatch& batch, bool first) {
  read_step(step, batch);
  if (first) adopt();
  arrive();
  own_rows(step.requests);
  place_.streams.settle();
  known_ = {bytes_in(index_pages_), bytes_in(latents_)};
}

Status SparseWorld::begin_step(const Step& step, const ForwardBatch& batch, bool first) {
  copies_.clear(), moves_.clear();
  Status status = check_still();
  read_step(step, batch);
  if (first) adopt();
  if (batch.mode == ForwardMode::kPrebuilt) {
    arrive();
  } else {
    give();
  }
  own_rows(step.requests);
  place_.streams.settle();
  status.add(check_reads());
  for (size_t t = 0; t < fresh_.size(); ++t)
    if (rows_.stored[t] >= 0) held_[rows_.stored[t]] = fresh_[t];
  known_ = before_ = {bytes_in(index_pages_), bytes_in(latents_)};
  return status;
}

void SparseWorld::clear_outputs() {
  for (const Buffer* b : {&out_, &lse_})
    place_.streams.forward().fill(b->data, kUnwritten, b->bytes());
}

void SparseWorld::rewind() {
  for (const int32_t slot : rows_.stored) fill_slot(slot, kNanByte);
}

void SparseWorld::describe(int64_t tokens, size_t /*step*/, LayerIo* io) const {
  io->own = &described_.first(tokens, whole_);
  io->q = rows_of(q_.view(), 0, tokens);
  io->k = rows_of(k_.view(), 0, tokens);
  io->out = rows_of(out_.view(), 0, tokens);
  io->lse = NaturalLse(rows_of(lse_.view(), 0, tokens));
}

Status SparseWorld::judge_alone(const ForwardBatch& /*batch*/) {
  Status status;
  const SparseInputs inputs{whole_, q_.view(), k_.view()};
  known_ = before_;
  store_alone(layer_, inputs, rows_.stored, &known_);
  for (size_t r = 0; r < rows_.keys.size(); ++r) {
    SparseRequest request;
    request.first = rows_.cu_seqlens_q[r];
    request.tokens = rows_.cu_seqlens_q[r + 1] - request.first;
    request.slots = keys_[r];
    if (request.tokens == 0) continue;
    const SparseResult alone = run_alone(layer_, inputs, request, contents_.pools());
    status.add(compare_outputs(out_, request.first, alone.out));
    status.add(compare_outputs(lse_, request.first, alone.lse));
  }
  status.add(compare_pool(index_pages_, known_.index_pages));
  status.add(compare_pool(latents_, known_.latents));
  return status;
}

/// Between steps nothing changes, in slots that nobody reads either.
Status SparseWorld::check_still() const {
  Status status;
  if (known_.latents.empty()) return status;
  judged("life.still", std::ssize(held_));
  for (const Buffer* b : {&index_pages_, &latents_}) {
    const int32_t slot = first_other(*b, b == &latents_ ? known_.latents : known_.index_pages);
    if (slot < 0 || !held_.contains(slot)) continue;
    status.add(make_finding("life.still", at(b->name, slot), contents_[held_.at(slot)].to_string(),
                            "other bytes"));
  }
  return status;
}

Status SparseWorld::check_reads() const {
  Status status;
  for (size_t r = 0; r < keys_.size(); ++r) {
    const std::span<const int32_t> old = rows_.old_keys(r);
    judged("life.read", std::ssize(old));
    for (size_t k = 0; k < old.size() && status.ok(); ++k) {
      if (old[k] < place_.model.page_size || holds(old[k], keys_[r][k])) continue;
      status.add(make_finding(
          "life.read", at(latents_.name, static_cast<int64_t>(r), static_cast<int64_t>(k)),
          contents_[keys_[r][k]].to_string() + " in slot " + std::to_string(old[k]), told(old[k])));
    }
  }
  return status;
}

int32_t SparseWorld::first_other(const Buffer& b, std::span<const std::byte> want) const {
  const size_t page = b.bytes() / static_cast<size_t>(place_.options.slots) *
                      static_cast<size_t>(place_.model.page_size);
  if (std::memcmp(b.data + page, &want[page], want.size() - page) == 0) return -1;
  for (int32_t slot = place_.model.page_size; slot < place_.options.slots; ++slot) {
    for (const Elements& e : places(b, slot)) {
      const std::span<std::byte> got = bytes_at(b, e);
      if (std::memcmp(got.data(), &want[static_cast<size_t>(got.data() - b.data)], got.size()) != 0)
        return slot;
    }
  }
  return -1;
}

/// Page 0 is nobody's.
Status SparseWorld::compare_pool(const Buffer& b, std::span<const std::byte> want) const {
  Status status;
  judged("slot.write", place_.options.slots - place_.model.page_size);
  const int32_t slot = first_other(b, want);
  if (slot < 0) return status;
  const bool stored = std::ranges::find(rows_.stored, slot) != rows_.stored.end();
  status.add(make_finding("slot.write", at(b.name, slot),
                          stored ? "what the step's token is stored as" : "what was there",
                          "others"));
  return status;
}

}  // namespace shadowgraph
