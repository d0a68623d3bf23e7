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
      copies_(place.stream),
      owners_(place.options.slots) {}

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
    if (place_.options.full_pools) write_slot(slot);
  }
  // Padding's rows are whatever an older step has left.
  for (const Buffer* b : {&index_q_, &index_weights_, &index_k_, &index_k_scale_, &q_, &k_})
    place_.stream.fill(b->data, 0, b->bytes());
  place_.stream.synchronize();
  copies_.clear();
  return status;
}

CanonicalRows SparseWorld::rows_of_step(const ForwardBatch& batch) const {
  return canonical_rows(batch, place_.model.layers[place_.kind], place_.model);
}

std::vector<Elements> SparseWorld::places(const Buffer& pool, int32_t slot) const {
  if (&pool == &latents_) return {pool.rows(slot, 1)};
  const IndexKeyPlace at =
      place_in_pages(pool.view(), slot / kIndexPageTokens, slot % kIndexPageTokens);
  return {{at.key, kIndexDim}, {at.scale, static_cast<int64_t>(sizeof(float))}};
}

std::vector<std::byte> SparseWorld::numbers(DType dtype, int64_t count, bool positive) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float x = rng_.signed_unit();
    store_float(bytes.data(), dtype, i, positive ? 1.5f + x : x);
  }
  return bytes;
}

void SparseWorld::randomise(const Buffer& b, int64_t rows, bool positive) {
  if (rows == 0) return;
  copies_.copy(b.data, numbers(b.dtype, b.rows(0, rows).count, positive));
}

void SparseWorld::fill_slot(int32_t slot, uint8_t byte) {
  for (const Buffer* b : {&index_pages_, &latents_}) {
    for (const Elements& e : places(*b, slot)) {
      const std::span<std::byte> at = bytes_at(*b, e);
      place_.stream.fill(at.data(), byte, at.size());
    }
  }
}

/// What a token leaves there.
void SparseWorld::write_slot(int32_t slot) {
  const std::vector<Elements> key = places(index_pages_, slot);
  copies_.copy(bytes_at(index_pages_, key[0]).data(), numbers(DType::kE4M3, kIndexDim));
  copies_.copy(bytes_at(index_pages_, key[1]).data(), numbers(DType::kF32, 1, true));
  std::vector<std::byte> latent = numbers(DType::kF32, layer_.head_dim);
  std::vector<std::byte> packed(static_cast<size_t>(latent_bytes(layer_)));
  const int64_t first = 0;
  PackLatents pack;
  pack.latents = ConstTensorView(latent.data(), DType::kF32, {1, layer_.head_dim});
  pack.out_cache_loc = {&first, 1};
  pack.pool = latent_pool(layer_, packed.data(), 1);
  (void)pack_latents(pack);
  copies_.copy(bytes_at(latents_, places(latents_, slot)[0]).data(), packed);
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

/// What was stored elsewhere is written when it is first read here.
void SparseWorld::receive(const ForwardBatch& batch) {
  for (const int32_t slot : rows_of_step(batch).stored)
    if (slot >= 0) owners_.forget(slot);
}

void SparseWorld::begin_step(const Step& step, const ForwardBatch& batch) {
  copies_.clear();
  const CanonicalRows rows = rows_of_step(batch);
  const int64_t tokens = rows.cu_seqlens_q.back();
  for (const Buffer* b : {&index_q_, &index_weights_, &index_k_, &q_, &k_}) randomise(*b, tokens);
  randomise(index_k_scale_, tokens, true);
  stored_ = rows.stored;
  for (size_t r = 0; r < rows.keys.size(); ++r) {
    for (const int32_t slot : rows.old_keys(r)) {
      if (slot < place_.model.page_size) continue;
      // A history may begin in the middle.
      if (owners_.of(slot).empty()) write_slot(slot);
      own(slot, step.requests[r], false);
    }
    for (const int32_t slot : rows.stored_by(r)) {
      if (batch.mode == ForwardMode::kPrebuilt) write_slot(slot);
      own(slot, step.requests[r], true);
    }
  }
  place_.stream.synchronize();
  before_ = {bytes_in(index_pages_), bytes_in(latents_)};
}

void SparseWorld::clear_outputs() {
  for (const Buffer* b : {&out_, &lse_}) place_.stream.fill(b->data, kUnwritten, b->bytes());
}

void SparseWorld::rewind() {
  for (const int32_t slot : stored_) fill_slot(slot, kNanByte);
}

void SparseWorld::describe(int64_t tokens, size_t /*step*/, LayerIo* io) const {
  io->own = &described_.first(tokens, whole_);
  io->q = rows_of(q_.view(), 0, tokens);
  io->k = rows_of(k_.view(), 0, tokens);
  io->out = rows_of(out_.view(), 0, tokens);
  io->lse = NaturalLse(rows_of(lse_.view(), 0, tokens));
}

Status SparseWorld::judge_alone(const ForwardBatch& batch) {
  Status status;
  const CanonicalRows rows = rows_of_step(batch);
  const SparseInputs inputs{whole_, q_.view(), k_.view()};
  HostSparsePools known = before_;
  store_alone(layer_, inputs, rows.stored, &known);
  for (size_t r = 0; r < rows.keys.size(); ++r) {
    SparseRequest request;
    request.first = rows.cu_seqlens_q[r];
    request.tokens = rows.cu_seqlens_q[r + 1] - request.first;
    request.slots = rows.keys[r];
    if (request.tokens == 0) continue;
    const SparseResult alone = run_alone(layer_, inputs, request, known);
    status.add(compare_outputs(out_, request.first, alone.out));
    status.add(compare_outputs(lse_, request.first, alone.lse));
  }
  status.add(compare_pool(index_pages_, known.index_pages));
  status.add(compare_pool(latents_, known.latents));
  return status;
}

/// Page 0 is nobody's.
Status SparseWorld::compare_pool(const Buffer& b, std::span<const std::byte> want) const {
  Status status;
  const size_t page = b.bytes() / static_cast<size_t>(place_.options.slots) *
                      static_cast<size_t>(place_.model.page_size);
  judged("slot.write", place_.options.slots - place_.model.page_size);
  if (std::memcmp(b.data + page, &want[page], want.size() - page) == 0) return status;
  for (int32_t slot = place_.model.page_size; slot < place_.options.slots; ++slot) {
    for (const Elements& e : places(b, slot)) {
      const std::span<std::byte> got = bytes_at(b, e);
      if (std::memcmp(got.data(), &want[static_cast<size_t>(got.data() - b.data)], got.size()) == 0)
        continue;
      const bool stored = std::ranges::find(stored_, slot) != stored_.end();
      status.add(make_finding("slot.write", at(b.name, slot),
                              stored ? "what the step's token is stored as" : "what was there",
                              "others"));
      return status;
    }
  }
  return status;
}

}  // namespace shadowgraph
