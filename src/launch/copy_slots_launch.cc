#include "launch/copy_slots_launch.h"

#include <algorithm>
#include <vector>

#include "attn/validate/cache_check.h"
#include "kernels/cache/copy_kv.h"
#include "kernels/cache/slot_spans.h"

namespace shadowgraph {

namespace {

/// fn(pair) for every pair that is not dropped.
template <class Fn>
void for_each_pair(const CopySlots& c, Fn fn) {
  for (size_t i = 0; i < c.target_slots.size(); ++i)
    if (c.target_slots[i] >= c.cache.page_size) fn(i);
}

bool in_pool(const CopySlots& c, int64_t slot) {
  return slot >= 0 && slot / c.cache.page_size < c.cache.num_pages;
}

bool is_sound_cache(const KvCache& cache) {
  Status status;
  TensorCheck check(&status);
  if (check_cache(check, "", cache, true, cache.is_latent())) check.no_aliases();
  return status.ok();
}

/// Every slot in the pool, no target twice, none of them a source.
bool are_sound_pairs(const CopySlots& c) {
  std::vector<int64_t> targets;
  bool sound = c.source_slots.size() == c.target_slots.size();
  if (!sound) return false;
  for_each_pair(c, [&](size_t i) {
    sound = sound && in_pool(c, c.source_slots[i]) && in_pool(c, c.target_slots[i]);
    targets.push_back(c.target_slots[i]);
  });
  std::ranges::sort(targets);
  sound = sound && std::ranges::adjacent_find(targets) == targets.end();
  for_each_pair(c, [&](size_t i) {
    sound = sound && !std::ranges::binary_search(targets, c.source_slots[i]);
  });
  return sound;
}

bool is_sound(const CopySlots& c) { return is_sound_cache(c.cache) && are_sound_pairs(c); }

void copy(const CopySlots& call) {
  if (!is_sound(call)) return;
  for_each_pair(
      call, [&](size_t i) { copy_slot(call.cache, call.source_slots[i], call.target_slots[i]); });
}

/// The accesses beyond the pool of a slot that it does not have.
void add_missing(Footprint* spans, const CopySlots& c, int64_t slot, Access access) {
  if (in_pool(c, slot)) return;
  const int64_t page = slot / c.cache.page_size;
  add_beyond_pool(spans, c.cache, slot < 0 ? std::min<int64_t>(page, -1) : page, access, -1);
}

void note_copy(const CopySlots& call, Footprint* spans) {
  add_whole(spans, call.source_slots);
  add_whole(spans, call.target_slots);
  if (!is_sound_cache(call.cache) || call.source_slots.size() != call.target_slots.size()) return;
  const bool sound = are_sound_pairs(call);
  const KvPlane* const planes[] = {&call.cache.k, &call.cache.v};
  for_each_pair(call, [&](size_t i) {
    const int64_t from = call.source_slots[i], to = call.target_slots[i];
    if (sound) {
      for (const KvPlane* p : planes) {
        add_slot(spans, call.cache, *p, from, Access::kRead, -1);
        add_slot(spans, call.cache, *p, to, Access::kWrite, -1);
      }
    } else {
      add_missing(spans, call, from, Access::kRead);
      add_missing(spans, call, to, Access::kWrite);
    }
  });
}

}  // namespace

constinit const Kernel kCopySlots = launch_kernel<CopySlots, copy, note_copy>("copy_slots");

KernelLaunch copy_slots_launch(const CopySlots& call) {
  return launch_of(kCopySlots, call, {}, std::ssize(call.target_slots));
}

}  // namespace shadowgraph
