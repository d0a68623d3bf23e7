// One query row of one head by one warp, in the arithmetic of src/kernels/attend (portable): a
// logit is one chain over the head dim, a value one chain over the keys, the sum of weights is kept
// in 16 lanes, splits of 512 keys are folded left to right. So the bits are the CPU's.
#pragma once

#include "attn/mask.h"
#include "cuda/kernels/planes.cuh"
#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"

namespace shadowgraph::cuda {

struct AttentionRow {
  const std::byte* q;  // its head_dim_qk elements
  DType q_dtype;
  KvTokens k, v;            // at its KV head, and the request's first token
  const int32_t* page_ids;  // nullptr: ragged
  int32_t page_size;
  KvRange keys;
  int32_t tile;  // keys between two looks at the running maximum
  CustomMask::Kind mask_kind;
  const uint8_t* mask;
  int64_t first_pair;
  float scale, soft_cap, v_scale;
  const float* sink;  // nullptr: none
  bool lse_sink;
  std::byte* out;
  DType out_dtype;
  float* lse;  // nullptr: not asked for

  __device__ bool sees(int32_t key) const {
    if (key < keys.begin || key >= keys.end) return false;
    if (mask_kind == CustomMask::Kind::kNone) return true;
    const int64_t pair = first_pair + key;
    if (mask_kind == CustomMask::Kind::kBool) return mask[pair] != 0;
    return (mask[pair / 8] >> (pair % 8) & 1) != 0;
  }
  __device__ float k_scale_of(int32_t key) const {
    if (k.scales == nullptr) return scale;
    return scale * k.scales[scale_offset(k, page_ids, page_size, key)];
  }
};

/// What a warp has in shared memory.
struct RowRoom {
  float* q;              // [head_dim_qk]
  float* weights;        // [kMostTile], logits before
  int64_t* value_start;  // [kMostTile] token_offset of V
  float* o;              // [2][head_dim_vo]: of all splits so far, of this one

  static constexpr int64_t bytes(int64_t head_dim_qk, int64_t head_dim_vo) {
    return kMostTile * int64_t{sizeof(int64_t) + sizeof(float)} +
           round_up((head_dim_qk + 2 * head_dim_vo) * int64_t{sizeof(float)}, 16);
  }
  __device__ RowRoom(std::byte* at, int64_t head_dim_qk) {
    value_start = reinterpret_cast<int64_t*>(at);
    weights = reinterpret_cast<float*>(value_start + kMostTile);
    q = weights + kMostTile;
    o = q + head_dim_qk;
  }
};

__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, x, step);
    x = other > x ? other : x;
  }
  return x;
}

/// A tile's logits, -inf where hidden; returns the largest.
__device__ inline float logits_of_tile(const AttentionRow& r, const RowRoom& room, int32_t tile,
                                       int lane) {
  float largest = -kInfinity;
  for (int32_t i = lane; i < r.tile; i += 32) {
    const int32_t key = tile + i;
    float logit = -kInfinity;
    if (r.sees(key)) {
      const int64_t start = token_offset(r.k, r.page_ids, r.page_size, key);
      room.value_start[i] = token_offset(r.v, r.page_ids, r.page_size, key);
      float sum = 0;
      for (int32_t d = 0; d < r.k.head_dim; ++d)
        sum = fmaf(room.q[d], load(r.k.data, r.k.dtype, key_element(r.k, start, key, d)), sum);
      logit = sum * r.k_scale_of(key);
      if (r.soft_cap != 0) logit = tanh_of(logit) * r.soft_cap;
    }
    room.weights[i] = logit;
    largest = logit > largest ? logit : largest;
  }
  return warp_max(largest);
}

/// One split's state; d lane by lane, of lanes 0 to 15.
struct SplitState {
  float m = -kInfinity, d = 0;
};

__device__ inline void weigh_tile(const AttentionRow& r, const RowRoom& room, int32_t tile,
                                  float largest, SplitState* s, float* o, int lane) {
  if (largest > s->m) {
    if (s->m != -kInfinity) {
      const float factor = exp2_of(s->m - largest);
      s->d *= factor;
      for (int32_t i = lane; i < r.v.head_dim; i += 32) o[i] *= factor;
    }
    s->m = largest;
  }
  const float m = s->m == -kInfinity ? 0 : s->m;
  for (int32_t i = lane; i < r.tile; i += 32) room.weights[i] = exp2_of(room.weights[i] - m);
  __syncwarp();
  for (int32_t i = lane; lane < kPanel && i < r.tile; i += kPanel) s->d += room.weights[i];
  __syncwarp();
  if (r.v.scales == nullptr) return;
  for (int32_t i = lane; i < r.tile; i += 32) {
    if (r.sees(tile + i))
      room.weights[i] *= r.v.scales[scale_offset(r.v, r.page_ids, r.page_size, tile + i)];
  }
  __syncwarp();
}

/// Seen keys of a tile, as bits, by groups of 32: every lane has all of them.
__device__ inline void add_values(const AttentionRow& r, const RowRoom& room, int32_t tile,
                                  float* o, int lane) {
  for (int32_t first = 0; first < r.tile; first += 32) {
    const unsigned seen = __ballot_sync(kWholeWarp, r.sees(tile + first + lane));
    for (int32_t d = lane; d < r.v.head_dim; d += 32) {
      float sum = o[d];
      for (unsigned left = seen; left != 0; left &= left - 1) {
        const int32_t i = first + __ffs(static_cast<int>(left)) - 1;
        const int64_t at = value_element(r.v, room.value_start[i], tile + i, d);
        sum = fmaf(room.weights[i], load(r.v.data, r.v.dtype, at), sum);
      }
      o[d] = sum;
    }
  }
  __syncwarp();
}

/// d of lanes 0 to 15 as the CPU's reduce_add has it, in every lane.
__device__ inline float sum_of_lanes(float d) {
  for (int half = 8; half > 0; half /= 2) d += __shfl_down_sync(kWholeWarp, d, half);
  return __shfl_sync(kWholeWarp, d, 0);
}

/// Keys of one split [begin, end).
__device__ inline State attend_split(const AttentionRow& r, const RowRoom& room, int32_t begin,
                                     int32_t end, float* o, int lane) {
  SplitState s;
  for (int32_t i = lane; i < r.v.head_dim; i += 32) o[i] = 0;
  AttentionRow part = r;
  part.keys = {begin, end};
  for (int32_t tile = begin / r.tile * r.tile; tile < end; tile += r.tile) {
    const float largest = logits_of_tile(part, room, tile, lane);
    __syncwarp();
    weigh_tile(part, room, tile, largest, &s, o, lane);
    add_values(part, room, tile, o, lane);
  }
  const float d = sum_of_lanes(s.d);
  return {d != d ? d : s.m, d};
}

/// fold_row of kernels/dense/rows.inl.
__device__ inline void fold(State* into, const State& part, float* o, const float* from,
                            int32_t dims, int lane) {
  if (part.m == -kInfinity) return;
  const float top = part.m <= into->m ? into->m : part.m;
  const float of_into = into->has_mass() ? exp2_of(into->m - top) : 0;
  const float of_part = exp2_of(part.m - top);
  into->d = fmaf(of_part, part.d, of_into * into->d);
  into->m = top;
  for (int32_t i = lane; i < dims; i += 32) o[i] = fmaf(of_part, from[i], of_into * o[i]);
  __syncwarp();
}

/// A row's state becomes out and its LSE.
__device__ inline void finish(const AttentionRow& r, const State& state, const float* o, int lane) {
  State with_sink = state;
  float weight = 1;
  if (r.sink != nullptr) {
    const State parts[2] = {state, state_of_lse(static_cast<float>(*r.sink * kLog2EInDouble))};
    float weights[2];
    with_sink = merged(parts, 1.f, weights);
    weight = weights[0];
  }
  for (int32_t i = lane; i < r.v.head_dim; i += 32) {
    const float x = state.has_mass() ? o[i] * weight / with_sink.d * r.v_scale + 0.f : 0.f;
    store(r.out, r.out_dtype, i, x);
  }
  if (r.lse != nullptr && lane == 0)
    *r.lse = natural_lse(r.lse_sink ? with_sink : state, kLn2InDouble);
}

/// The whole row, by the lanes of a warp.
__device__ inline void attend_row(const AttentionRow& r, const RowRoom& room, int lane) {
  for (int32_t i = lane; i < r.k.head_dim; i += 32) room.q[i] = load(r.q, r.q_dtype, i);
  float *const all = room.o, *const part = room.o + r.v.head_dim;
  for (int32_t i = lane; i < r.v.head_dim; i += 32) all[i] = 0;
  __syncwarp();
  State state;
  for (int32_t split = r.keys.begin / kSplit; int64_t{split} * kSplit < r.keys.end; ++split) {
    const int32_t begin = max(r.keys.begin, split * kSplit);
    const auto end = static_cast<int32_t>(min(int64_t{r.keys.end}, (split + int64_t{1}) * kSplit));
    const State of_split = attend_split(r, room, begin, end, part, lane);
    fold(&state, of_split, all, part, r.v.head_dim, lane);
  }
  finish(r, state, all, lane);
}

}  // namespace shadowgraph::cuda
