#include "check/worlds/dense_world.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "check/mistakes/diagnose.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr float kSelectorQuery = 1024;    // times a scale of 1/4 and more
constexpr float kSelectorSink = -1024;    // no key has such a logit
constexpr float kSelectorKeys = 1 << 19;  // integers below twice that: few are alike

size_t row_bytes(const Buffer& b) {
  return b.bytes() / static_cast<size_t>(std::max<int64_t>(1, b.shape[0]));
}

/// A slot of a pool [pages, page_size, heads, head_dim].
Elements slot_of(const Buffer& b, int32_t slot) {
  const int64_t elements = b.shape[2] * b.shape[3];
  return {slot * elements, elements};
}

}  // namespace

/// With selector data every key begins with an integer of its own. A query multiplies that integer
/// by so much that logits, exact in f32, are 256 apart: exp(-256) is 0.
std::vector<float> DenseWorld::numbers(int64_t count, int64_t dim, Part part) {
  const RunnerOptions& o = place_.options;
  std::vector<float> values(static_cast<size_t>(count));
  const bool selects = o.data == RunnerData::kSelector;
  if (part == Part::kQuery && o.data != RunnerData::kRandom) {
    for (size_t i = 0; selects && i < values.size(); i += static_cast<size_t>(dim))
      values[i] = kSelectorQuery;
    return values;
  }
  for (float& x : values) x = place_.rng.signed_unit();
  if (o.kv_dtype != DType::kF32 && part != Part::kQuery) {
    const float scale = scale_of(part);
    for (float& x : values) {
      std::byte element[sizeof(float)];
      store_float(element, o.kv_dtype, 0, x / scale);
      x = load_float(element, o.kv_dtype, 0) * scale;
    }
  }
  if (selects && part == Part::kKey) {
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(dim))
      values[i] = std::floor((1 + values[i]) * kSelectorKeys);
  }
  return values;
}

std::vector<float> DenseWorld::sink_logits() {
  std::vector<float> logits(static_cast<size_t>(kind_.params.num_qo_heads));
  for (float& x : logits) {
    x = 4 * place_.rng.signed_unit();
    if (place_.rng.below(4) == 0) x = -std::numeric_limits<float>::infinity();
    if (place_.options.data == RunnerData::kSelector) x = kSelectorSink;
  }
  return logits;
}

float DenseWorld::scale_of(Part part) const {
  return part == Part::kValue ? values_.v_scale : values_.k_scale;
}

std::vector<std::byte> DenseWorld::stored(std::span<const float> values, Part part) const {
  const DType type = place_.options.kv_dtype;
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (size_t i = 0; i < values.size(); ++i)
    store_float(bytes.data(), type, static_cast<int64_t>(i), values[i] / scale_of(part));
  return bytes;
}

void DenseWorld::randomise(const Buffer& b, Part part) {
  copies_.copy(b.data, numbers(b.numel(), b.shape.back(), part));
}

void DenseWorld::clear_outputs() {
  for (const Buffer* b : outputs()) place_.stream.fill(b->data, kUnwritten, b->bytes());
}

void DenseWorld::rewind() {
  for (const int32_t slot : new_) {
    for (const Buffer* b : caches()) {
      const std::span<std::byte> at = bytes_at(*b, slot_of(*b, slot));
      place_.stream.fill(at.data(), kNanByte, at.size());
    }
  }
}

ForwardBatch DenseWorld::at_step(ForwardBatch batch, size_t step) {
  batch.spec.step += static_cast<int32_t>(step);
  return batch;
}

void DenseWorld::begin_step(const Step& step, const ForwardBatch& batch) {
  copies_.clear();
  new_.clear();
  tokens_ = Limits::exact(batch, place_.model).tokens;
  if (place_.options.diagnose && batch.mode != ForwardMode::kPrebuilt) scenes_.begin_step(batch);
  for (const Tensors& t : steps_) {
    randomise(t.q, Part::kQuery);
    randomise(t.k, Part::kKey);
    randomise(t.v, Part::kValue);
  }
  encoded_.clear();
  if (kind_.cross && !is_captured(batch.mode))
    encoded_.assign(batch.encoder_out_cache_loc.begin(), batch.encoder_out_cache_loc.end());
  for (size_t s = 0; s < steps_.size(); ++s) own(at_step(batch, s), step.requests);
  // Copies move only tokens of the text.
  for (const SlotCopy& c : step.copies) {
    if (!kind_.cross) copy_slot(c, step.full_to_swa);
  }
}

void DenseWorld::own(const ForwardBatch& batch, std::span<const OwnerId> owners) {
  const CanonicalRows rows = canonical_rows(batch, kind_, place_.model);
  const auto per_request =
      batch.size() == 0 ? 1 : static_cast<int64_t>(rows.keys.size()) / batch.size();
  for (size_t r = 0; r < rows.keys.size(); ++r) {
    const OwnerId owner = owners[r / static_cast<size_t>(per_request)];
    for (const int32_t slot : rows.old_keys(r)) {
      if (slot < place_.model.page_size) continue;  // evicted from its window
      const bool encoded = std::ranges::find(encoded_, slot) != encoded_.end();
      // A history may begin in the middle: what was stored before it is written here.
      if (!encoded && owners_.of(slot).empty()) write_slot(slot);
      set_owner(slot, owner, encoded);
      if (encoded) new_.push_back(slot);
    }
    for (const int32_t slot : rows.stored_by(r)) {
      if (slot < 0) continue;
      if (batch.mode == ForwardMode::kPrebuilt) write_slot(slot);
      set_owner(slot, owner, true);
      new_.push_back(slot);
    }
  }
}

void DenseWorld::set_owner(int32_t slot, OwnerId owner, bool alone) {
  const std::optional<bool> now = owners_.own(slot, owner, alone);
  if (!now) return;
  for (const Buffer* b : caches()) {
    const Elements range = slot_of(*b, slot);
    (void)(*now ? scope_.set_owner(*b, range, owner) : scope_.add_owner(*b, range, owner));
  }
}

void DenseWorld::write_slot(int32_t slot) {
  for (const Buffer* b : caches()) {
    const Part part = b == &k_cache_ ? Part::kKey : Part::kValue;
    const Elements at = slot_of(*b, slot);
    copies_.copy(bytes_at(*b, at).data(), stored(numbers(at.count, b->shape[3], part), part));
  }
}

void DenseWorld::copy_slot(SlotCopy c, std::span<const int64_t> full_to_swa) {
  // Ranks have chains, of which what is accepted stays where it is.
  assert(place_.model.dcp_size == 1);
  if (swa_) {
    c.from = static_cast<int32_t>(full_to_swa[static_cast<size_t>(c.from)]);
    c.to = static_cast<int32_t>(full_to_swa[static_cast<size_t>(c.to)]);
  }
  for (const Buffer* b : caches()) {
    const std::span<std::byte> from = bytes_at(*b, slot_of(*b, c.from));
    place_.stream.copy(bytes_at(*b, slot_of(*b, c.to)).data(), from.data(), from.size());
  }
  bool alone = true;
  for (const OwnerId owner : std::vector(owners_.of(c.from)))
    set_owner(c.to, owner, std::exchange(alone, false));
}

void DenseWorld::keep_outputs() {
  kept_.clear();
  for (const Buffer* b : outputs()) {
    const size_t bytes = row_bytes(*b) * static_cast<size_t>(tokens_);
    kept_.insert(kept_.end(), b->data, b->data + bytes);
  }
}

Status DenseWorld::same_outputs() const {
  Status status;
  const std::byte* kept = kept_.data();
  for (const Buffer* b : outputs()) {
    const size_t row = row_bytes(*b);
    judged("num.bits", tokens_);
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

Status DenseWorld::judge_outputs(const ForwardBatch& batch, size_t step,
                                 const Limits& limits) const {
  const RunnerOptions& o = place_.options;
  const BackendInfo& info = place_.backend.info();
  const ForwardBatch b = at_step(batch, step);
  LayerIo io;
  io.kind = static_cast<int32_t>(place_.kind);
  describe(tokens_, step, &io);
  const CanonicalCall canonical(b, place_.model, io);
  const PagedAttention& call = canonical.call();
  const Result result{call.out, call.lse.tensor, LseBase::kNatural,
                      place_.backend.lse_sink(batch.mode)};
  JudgeOptions how{.bounded = !o.outputs_alone,
                   .parts = place_.backend.merged_parts(b, limits, kind_)};
  if (o.data == RunnerData::kSelector) how.bounded = false, how.exact = true;
  const bool merged = std::ranges::any_of(how.parts, [](int32_t n) { return n > 1; });
  const Arithmetic& arithmetic = *find_arithmetic(merged ? "ours_merged" : "ours_portable");
  if (info.whole_draft) how.prefix = "step" + std::to_string(b.spec.step) + ".";
  Judgement j = canonical.dual_chunk()
                    ? judge(DualChunkCall<PagedAttention>{call, *canonical.dual_chunk()}, result,
                            arithmetic, how)
                    : judge(call, result, arithmetic, how);
  // No known mistake is one of dual chunks.
  if (o.diagnose && !j.findings.ok() && !canonical.dual_chunk()) {
    const std::vector<Explanation> all =
        diagnose(scenes_.of(b, canonical), result, arithmetic,
                 {.exact = how.exact, .parts = how.parts, .unwritten = true, .of_many = true});
    for (Finding& f : j.findings.findings()) f.diagnosis = all;
  }
  Status status = std::move(j.findings);
  status.add(check_stored(canonical.rows(), steps_[step]));
  return status;
}

Status DenseWorld::check_stored(const ForwardBatch& batch, size_t step) const {
  return check_stored(canonical_rows(at_step(batch, step), kind_, place_.model), steps_[step]);
}

bool DenseWorld::holds(int32_t slot, const Tensors& given, size_t t, float key_factor) const {
  const auto has = [&](const Buffer& cache, const Buffer& of, Part part) {
    const Elements place = slot_of(cache, slot);
    const auto* first = reinterpret_cast<const float*>(of.data) + t * place.count;
    std::vector<float> values(first, first + place.count);
    for (float& x : values) x *= part == Part::kKey ? key_factor : 1;
    const std::vector<std::byte> want = stored(values, part);
    return std::memcmp(bytes_at(cache, place).data(), want.data(), want.size()) == 0;
  };
  return has(k_cache_, given.k, Part::kKey) && (kind_.mla || has(v_cache_, given.v, Part::kValue));
}

Status DenseWorld::check_stored(const CanonicalRows& rows, const Tensors& given) const {
  Status status;
  const auto fail = [&](const char* list, size_t t, int64_t slot) {
    status.add(make_finding("slot.write", at(list, static_cast<int64_t>(t)),
                            "its K and V in slot " + std::to_string(slot), "others there"));
  };
  for (size_t t = 0; t < encoded_.size() && status.ok(); ++t)
    if (!holds(static_cast<int32_t>(encoded_[t]), given, t, 1))
      fail("encoder_out_cache_loc", t, encoded_[t]);
  judged("slot.write", std::ssize(encoded_) + std::ssize(rows.stored));
  size_t row = 0;
  for (size_t t = 0; t < rows.stored.size() && status.ok(); ++t) {
    while (static_cast<size_t>(rows.cu_seqlens_q[row + 1]) <= t) ++row;
    const float factor = rows.key_factors.empty() ? 1 : rows.key_factors[row];
    if (rows.stored[t] >= 0 && !holds(rows.stored[t], given, t, factor))
      fail("out_cache_loc", t, rows.stored[t]);
  }
  return status;
}

}  // namespace shadowgraph
