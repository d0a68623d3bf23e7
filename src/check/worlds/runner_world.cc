#include "check/worlds/runner_world.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "check/mistakes/diagnose.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr float kSelectorQuery = 1024;    // times a scale of 1/4 and more
constexpr float kSelectorKeys = 1 << 19;  // integers below twice that: few are alike

size_t row_bytes(const Buffer& b) {
  return b.bytes() / static_cast<size_t>(std::max<int64_t>(1, b.shape[0]));
}

/// Elements of a slot in a pool [pages, page_size, heads, head_dim].
size_t slot_elements(const Buffer& b) { return static_cast<size_t>(b.shape[2] * b.shape[3]); }
size_t slot_bytes(const Buffer& b) { return slot_elements(b) * size_of(b.dtype); }

}  // namespace

/// With selector data every key begins with an integer of its own. A query multiplies that integer
/// by so much that logits, exact in f32, are 256 apart: exp(-256) is 0.
std::vector<float> RunnerWorld::numbers(int64_t count, int64_t dim, Part part) {
  std::vector<float> values(static_cast<size_t>(count));
  const bool selects = data_ == RunnerData::kSelector;
  if (part == Part::kQuery && data_ != RunnerData::kRandom) {
    for (size_t i = 0; selects && i < values.size(); i += static_cast<size_t>(dim))
      values[i] = kSelectorQuery;
    return values;
  }
  for (float& x : values) x = rng_.signed_unit();
  if (kv_dtype_ != DType::kF32 && part != Part::kQuery) {
    const float scale = scale_of(part);
    for (float& x : values) {
      std::byte element[sizeof(float)];
      store_float(element, kv_dtype_, 0, x / scale);
      x = load_float(element, kv_dtype_, 0) * scale;
    }
  }
  if (selects && part == Part::kKey) {
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(dim))
      values[i] = std::floor((1 + values[i]) * kSelectorKeys);
  }
  return values;
}

float RunnerWorld::scale_of(Part part) const { return part == Part::kValue ? v_scale_ : k_scale_; }

std::vector<std::byte> RunnerWorld::stored(std::span<const float> values, Part part) const {
  std::vector<std::byte> bytes(values.size() * size_of(kv_dtype_));
  for (size_t i = 0; i < values.size(); ++i)
    store_float(bytes.data(), kv_dtype_, static_cast<int64_t>(i), values[i] / scale_of(part));
  return bytes;
}

void RunnerWorld::randomise(const Buffer& b, Part part) {
  copies_.copy(b.data, numbers(b.numel(), b.shape.back(), part));
}

void RunnerWorld::clear_outputs() {
  for (const Buffer* b : outputs()) stream.fill(b->data, kUnwritten, b->bytes());
  for (const auto& other : others_)
    if (other != nullptr) other->clear_outputs();
}

void RunnerWorld::rewind() {
  for (const auto& other : others_)
    if (other != nullptr) other->rewind();
}

Status RunnerWorld::pass(const Step& step) {
  Status status;
  const ForwardBatch batch = step.batch();
  stream.synchronize();
  for (const auto& other : others_) {
    if (other == nullptr) continue;
    status.add(other->move_states(step));
    other->receive(batch);
  }
  return status;
}

Status RunnerWorld::judge_others(const ForwardBatch& batch) {
  Status status;
  for (const auto& other : others_)
    if (other != nullptr) status.add(other->judge(batch));
  return status;
}

void RunnerWorld::forget_new_tokens(const ForwardBatch& batch) {
  for (const ForwardBatch& step : steps_of(batch)) forget_new_tokens_of(step);
}

void RunnerWorld::forget_new_tokens_of(const ForwardBatch& batch) {
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    if (!is_dense(kind)) continue;
    for (const int32_t slot : canonical_rows(batch, model_.layers[kind], model_).stored) {
      if (slot < 0) continue;
      for (const Buffer* b : caches(layers_[kind]))
        stream.fill(b->data + static_cast<size_t>(slot) * slot_bytes(*b), kNanByte, slot_bytes(*b));
    }
  }
}

void RunnerWorld::forget_owners() {
  for (SlotOwners& of_layer : owners_) of_layer.forget_all();
  for (const auto& other : others_)
    if (other != nullptr) other->forget_requests();
}

void RunnerWorld::begin_step(const Step& step) {
  const ForwardBatch batch = step.batch();
  stream.synchronize();
  copies_.clear();
  arena.begin_step();
  tokens_ = Limits::exact(batch, model_).tokens;
  for (size_t kind = 0; kind < layers_.size(); ++kind) {
    if (!is_dense(kind)) {
      moved_.add(others_[kind]->move_states(step));
      others_[kind]->begin_step(step, batch);
      continue;
    }
    const Layer& l = layers_[kind];
    for (const Tensors& t : l.steps) {
      randomise(t.q, Part::kQuery);
      randomise(t.k, Part::kKey);
      randomise(t.v, Part::kValue);
    }
    for (const ForwardBatch& of_step : steps_of(batch)) own(of_step, kind, step.requests);
    // What is copied are text tokens.
    for (const SlotCopy& c : step.copies) {
      if (!model_.layers[kind].cross) copy_slot(l, c, step.full_to_swa);
    }
  }
  if (req_to_token_.data != nullptr) copies_.copy(req_to_token_.data, step.req_to_token);
  if (full_to_swa_.data != nullptr) copies_.copy(full_to_swa_.data, step.full_to_swa);
  device->set_row_owners(step.requests);
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
      if (owners_[kind].of(slot).empty()) write_slot(l, slot);
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
  SlotOwners& owners = owners_[static_cast<size_t>(&l - layers_.data())];
  const std::optional<bool> now = owners.own(slot, owner, alone);
  if (!now) return;
  for (const Buffer* b : caches(l)) {
    const int64_t elements = b->shape[2] * b->shape[3];
    const Elements range{slot * elements, elements};
    ready_.add(*now ? arena.set_owner(*b, range, owner) : arena.add_owner(*b, range, owner));
  }
}

void RunnerWorld::write_slot(const Layer& l, int32_t slot) {
  for (const Buffer* b : caches(l)) {
    const Part part = b == &l.k_cache ? Part::kKey : Part::kValue;
    const std::vector<std::byte> bytes =
        stored(numbers(b->shape[2] * b->shape[3], b->shape[3], part), part);
    copies_.copy(b->data + static_cast<size_t>(slot) * bytes.size(), bytes);
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
  const SlotOwners& owners = owners_[static_cast<size_t>(&l - layers_.data())];
  bool alone = true;
  for (const OwnerId owner : std::vector(owners.of(c.from)))
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
  size_t row = 0;
  for (size_t t = 0; t < rows.stored.size(); ++t) {
    const int32_t slot = rows.stored[t];
    while (static_cast<size_t>(rows.cu_seqlens_q[row + 1]) <= t) ++row;
    const float factor = rows.key_factors.empty() ? 1 : rows.key_factors[row];
    const auto differs = [&](const Buffer& cache, const ConstTensorView& given, Part part) {
      const size_t elements = slot_elements(cache);
      const auto* first = reinterpret_cast<const float*>(given.data) + t * elements;
      std::vector<float> values(first, first + elements);
      for (float& x : values) x *= part == Part::kKey ? factor : 1;
      const std::vector<std::byte> want = stored(values, part);
      return std::memcmp(cache.data + static_cast<size_t>(slot) * want.size(), want.data(),
                         want.size()) != 0;
    };
    if (slot < 0 || !(differs(l.k_cache, io.k, Part::kKey) ||
                      (!l.latent && differs(l.v_cache, io.v, Part::kValue))))
      continue;
    status.add(make_finding("slot.write", at("out_cache_loc", static_cast<int64_t>(t)),
                            "its K and V in slot " + std::to_string(slot), "others there"));
    return status;
  }
  return status;
}

}  // namespace shadowgraph
