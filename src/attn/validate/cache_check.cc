#include "attn/validate/cache_check.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "attn/lse.h"

namespace shadowgraph {
namespace {

/// Both planes strided, or K in key panels and V in value panels, in whole panels a page. Any other
/// byte may come from a launch's scalars.
bool check_order(TensorCheck& c, const std::string& name, const KvCache& cache) {
  if (cache.k.order == KvOrder::kStrided && cache.v.order == KvOrder::kStrided) return true;
  bool ok = true;
  if (cache.k.order != KvOrder::kKeyPanels || cache.v.order != KvOrder::kValuePanels) {
    c.fail("input.shape", at(name + "cache.order"), "K and V both in panels, each in its own order",
           "K and V that disagree");
    ok = false;
  }
  if (cache.page_size % kPanelTokens != 0) {
    c.fail("input.shape", at(name + "cache.page_size"), "whole panels of 16 tokens",
           std::to_string(cache.page_size));
    ok = false;
  }
  return ok;
}

}  // namespace

std::string text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", x);
  return buffer;
}

bool sound_scale(float scale) {
  return std::isnormal(scale) && scale > 0 && std::isnormal(scale * static_cast<float>(kLog2E));
}

void check_scale(TensorCheck& c, const std::string& field, float scale) {
  if (sound_scale(scale)) return;
  c.fail("param.scale", at(field), "finite and normal also in base 2, > 0", text(scale));
}

bool check_head_dim(TensorCheck& c, const std::string& field, int32_t dim) {
  if (dim >= 1 && dim <= kLargestHeadDim) return true;
  c.fail("param.head_dim", at(field), "1..1024", std::to_string(dim));
  return false;
}

void check_sinks(TensorCheck& c, std::span<const float> sinks, int64_t num_heads) {
  if (!sinks.empty() && std::ssize(sinks) != num_heads) {
    c.fail("param.sinks", at("sinks"), "one per query head",
           std::to_string(sinks.size()) + " logits");
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    const float in_base_2 = sinks[i] * static_cast<float>(kLog2E);
    if (std::isfinite(in_base_2) || sinks[i] == -std::numeric_limits<float>::infinity()) continue;
    c.fail("param.sinks", at("sinks", i), "-inf, or finite also in base 2", text(sinks[i]));
  }
}

bool check_cache(TensorCheck& c, const std::string& name, const KvCache& cache, bool written,
                 bool latent) {
  if (!cache.well_formed || cache.page_size < 1 || cache.num_kv_heads < 1) {
    c.fail("input.shape", at(name + "cache"),
           "K and V of rank 4 (stacked: one of rank 5) with equal pages, page_size and heads, "
           "page_size and heads >= 1, and contiguous head dims (panels: whole ones); scales f32 "
           "[pages, page_size, heads]",
           "tensors that disagree");
    return false;
  }
  check_scale(c, name + "k_scale", cache.k_scale);
  check_scale(c, name + "v_scale", cache.v_scale);
  bool ok = check_order(c, name, cache);
  ok &= check_head_dim(c, name + "k_cache head_dim", cache.k.head_dim);
  ok &= check_head_dim(c, name + "v_cache head_dim", cache.v.head_dim);
  if (!ok || !c.planes(name, cache, written, latent)) return false;
  int64_t slots = 0;
  if (!__builtin_mul_overflow(cache.num_pages, int64_t{cache.page_size}, &slots)) return true;
  c.fail("input.overflow", at(name + "cache.num_pages"), "slots within 2^63",
         std::to_string(cache.num_pages));
  return false;
}

}  // namespace shadowgraph
