// AttentionParams: what is fixed for a layer. Every call checks it (src/attn/validate/validate.cc).
#pragma once

#include <cstdint>
#include <span>

namespace shadowgraph {

/// A mask given key by key. It is combined (AND) with causal and window, so give a tree mask to a
/// call with causal = false.
struct CustomMask {
  enum class Kind : uint8_t {
    kNone,
    kBool,    // one byte a pair, row-major [q_len, kv_len] per request, 0 = hidden
    kPacked,  // the same pairs as bits, least significant first; every request starts on a byte
              // (FlashInfer)
  };
  Kind kind = Kind::kNone;
  // The masks of the requests, one after the other and nothing else; all heads share them
  std::span<const uint8_t> data;
  // [batch + 1] bytes from 0: where the mask of each request begins in data, and where data ends
  std::span<const int64_t> mask_indptr;
};

struct AttentionParams {
  int32_t num_qo_heads = 0;
  // Must divide num_qo_heads; query head h reads KV head h / (num_qo_heads / num_kv_heads)
  int32_t num_kv_heads = 0;
  int32_t head_dim_qk = 0;
  int32_t head_dim_vo = 0;
  float sm_scale = 0;  // multiplies q.k; 1 / sqrt(head_dim_qk) is usual; there is no default

  // Bottom-right aligned: query i of q_len stands at key position kv_len - q_len + i
  bool causal = false;
  // How many keys before the query's position stay visible; -1: all, 0: only the query's own key.
  // This is WindowLeft of conventions.h. A model whose window of W keys counts the query's own has
  // window_left = W - 1.
  int32_t window_left = -1;
  int32_t window_right = -1;  // how many keys after it; -1: all (causal sets it to 0)

  // 0: off; else a logit s becomes cap * tanh(s / cap), after the scale and before the mask.
  float logits_soft_cap = 0;
  // [num_qo_heads] or empty: one more logit per head, which is counted in the denominator and has
  // no value.
  std::span<const float> sinks{};
  CustomMask custom_mask{};
};

}  // namespace shadowgraph
