// Slips of terms of scores, masks and scales: each mistake, made with the engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "check/mistake_slips.h"

namespace shadowgraph {

// Lists that terms of the lab's call refer to.
inline const std::vector<float> kLabSlopes = {0.5F, 0.25F, 0.125F, 1},
                                kSlopesSwapped = {0.5F, 1, 0.125F, 0.25F};
inline const std::vector<float> kSlopesDown = {-0.5F, -0.25F, -0.125F, -1};
inline const std::vector<float> kLabKScales = {2, 0.5F}, kLabVScales = {0.5F, 4};
inline const std::vector<float> kKScalesSwapped = {0.5F, 2}, kVScalesSwapped = {4, 0.5F};
inline const std::vector<uint8_t> kLabCausal = {1, 0, 1}, kNoCausal = {1, 1, 1};
inline const std::vector<int32_t> kLabPadding = {3, 0, 5}, kNoPadding = {0, 0, 0},
                                  kLongerPadding = {4, 1, 6};
inline const std::vector<int32_t> kLabRanges = {9, 12, 6, 8, 13, 17},
                                  kLabRangeIndptr = {0, 1, 2, 3};

/// [heads, 40 keys]; [heads, 2 * 4 + 1].
inline std::vector<float> lab_bias(int columns, int of_head) {
  std::vector<float> bias;
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < columns; ++i)
      bias.push_back(std::sin(static_cast<float>(((h + of_head) % kHeads) * 13 + i * 7)));
  return bias;
}
inline const std::vector<float> kLabKeyBias = lab_bias(40, 0), kNextKeyBias = lab_bias(40, 1);
inline const std::vector<float> kLabTable = lab_bias(9, 0), kLabQueries = [] {
  std::vector<float> bias = lab_bias(4, 0);  // [4, 4]
  return bias;
}();

/// The numerator without weights below 2^-10 of the largest one.
inline void lose_weights(Lab& l, Scene&) {
  for (size_t r = 0; r < l.keys.size(); ++r) {
    const auto kv_len = static_cast<int32_t>(l.keys[r].size());
    for (int32_t row = l.cu_seqlens_q[r]; row < l.cu_seqlens_q[r + 1]; ++row) {
      const int32_t seen = kv_len - (l.cu_seqlens_q[r + 1] - 1 - row);
      for (int32_t head = 0; head < kHeads; ++head) {
        const auto at = [&](int32_t key) {
          return static_cast<size_t>((l.keys[r][static_cast<size_t>(key)] * kKvHeads + head / 2) *
                                     kDim);
        };
        std::vector<double> logits;
        for (int32_t key = 0; key < seen; ++key) {
          double dot = 0;
          for (size_t d = 0; d < kDim; ++d)
            dot +=
                double{l.q[static_cast<size_t>(row * kHeads + head) * kDim + d]} * l.k[at(key) + d];
          logits.push_back(dot * l.params.sm_scale * l.k_scale);
        }
        const double top = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (const double s : logits) sum += std::exp(s - top);
        for (size_t d = 0; d < kDim; ++d) {
          double value = 0;
          for (int32_t key = 0; key < seen; ++key) {
            const double weight = std::exp(logits[static_cast<size_t>(key)] - top);
            if (weight >= 0x1p-10) value += weight * l.v[at(key) + d] * l.v_scale;
          }
          l.row(row)[static_cast<size_t>(head) * kDim + d] = static_cast<float>(value / sum);
        }
      }
    }
  }
}

inline auto with(void (*set)(AttentionTerms&)) {
  return [set](Lab& l) { set(l.params.terms); };
}
inline auto wrong(void (*set)(AttentionTerms&)) {
  return call([set](Lab& l) { set(l.params.terms); });
}

inline std::vector<MadeMistake> slips_of_terms() {
  const auto slopes = with([](AttentionTerms& t) { t.alibi_slopes = kLabSlopes; });
  const auto bias = with([](AttentionTerms& t) { t.key_bias = kLabKeyBias; });
  const auto scales =
      with([](AttentionTerms& t) { t.k_scales = kLabKScales, t.v_scales = kLabVScales; });
  return {
      {"slopes.missing", slopes, wrong([](AttentionTerms& t) { t.alibi_slopes = {}; })},
      {"slopes.of_head", slopes, wrong([](AttentionTerms& t) { t.alibi_slopes = kSlopesSwapped; })},
      {"slopes.distance", slopes,
       wrong([](AttentionTerms& t) { t.alibi = AttentionTerms::Alibi::kSqrt; })},
      {"bias.missing", bias, wrong([](AttentionTerms& t) { t.key_bias = {}; })},
      {"bias.missing", with([](AttentionTerms& t) { t.relative_bias = kLabTable; }),
       wrong([](AttentionTerms& t) { t.relative_bias = {}; })},
      {"bias.missing", with([](AttentionTerms& t) { t.qq_bias = kLabQueries; }),
       wrong([](AttentionTerms& t) { t.qq_bias = {}; })},
      {"bias.of_head", bias, wrong([](AttentionTerms& t) { t.key_bias = kNextKeyBias; })},
      {"terms.sign", slopes, wrong([](AttentionTerms& t) { t.alibi_slopes = kSlopesDown; })},
      {"temperature.missing", with([](AttentionTerms& t) { t.temperature_len = 3; }),
       wrong([](AttentionTerms& t) { t.temperature_len = 0; })},
      {"scale.kv_missing", scales, call([](Lab& l) {
         l.k_scale = l.v_scale = 1;
         l.params.terms.k_scales = l.params.terms.v_scales = {};
       })},
      {"scale.kv_of_head", scales, wrong([](AttentionTerms& t) {
         t.k_scales = kKScalesSwapped, t.v_scales = kVScalesSwapped;
       })},
      {"scale.kv_of_head", scales, wrong([](AttentionTerms& t) { t.v_scales = kVScalesSwapped; })},
      {"scale.kv_other", scales,
       wrong([](AttentionTerms& t) { std::swap(t.k_scales, t.v_scales); })},
      {"scale.rows_missing", with([](AttentionTerms& t) { t.q_scale = 4; }),
       wrong([](AttentionTerms& t) { t.q_scale = 1; })},
      {"scale.rows_missing", with([](AttentionTerms& t) { t.out_scale = 4; }),
       wrong([](AttentionTerms& t) { t.out_scale = 1; })},
      // Larger logits: weights between 2^-25 and 2^-10 of the largest one.
      {"weights.lost", [](Lab& l) { l.params.sm_scale = 12; }, lose_weights},
  };
}

inline std::vector<MadeMistake> slips_of_term_masks() {
  const auto masks_of_heads = [](Lab& l) {
    l.masks_of_heads = true, l.params.causal = false;
    for (size_t r = 0; r < l.keys.size(); ++r) {
      const size_t pairs =
          static_cast<size_t>(l.cu_seqlens_q[r + 1] - l.cu_seqlens_q[r]) * l.keys[r].size();
      std::vector<uint8_t>& mask = l.masks.emplace_back(kHeads * pairs);
      for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != i / pairs % 3;
    }
  };
  return {
      {"mask.leftpad", with([](AttentionTerms& t) { t.cache_leftpad = kLabPadding; }),
       wrong([](AttentionTerms& t) { t.cache_leftpad = kNoPadding; })},
      {"mask.leftpad_other", with([](AttentionTerms& t) { t.cache_leftpad = kLabPadding; }),
       wrong([](AttentionTerms& t) { t.cache_leftpad = kLongerPadding; })},
      {"mask.lookback",
       with([](AttentionTerms& t) { t.attention_chunk = 4, t.chunk_lookback = 1; }),
       wrong([](AttentionTerms& t) { t.chunk_lookback = 2; })},
      {"mask.chunks", with([](AttentionTerms& t) { t.attention_chunk = 4, t.chunk_lookback = 1; }),
       wrong([](AttentionTerms& t) { t.attention_chunk = t.chunk_lookback = 0; })},
      {"mask.chunks", with([](AttentionTerms& t) { t.attention_chunk = 4, t.chunk_lookback = 1; }),
       wrong([](AttentionTerms& t) { t.chunk_lookback = 0; })},
      {"mask.ranges", with([](AttentionTerms& t) {
         t.bidirectional_ranges = kLabRanges, t.bidirectional_indptr = kLabRangeIndptr;
       }),
       wrong([](AttentionTerms& t) { t.bidirectional_ranges = t.bidirectional_indptr = {}; })},
      {"causal.of_request", with([](AttentionTerms& t) { t.request_causal = kLabCausal; }),
       wrong([](AttentionTerms& t) { t.request_causal = kNoCausal; })},
      {"mask.first_head", masks_of_heads, call([](Lab& l) {
         for (std::vector<uint8_t>& mask : l.masks)
           for (size_t i = 0; i < mask.size(); ++i) mask[i] = mask[i % (mask.size() / kHeads)];
       })},
  };
}

}  // namespace shadowgraph
