// The slots of a dense layer's world: what each holds, and whether it still does.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>

#include "check/mistakes/diagnose.h"
#include "check/worlds/dense_world.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

Elements slot_of(const Buffer& pool, int32_t slot) { return pool.rows(slot, 1); }

bool is_nan_bytes(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{kNanByte}; });
}

}  // namespace

void DenseWorld::set_owner(int32_t slot, OwnerId owner, bool alone) {
  const std::optional<bool> now = owners_.own(slot, owner, alone);
  if (!now) return;
  for (const Buffer* b : caches()) {
    const Elements range = slot_of(*b, slot);
    (void)(*now ? scope_.set_owner(*b, range, owner) : scope_.add_owner(*b, range, owner));
  }
}

void DenseWorld::write_slot(int32_t slot, int32_t number) {
  for (const Buffer* b : caches()) {
    const std::span<const std::byte> bytes =
        b == &k_cache_ ? contents_.stored_k(number) : contents_.stored_v(number);
    moves_.copy(bytes_at(*b, slot_of(*b, slot)).data(), bytes.data(), bytes.size());
  }
  held_[slot] = number;
}

void DenseWorld::poison_slot(int32_t slot) {
  for (const Buffer* b : caches()) {
    const std::span<std::byte> at = bytes_at(*b, slot_of(*b, slot));
    place_.streams.forward().fill(at.data(), kNanByte, at.size());
  }
}

/// Padding reads the sink, and it is NaN: no other row may feel it. Padding writes the first slot
/// of it. A pool with gaps needs a fill for each slot, so the others are filled again only if one
/// of them has changed.
void DenseWorld::poison_sink() {
  if (k_cache_.shape[0] == 0 || place_.options.full_pools) return;
  const int64_t page = place_.model.page_size, at_once = k_cache_.row_stride == 0 ? page : 1;
  for (const Buffer* b : caches()) {
    for (int64_t slot = 0; slot < page; slot += at_once) {
      const std::span<std::byte> sink = bytes_at(*b, b->rows(slot, at_once));
      if (slot > 0 && has_sink_ && is_nan_bytes(sink)) continue;
      place_.streams.forward().fill(sink.data(), kNanByte, sink.size());
    }
  }
  has_sink_ = true;
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
    place_.streams.pools().copy(bytes_at(*b, slot_of(*b, c.to)).data(), from.data(), from.size());
  }
  held_.erase(c.to);
  if (held(c.from) >= 0) held_[c.to] = held(c.from);
  bool alone = true;
  for (const OwnerId owner : std::vector(owners_.of(c.from)))
    set_owner(c.to, owner, std::exchange(alone, false));
}

int32_t DenseWorld::held(int32_t slot) const {
  const auto at = held_.find(slot);
  return at == held_.end() ? -1 : at->second;
}

bool DenseWorld::holds(int32_t slot, int32_t number) const {
  const auto has = [&](const Buffer& cache, std::span<const std::byte> want) {
    return std::memcmp(bytes_at(cache, slot_of(cache, slot)).data(), want.data(), want.size()) == 0;
  };
  return has(k_cache_, contents_.stored_k(number)) &&
         (kind_.mla || has(v_cache_, contents_.stored_v(number)));
}

/// Names the content of a slot, for people.
std::string DenseWorld::told(int32_t slot) const {
  const int32_t number = held(slot);
  if (number < 0) return "nothing that anybody has stored";
  if (!holds(slot, number))
    return "bytes of no token; " + contents_[number].to_string() + " was stored there";
  return contents_[number].to_string();
}

/// By bytes: what is foreign has others.
Status DenseWorld::check_reads() const {
  Status status;
  int64_t reads = 0;
  for (const StepRows& r : rows_) {
    for (size_t row = 0; row < r.keys.size(); ++row) {
      const std::span<const int32_t> old = r.rows.old_keys(row);
      for (size_t k = 0; k < old.size(); ++k) {
        if (is_evicted(old[k]) || new_.contains(old[k])) continue;
        ++reads;
        const int32_t want = r.keys[row][k];
        if (!status.ok() || holds(old[k], want)) continue;
        status.add(make_finding(
            "life.read", at(k_cache_.name, static_cast<int64_t>(row), static_cast<int64_t>(k)),
            contents_[want].to_string() + " in slot " + std::to_string(old[k]), told(old[k])));
      }
    }
  }
  judged("life.read", reads);
  return status;
}

Status DenseWorld::check_stored(const StepRows& r) const {
  Status status;
  const auto check = [&](const char* list, size_t t, int64_t slot) {
    if (!status.ok() || holds(static_cast<int32_t>(slot), r.fresh[t])) return;
    status.add(make_finding("slot.write", at(list, static_cast<int64_t>(t)),
                            "its K and V in slot " + std::to_string(slot), "others there"));
  };
  judged("slot.write", std::ssize(encoded_) + std::ssize(r.rows.stored));
  for (size_t t = 0; t < encoded_.size(); ++t) check("encoder_out_cache_loc", t, encoded_[t]);
  for (size_t t = 0; t < r.rows.stored.size(); ++t)
    if (r.rows.stored[t] >= 0) check("out_cache_loc", t, r.rows.stored[t]);
  return status;
}

/// Slots that nobody reads now, too: freed ones have their content until they are written again.
Status DenseWorld::check_still() const {
  Status status;
  judged("life.still", std::ssize(held_));
  int32_t first = -1;
  for (const auto& [slot, number] : held_)
    if (!holds(slot, number) && !new_.contains(slot) && (first < 0 || slot < first)) first = slot;
  if (first >= 0)
    status.add(make_finding("life.still", at(k_cache_.name, first),
                            contents_[held(first)].to_string(), "other bytes"));
  return status;
}

/// The key of one of the rows behind the step's tokens.
bool DenseWorld::is_of_padding(const Tensors& given, std::span<const std::byte> key) const {
  const int64_t size = given.k.rows(0, 1).count;
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i)
    values.push_back(load_float(key.data(), k_cache_.dtype, i) * values_.k_scale);
  const auto* rows = reinterpret_cast<const float*>(given.k.data);
  for (int64_t t = tokens_; t < given.k.shape[0]; ++t)
    if (std::equal(values.begin(), values.end(), rows + t * size)) return true;
  return false;
}

/// A padding token leaves its K and V in the reserved page, or nothing.
Status DenseWorld::check_sink() const {
  Status status;
  if (k_cache_.shape[0] == 0 || place_.options.full_pools) return status;
  judged("life.sink", place_.model.page_size);
  for (int32_t slot = 0; slot < place_.model.page_size; ++slot) {
    const std::span<const std::byte> got = bytes_at(k_cache_, slot_of(k_cache_, slot));
    if (is_nan_bytes(got)) continue;
    bool padding = false;
    for (const Tensors& step : steps_) padding = padding || is_of_padding(step, got);
    if (padding) continue;
    status.add(make_finding("life.sink", at(k_cache_.name, slot),
                            "what was there, or a padding token's key", "other bytes"));
    break;
  }
  return status;
}

}  // namespace shadowgraph
