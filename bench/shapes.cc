#include "bench/shapes.h"

#include <algorithm>

#include "core/choices.h"

namespace shadowgraph::bench {
namespace {

/// (query, key) pairs of one request and query head that attend.
int64_t visible_pairs(const Shape& s, int32_t request) {
  const int64_t prefix = s.kv_len_of(request) - s.q_len;
  int64_t pairs = 0;
  for (int32_t token = 0; token < s.q_len; ++token) {
    int64_t keys = prefix + token + 1;
    if (s.tree_mask) {
      keys = prefix + 1;
      for (int32_t up = tree_parent(token); up >= 0; up = tree_parent(up)) ++keys;
    }
    pairs += s.window_left < 0 ? keys : std::min<int64_t>(keys, int64_t{s.window_left} + 1);
  }
  return pairs;
}

}  // namespace

int32_t tree_parent(int32_t token) {
  Rng rng(static_cast<uint64_t>(token));
  return static_cast<int32_t>(rng.below(static_cast<uint32_t>(token + 1))) - 1;
}

int32_t first_visible(const Shape& s, int32_t request) {
  if (s.window_left < 0) return 0;
  return std::max(0, s.kv_len_of(request) - s.q_len - s.window_left);
}

double flop_of(const Shape& s) {
  if (s.judges() || s.merges()) return 0;
  if (s.has_states()) {
    const StateDims d = dims_of(s.recurrent);
    const double a_token = 2.0 * (d.delta ? 3 : 2) * d.head_dim_k * d.head_dim_v * d.num_v_heads;
    return a_token * s.batch * s.q_len;
  }
  int64_t pairs = 0;
  for (int32_t i = 0; i < s.batch; ++i) pairs += visible_pairs(s, i);
  const int64_t per_pair = 2 * (int64_t{s.head_dim_qk} + s.head_dim_vo) * s.num_qo_heads;
  return static_cast<double>(pairs * per_pair);
}

double kv_bytes_of(const Shape& s) {
  if (s.judges()) return 0;
  if (s.merges()) {
    const double a_row = s.head_dim_vo * static_cast<double>(size_of(s.dtype)) + sizeof(float);
    return 3.0 * s.merged_rows * s.num_qo_heads * a_row;
  }
  if (s.has_states()) {
    const StateDims d = dims_of(s.recurrent);
    return 4.0 * s.batch * d.num_v_heads * d.head_dim_k * d.head_dim_v;
  }
  int64_t keys = 0;
  for (int32_t i = 0; i < s.batch; ++i) keys += s.kv_len_of(i) - first_visible(s, i);
  // A latent is key and value at once.
  const int64_t dims =
      s.layout == Layout::kMlaLatent ? s.head_dim_qk : int64_t{s.head_dim_qk} + s.head_dim_vo;
  return static_cast<double>(keys * s.num_kv_heads * dims * static_cast<int64_t>(size_of(s.dtype)));
}

}  // namespace shadowgraph::bench
