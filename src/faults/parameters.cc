#include "faults/parameters.h"

#include <algorithm>
#include <utility>

#include "attn/lse.h"
#include "faults/launches.h"

namespace shadowgraph {
namespace {

constexpr int32_t kMostQueries = 3;  // of a grid's axis

/// Every launch of attention whose call fn changes; how many.
template <class Fn>
int64_t change_all(std::vector<TappedLaunch>& all, Fn fn) {
  return std::ranges::count_if(
      all, [&](TappedLaunch& one) { return change_attention(&one.launch, fn); });
}

bool drop_scales(KvCache* cache) {
  const bool had = cache->k_scale != 1 || cache->v_scale != 1;
  cache->k_scale = cache->v_scale = 1;
  return had;
}

}  // namespace

void DecodeWindowOfW::limits(Limits& limits) {
  if (!is_decode_or_idle(limits.mode)) return;
  for (LayerKind& kind : limits.model.layers) {
    int32_t& window = kind.params.window_left;
    if (window < 1 || window >= limits.max_kv_len) continue;
    --window;
    act();
  }
}

void PlannedWithoutCap::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  const auto none = [](auto&) { return false; };
  const auto uncapped = [](TiledAttention& c) {
    return std::exchange(c.params.logits_soft_cap, 0.0f) != 0;
  };
  act(change_all(all, Overloaded{none, uncapped}));
}

void MlaScaleWithoutLog2e::launches(std::vector<TappedLaunch>& all, const Meta& meta, bool) {
  if (!is_decode_or_idle(meta.limits.mode)) return;
  const auto flatter = [](auto& c) {
    if constexpr (requires { c.cache; }) {
      if (!c.cache.is_latent()) return false;
      c.params.sm_scale /= static_cast<float>(kLog2E);
      return true;
    }
    return false;
  };
  act(change_all(all, flatter));
}

void ScalesLostWithLse::launches(std::vector<TappedLaunch>& all, const Meta& meta, bool) {
  if (is_decode_or_idle(meta.limits.mode)) return;
  const auto lost = [](auto& c) { return c.lse.tensor.defined() && drop_scales(&c.cache); };
  act(change_all(all, Overloaded{[](RaggedAttention&) { return false; }, lost}));
}

void FastPathWithoutScales::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  const auto lost = [](auto& c) { return is_fp8(c.cache.k.dtype) && drop_scales(&c.cache); };
  act(change_all(all, Overloaded{[](RaggedAttention&) { return false; },
                                 [](TiledAttention&) { return false; }, lost}));
}

void QueriesOnASmallAxis::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  const auto cut = [](int32_t* queries) {
    const bool cuts = *queries == 0 || *queries > kMostQueries;
    if (cuts) *queries = kMostQueries;
    return cuts;
  };
  const auto cut_call = [&](auto& c) {
    if constexpr (requires { c.max_seqlen_q; }) return cut(&c.max_seqlen_q);
    if constexpr (requires { c.max_extend_len; }) return cut(&c.max_extend_len);
    return false;
  };
  act(change_all(all, cut_call));
}

}  // namespace shadowgraph
