// What can be wrong with a cache, and with a scale, sink, head dim or slot wherever it stands. Used
// by what validates calls.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "attn/validate/duplicates.h"
#include "attn/validate/tensor_check.h"
#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

inline constexpr int32_t kLargestHeadDim = 1024;

std::string text(double x);

/// Scales are multiplied, and taken to base 2: what comes out must be a normal number too.
bool sound_scale(float scale);
void check_scale(TensorCheck& c, const std::string& field, float scale);
bool check_head_dim(TensorCheck& c, const std::string& field, int32_t dim);
/// One logit per query head, or none at all.
void check_sinks(TensorCheck& c, std::span<const float> sinks, int64_t num_heads);

/// Slots that tokens are written to: inside the pool, each once. drops(slot): nothing is written.
template <class Drops>
void check_slots(TensorCheck& c, std::span<const int64_t> out_cache_loc, int64_t num_slots,
                 const Drops& drops) {
  Numbered slots;
  for (size_t i = 0; i < out_cache_loc.size(); ++i) {
    const int64_t slot = out_cache_loc[i];
    if (drops(slot)) continue;
    slots.emplace_back(slot, i);
    if (slot >= num_slots)
      c.fail("slot.range", at("out_cache_loc", i), "< " + std::to_string(num_slots),
             std::to_string(slot));
  }
  find_duplicates(std::move(slots), [&](int64_t slot, size_t later, size_t earlier) {
    c.fail("slot.duplicate", at("out_cache_loc", later),
           "a slot of its own, not that of token " + std::to_string(earlier), std::to_string(slot));
  });
}

/// name stands before its fields: "" or "source ". False if nothing can be held against the cache.
/// latent: what is written to K is V's too.
bool check_cache(TensorCheck& c, const std::string& name, const KvCache& cache, bool written,
                 bool latent = false);

}  // namespace shadowgraph
