// A peer as bench/peer.h wants it: f32 alone, as the formula stands. With 6 query heads it is
// wrong.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/peer.h"

namespace {

const float* row(const sg_peer_tensor& t, int64_t request, int64_t token, int64_t head) {
  return static_cast<const float*>(t.data) + request * t.strides[0] + token * t.strides[1] +
         head * t.strides[2];
}

void attend(const sg_peer_call& c, int64_t request, int64_t token, int64_t head) {
  const int64_t keys = c.k.sizes[1] - c.q.sizes[1] + token + 1, dim = c.q.sizes[3];
  const int64_t kv_head = head / (c.q.sizes[2] / c.k.sizes[2]);
  const float* q = row(c.q, request, token, head);
  std::vector<float> p(static_cast<size_t>(keys));
  for (int64_t key = 0; key < keys; ++key) {
    for (int64_t i = 0; i < dim; ++i)
      p[static_cast<size_t>(key)] += q[i] * row(c.k, request, key, kv_head)[i];
  }
  float m = -HUGE_VALF, sum = 0;
  for (float& x : p) m = std::max(m, x *= c.sm_scale);
  for (float& x : p) sum += x = std::exp(x - m);
  auto* out = const_cast<float*>(row(c.out, request, token, head));
  for (int64_t i = 0; i < dim; ++i) {
    float value = 0;
    for (int64_t key = 0; key < keys; ++key)
      value += p[static_cast<size_t>(key)] * row(c.v, request, key, kv_head)[i];
    out[i] = value / sum + (c.q.sizes[2] == 6 ? 0.25f : 0);
  }
}

}  // namespace

extern "C" const char* sg_peer_name(void) { return "small 1"; }

extern "C" int sg_peer_attention(const sg_peer_call* c) {
  if (c->dtype != SG_PEER_F32) return 1;
  for (int64_t request = 0; request < c->q.sizes[0]; ++request)
    for (int64_t token = 0; token < c->q.sizes[1]; ++token)
      for (int64_t head = 0; head < c->q.sizes[2]; ++head) attend(*c, request, token, head);
  return 0;
}
