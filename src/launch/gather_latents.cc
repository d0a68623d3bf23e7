#include "launch/gather_latents.h"

#include <algorithm>

#include "attn/validate/cache_check.h"
#include "core/float_formats.h"
#include "kernels/cache/slot_spans.h"
#include "kernels/spans.h"

namespace shadowgraph {

namespace {

bool in_pool(const GatherLatents& c, int64_t slot) {
  return slot >= 0 && slot / c.cache.page_size < c.cache.num_pages;
}

bool is_sound_cache(const GatherLatents& c) {
  Status status;
  TensorCheck check(&status);
  return check_cache(check, "", c.cache, false) && status.ok() && c.cache.is_latent() &&
         c.out.shape[2] == c.cache.k.head_dim;
}

/// As many of the slots as there are, and of the rows.
int64_t known_tokens(const GatherLatents& c) {
  return std::min(static_cast<int64_t>(c.slots.size()), c.out.shape[0]);
}

bool are_sound_offsets(const GatherLatents& c) {
  return !c.cu_seqlens.empty() && c.cu_seqlens.front() == 0 &&
         std::ranges::is_sorted(c.cu_seqlens) && c.cu_seqlens.back() <= known_tokens(c);
}

std::span<const int64_t> used_slots(const GatherLatents& c) {
  return c.slots.first(static_cast<size_t>(c.cu_seqlens.back()));
}

bool are_sound_slots(const GatherLatents& c) {
  return std::ranges::all_of(used_slots(c), [&](int64_t slot) { return in_pool(c, slot); });
}

void gather_row(const GatherLatents& c, int64_t t, int64_t slot) {
  const KvPlane& k = c.cache.k;
  const int64_t page = slot / c.cache.page_size, token = slot % c.cache.page_size;
  const float scale = k.scales == nullptr ? 1 : k.scales[k.scale_offset(page, token, 0)];
  for (int64_t d = 0; d < k.head_dim; ++d)
    store_float(c.out.at(t, 0), DType::kF32, d,
                load_float(k.data, k.dtype, k.offset(page, token, 0, d)) * scale);
}

void gather(const GatherLatents& call) {
  if (!is_sound_cache(call) || !are_sound_offsets(call) || !are_sound_slots(call)) return;
  int64_t t = 0;
  for (const int64_t slot : used_slots(call)) gather_row(call, t++, slot);
}

/// Adds what offsets touch that lead beyond the existing slots or rows.
void add_beyond(Footprint* spans, const GatherLatents& c) {
  const int64_t tokens = c.cu_seqlens.empty() ? 0 : c.cu_seqlens.back();
  const auto slots = static_cast<int64_t>(c.slots.size()), rows = c.out.shape[0];
  if (tokens > slots)
    spans->push_back({c.slots.data(), slots, tokens - slots, sizeof(int64_t), Access::kRead});
  if (tokens > rows)
    spans->push_back({c.out.data, rows * c.out.stride[0], (tokens - rows) * c.out.stride[0],
                      element_bytes(c.out.dtype), Access::kWrite});
}

void add_token(Footprint* spans, const GatherLatents& c, int64_t t, int32_t row, bool sound) {
  const int64_t slot = c.slots[static_cast<size_t>(t)];
  spans->push_back({c.slots.data(), t, 1, sizeof(int64_t), Access::kRead, row});
  if (sound) {
    add_slot(spans, c.cache, c.cache.k, slot, Access::kRead, row);
    spans->push_back({c.out.data, c.out.offset(t, 0), c.out.shape[2], element_bytes(c.out.dtype),
                      Access::kWrite, row});
  } else if (!in_pool(c, slot)) {
    add_beyond_pool(spans, c.cache, slot < 0 ? -1 : slot / c.cache.page_size, Access::kRead, row);
  }
}

void note_gather(const GatherLatents& call, Footprint* spans) {
  add_whole(spans, call.cu_seqlens);
  if (!is_sound_cache(call)) return;
  if (!are_sound_offsets(call)) return add_beyond(spans, call);
  const bool sound = are_sound_slots(call);
  for (size_t i = 0; i + 1 < call.cu_seqlens.size(); ++i)
    for (int64_t t = call.cu_seqlens[i]; t < call.cu_seqlens[i + 1]; ++t)
      add_token(spans, call, t, static_cast<int32_t>(i), sound);
}

}  // namespace

constinit const Kernel kGatherLatents =
    launch_kernel<GatherLatents, gather, note_gather>("gather_latents");

KernelLaunch gather_latents_launch(const GatherLatents& call, const RequestRows& rows) {
  return launch_of(kGatherLatents, call, rows, std::ssize(call.slots));
}

}  // namespace shadowgraph
