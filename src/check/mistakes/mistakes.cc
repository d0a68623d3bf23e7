#include "check/mistakes/mistakes.h"

#include "attn/mask.h"
#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

constexpr Mistake kMistakes[] = {
#define SG_MISTAKE(id, function, sentence) {id, sentence, function},
#include "check/mistakes/mistakes.inc"
};

}  // namespace

std::span<const Mistake> all_mistakes() { return kMistakes; }

Reading right_reading(const Scene& scene, size_t request) {
  Reading r;
  r.q_len = scene.rows.q_len(request);
  r.keys = scene.rows.keys[request];
  r.params = scene.params;
  r.first_query = scene.rows.cu_seqlens_q[request];
  if (request < scene.rows.masks.size()) {
    r.mask = scene.rows.masks[request];
    r.mask_width = static_cast<int32_t>(r.keys.size());
    r.mask_of_heads = scene.rows.masks_of_heads;
  }
  r.request = request;
  for (size_t i = 0; i < request; ++i) r.first_bias += std::ssize(scene.rows.keys[i]);
  const auto length = static_cast<int32_t>(r.keys.size());
  const MaskShape mask =
      MaskShape::of(scene.params, static_cast<int64_t>(request), r.q_len, length);
  r.params.causal = mask.causal;
  r.first_key = mask.first_key;
  r.bidirectional.assign(mask.bidirectional.begin(), mask.bidirectional.end());
  r.k_scale = scene.tokens.k_scale, r.v_scale = scene.tokens.v_scale;
  return r;
}

}  // namespace shadowgraph
