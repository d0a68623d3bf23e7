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
  // The masks of the requests, one after the other and nothing else
  std::span<const uint8_t> data;
  // [batch + 1] bytes from 0: where the mask of each request begins in data, and where data ends
  std::span<const int64_t> mask_indptr;
  // 1: all heads share a request's mask; num_qo_heads: each has its own, [heads, q_len, kv_len] per
  // request
  int32_t heads = 1;
};

/// Terms that only some models and callers need: numbers that are added to logits, keys that are
/// hidden, and further scales. Each is absent by default; all may come together. Logits are
/// natural. Positions count a request's keys from 0, left padding included: query i of q_len has
/// the position kv_len - q_len + i. Errors: param.terms for a list of another length than the one
/// given here and for a value out of its range, param.scale for a scale, len.* for offsets of
/// ranges.
struct AttentionTerms {
  // Added to a logit after scale, soft cap and temperature: the next four.
  enum class Alibi : uint8_t {
    kLinear,    // slope * (key's position - query's)
    kDistance,  // -slope * |key's position - query's| (FlashAttention)
    kSqrt,      // -slope * sqrt(query's position - key's); 0 for later keys (vLLM's use_alibi_sqrt)
  };
  Alibi alibi = Alibi::kLinear;
  std::span<const float> alibi_slopes{};  // [num_qo_heads]
  // [num_qo_heads, keys of all requests]: a request's keys follow those of the request before it.
  // -inf: the head does not see the key; no other entry may be infinite or NaN
  std::span<const float> key_bias{};
  // [n, n]: entry (i, j) is for query i and the key of query j of the same request, if both are
  // below n (vLLM's qq_bias)
  std::span<const float> qq_bias{};
  // [num_qo_heads, 2 n + 1]: column n + d is for a key d behind the query; a distance beyond n
  // counts as n
  std::span<const float> relative_bias{};

  // Logits of a query at a position p above temperature_len are multiplied by log(p) /
  // log(temperature_len), after the soft cap (xai_temperature_len). 0: none; else from 2
  int32_t temperature_len = 0;

  // A query sees keys from so many chunks before its own chunk on, and none behind its own; chunks
  // are of attention_chunk positions. 0: no chunks
  int32_t attention_chunk = 0, chunk_lookback = 0;
  std::span<const uint8_t> request_causal{};  // [batch], instead of AttentionParams::causal
  std::span<const int32_t> cache_leftpad{};   // [batch]: keys before it are not seen
  // [ranges, 2]: first and last position. Tokens of one range see each other, whatever causal,
  // window and chunk say (vLLM's mm_prefix_range). Request r has the ranges bidirectional_indptr[r]
  // to bidirectional_indptr[r + 1] - 1, ascending and apart
  std::span<const int32_t> bidirectional_ranges{};
  std::span<const int32_t> bidirectional_indptr{};  // [batch + 1] ranges

  // [num_kv_heads], or [batch, num_kv_heads]: these multiply a head's keys and values, beside
  // k_scale and v_scale
  std::span<const float> k_scales{}, v_scales{};
  float q_scale = 1, out_scale = 1;  // multiply q, and out before it is rounded

  // [batch]: of each request's rows in q (and of its packed keys) the first ones that are there;
  // the rest is padding, and so are its rows of out and lse, which keep what they hold. Empty: all.
  // seqused_k is for packed keys only
  std::span<const int32_t> seqused_q{}, seqused_k{};

  bool changes_scores() const {
    return !alibi_slopes.empty() || !key_bias.empty() || !qq_bias.empty() ||
           !relative_bias.empty() || temperature_len != 0;
  }
  bool any() const {
    return changes_scores() || attention_chunk != 0 || chunk_lookback != 0 ||
           !request_causal.empty() || !cache_leftpad.empty() || !bidirectional_ranges.empty() ||
           !bidirectional_indptr.empty() || !k_scales.empty() || !v_scales.empty() ||
           q_scale != 1 || out_scale != 1 || !seqused_q.empty() || !seqused_k.empty();
  }
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
  AttentionTerms terms{};
};

}  // namespace shadowgraph
