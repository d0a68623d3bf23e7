// Faults of a parameter that reaches one path and not another.

#include <algorithm>
#include <utility>

#include "attn/lse.h"
#include "faults/launches.h"
#include "faults/plant.h"

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

constexpr Fault kParametersFaults[] = {
    // A decode's lists hold as many keys as the window, and not one more: W before the query and
    // its own. It strikes backends whose decode sees all that is listed.
    {"K34", "WINOFF", "A decode's window holds W keys, and not W + 1",
     "sglang#32087 fi.I-31 fi.I-32", "window.shorter", on_limits([](Tap& tap, Limits& limits) {
       if (!is_decode_or_idle(limits.mode)) return;
       for (LayerKind& kind : limits.model.layers) {
         int32_t& window = kind.params.window_left;
         if (window < 1 || window >= limits.max_kv_len) continue;
         --window;
         tap.act();
       }
     })},
    // The plan decides whether logits are capped, and nobody tells it; the run ignores the cap that
    // it is given. It strikes backends that plan.
    {"K37", "MISSPARAM", "A plan does not know of the soft cap, and its run ignores it",
     "sglang#33915", "scale.cap_missing", on_launches([](Tap& tap, Launches& all, const Meta&) {
       const auto none = [](auto&) { return false; };
       const auto uncapped = [](TiledAttention& c) {
         return std::exchange(c.params.logits_soft_cap, 0.0f) != 0;
       };
       tap.act(change_all(all, Overloaded{none, uncapped}));
     })},
    // An MLA decode takes its scale for one in base 2: its softmax is flatter, and its LSE is of
    // that.
    {"K38", "MISSPARAM", "The scale of an MLA decode lacks log2(e)", "flashinfer#787",
     "scale.log2e_missing", on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       if (!is_decode_or_idle(meta.limits.mode)) return;
       const auto flatter = [](auto& c) {
         if constexpr (requires { c.cache; }) {
           if (!c.cache.is_latent()) return false;
           c.params.sm_scale /= static_cast<float>(kLog2E);
           return true;
         }
         return false;
       };
       tap.act(change_all(all, flatter));
     })},
    // The entry that returns an LSE drops k_scale and v_scale. It strikes prefills over a cache.
    {"K73", "QUANT", "The scales of K and V are lost where an LSE is returned",
     "flashinfer#1254 flashinfer#1023", "scale.kv_missing",
     on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       if (is_decode_or_idle(meta.limits.mode)) return;
       const auto lost = [](auto& c) { return c.lse.tensor.defined() && drop_scales(&c.cache); };
       tap.act(change_all(all, Overloaded{[](RaggedAttention&) { return false; }, lost}));
     })},
    // Where keys need no widening, as they are already fp8, they are returned before their scale is
    // read. It strikes backends that read pages, and Triton.
    {"K74", "QUANT", "A fast path for fp8 drops the scales of K and V", "vllm#42580",
     "scale.kv_missing", on_launches([](Tap& tap, Launches& all, const Meta&) {
       const auto lost = [](auto& c) { return is_fp8(c.cache.k.dtype) && drop_scales(&c.cache); };
       tap.act(change_all(all, Overloaded{[](RaggedAttention&) { return false; },
                                          [](TiledAttention&) { return false; }, lost}));
     })},
    // The queries of a request stand on an axis of the grid that has a limit, here of 2 bits; what
    // is beyond is dropped.
    {"K83", "OTHER", "Queries stand on an axis of the grid that is too short",
     "FlashMLA#182 FlashMLA#173", "row.unwritten",
     on_launches([](Tap& tap, Launches& all, const Meta&) {
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
       tap.act(change_all(all, cut_call));
     })},
};

}  // namespace

std::span<const Fault> themes::parameters() { return kParametersFaults; }

}  // namespace shadowgraph
