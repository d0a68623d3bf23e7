#include "check/mistakes/mistakes.h"

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
  }
  r.k_scale = scene.tokens.k_scale, r.v_scale = scene.tokens.v_scale;
  return r;
}

}  // namespace shadowgraph
