// What can be wrong with a cache, and with a scale, sink or head dim wherever it stands. Used by
// what validates calls.
#pragma once

#include <span>
#include <string>

#include "attn/tensor_check.h"
#include "shadowgraph/kv_cache.h"

namespace shadowgraph {

inline constexpr int32_t kLargestHeadDim = 1024;

std::string text(double x);

/// Scales are multiplied, and taken to base 2: what comes out must be a normal number too.
bool sound_scale(float scale);
void check_scale(TensorCheck& c, const std::string& field, float scale);
bool check_head_dim(TensorCheck& c, const std::string& field, int32_t dim);
/// One logit per query head, or none at all.
void check_sinks(TensorCheck& c, std::span<const float> sinks, int64_t num_heads);

/// name stands before its fields: "" or "source ". False if nothing can be held against the cache.
/// latent: what is written to K is V's too.
bool check_cache(TensorCheck& c, const std::string& name, const KvCache& cache, bool written,
                 bool latent = false);

}  // namespace shadowgraph
