// Slips of terms of scores, masks and scales: each mistake, made with the engine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "check/mistake_slips.h"

namespace shadowgraph {

// Lists that terms of the lab's call refer to.
inline const std::vector<float> kLabSlopes = {0.5F, 0.25F, 0.125F, 1},
                                kSlopesSwapped = {0.5F, 1, 0.125F, 0.25F};
inline const std::vector<float> kSlopesOfKv = {0.5F, 0.5F, 0.25F, 0.25F};
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
  for (int h = 0; h < kLabHeads; ++h)
    for (int i = 0; i < columns; ++i)
      bias.push_back(std::sin(static_cast<float>(((h + of_head) % kLabHeads) * 13 + i * 7)));
  return bias;
}
inline const std::vector<float> kLabKeyBias = lab_bias(40, 0), kNextKeyBias = lab_bias(40, 1);
inline const std::vector<float> kLabTable = lab_bias(9, 0), kLabQueries = [] {
  std::vector<float> bias = lab_bias(4, 0);  // [4, 4]
  return bias;
}();

/// A query's head and a key of it.
struct LabPair {
  size_t request;
  int32_t query, head, key;
  int64_t position;

  /// The pair's entry of a key bias, [heads, 40].
  float of(const std::vector<float>& bias) const {
    constexpr std::array<size_t, 3> kFirst = {0, 13, 22};
    return bias[static_cast<size_t>(head) * 40 + kFirst[request] + static_cast<size_t>(key)];
  }
};

/// Causal rows by their definition, in double: logit(pair, q.k by its scale). The numerator lacks
/// weights below so much of the largest one.
inline void define_rows(Lab& l, const std::function<double(const LabPair&, double)>& logit,
                        double lost_below = 0) {
  for (size_t r = 0; r < l.keys.size(); ++r) {
    const auto kv_len = static_cast<int32_t>(l.keys[r].size());
    const int32_t q_len = l.cu_seqlens_q[r + 1] - l.cu_seqlens_q[r];
    for (int32_t i = 0; i < q_len; ++i) {
      const int32_t row = l.cu_seqlens_q[r] + i, position = kv_len - q_len + i;
      for (int32_t head = 0; head < kLabHeads; ++head) {
        const auto at = [&](int32_t key) {
          const int32_t slot = l.keys[r][static_cast<size_t>(key)];
          return static_cast<size_t>(slot * kKvHeads + head / 2) * kDim;
        };
        std::vector<double> logits;
        for (int32_t key = 0; key <= position; ++key) {
          double dot = 0;
          for (size_t d = 0; d < kDim; ++d)
            dot += double{l.q[static_cast<size_t>(row * kLabHeads + head) * kDim + d]} *
                   l.k[at(key) + d];
          logits.push_back(logit({r, i, head, key, position}, dot * l.params.sm_scale * l.k_scale));
        }
        const double top = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (const double s : logits) sum += std::exp(s - top);
        l.lse_of(row, head) = static_cast<float>(top + std::log(sum));
        for (size_t d = 0; d < kDim; ++d) {
          double value = 0;
          for (int32_t key = 0; key <= position; ++key) {
            const double weight = std::exp(logits[static_cast<size_t>(key)] - top);
            if (weight >= lost_below) value += weight * l.v[at(key) + d] * l.v_scale;
          }
          l.row(row)[static_cast<size_t>(head) * kDim + d] = static_cast<float>(value / sum);
        }
      }
    }
  }
}
inline auto defined(double (*logit)(const LabPair&, double)) {
  return [logit](Lab& l, Scene&) { define_rows(l, logit); };
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
      {"slopes.of_head", slopes, wrong([](AttentionTerms& t) { t.alibi_slopes = kSlopesOfKv; })},
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
      {"weights.lost", [](Lab& l) { l.params.sm_scale = 12; },
       [](Lab& l, Scene&) {
         define_rows(
             l, [](const LabPair&, double s) { return s; }, 0x1p-10);
       }},
  };
}

inline const std::vector<float> kHidingBias = [] {
  std::vector<float> bias = kLabKeyBias;
  for (size_t i = 2; i < bias.size(); i += 9) bias[i] = -INFINITY;
  return bias;
}();
/// The lab's bias of keys with entry (h, k) of each request from place(k, its keys); none: 0.
inline std::vector<float> moved_bias(int (*place)(int key, int keys)) {
  const int first[] = {0, 13, 22, 40};
  std::vector<float> bias(kLabKeyBias.size());
  for (int at = 0; at < kLabHeads * 40; ++at) {
    int r = 2;
    while (first[r] > at % 40) --r;
    const int from = place(at % 40 - first[r], first[r + 1] - first[r]);
    const int64_t to = int64_t{at / 40 * 40 + first[r]} + from;
    if (from != INT32_MAX && to >= 0 && to < kLabHeads * 40)
      bias[static_cast<size_t>(at)] = kLabKeyBias[static_cast<size_t>(to)];
  }
  return bias;
}
inline const std::vector<float> kBiasOfNext = moved_bias([](int k, int) { return k + 1; }),
                                kBiasInside = moved_bias(
                                    [](int k, int n) { return k + 3 < n ? k + 3 : INT32_MAX; }),
                                kBiasRepeated =
                                    moved_bias([](int k, int) { return std::max(0, k - 2); }),
                                kBiasWrapped = moved_bias([](int k, int n) { return (k + 1) % n; }),
                                // Request 1 follows request 0, whose entries are read for all.
    kBiasOfFirst =
        [] {
          std::vector<float> bias = kLabKeyBias;
          for (size_t h = 0; h < kLabHeads; ++h)
            for (size_t i = 0; i < 27; ++i)
              bias[h * 40 + 13 + i] = kLabKeyBias[h * 40 + (i < 9 ? i : i - 9)];
          return bias;
        }(),
                                kColumnBias =
                                    [] {
                                      std::vector<float> bias(kLabQueries.size());
                                      for (size_t i = 0; i < 16; ++i)
                                        bias[i] = kLabQueries[i % 4 * 4 + i / 4];
                                      return bias;
                                    }(),
                                kBiasTransposed =
                                    [] {
                                      std::vector<float> bias(kLabKeyBias.size());
                                      for (size_t i = 0; i < bias.size(); ++i)
                                        bias[i] = kLabKeyBias[i % 40 * kLabHeads + i / 40];
                                      return bias;
                                    }(),
                                kBiasSeen =
                                    [] {
                                      std::vector<float> bias = kHidingBias;
                                      std::ranges::replace(bias, -INFINITY, 0.0f);
                                      return bias;
                                    }(),
                                kBiasQuarter = [] {
                                  std::vector<float> bias = kLabKeyBias;
                                  for (float& x : bias) x *= 0.25f;
                                  return bias;
                                }();
inline double lab_temperature(double position) {
  return position <= 3 ? 1 : std::log(position) / std::log(3.0);
}

inline std::vector<MadeMistake> slips_of_biases() {
  const auto bias = with([](AttentionTerms& t) { t.key_bias = kLabKeyBias; });
  const auto queries = with([](AttentionTerms& t) { t.qq_bias = kLabQueries; });
  const auto hiding = with([](AttentionTerms& t) { t.key_bias = kHidingBias; });
  return {
      {"bias.of_request", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasOfFirst; }),
       "of row 0"},
      {"bias.transposed", queries, wrong([](AttentionTerms& t) { t.qq_bias = kColumnBias; }),
       "the bias of queries"},
      {"bias.transposed", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasTransposed; }),
       "the bias of keys"},
      {"bias.hides_nothing", hiding, wrong([](AttentionTerms& t) { t.key_bias = kBiasSeen; }),
       "the bias of keys"},
      {"bias.shifted", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasOfNext; }),
       "the bias of keys, by 1"},
      {"bias.shifted", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasInside; }),
       "the bias of keys, by 3"},
      {"bias.shifted", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasRepeated; }),
       "the bias of keys, by -2"},
      {"bias.shifted", bias, wrong([](AttentionTerms& t) { t.key_bias = kBiasWrapped; }),
       "the bias of keys, by 1"},
      {"bias.shifted", with([](AttentionTerms& t) { t.relative_bias = kLabTable; }),
       defined([](const LabPair& at, double s) {
         const int64_t column = std::clamp<int64_t>(4 + at.key - at.position + 1, 0, 8);
         return s + kLabTable[static_cast<size_t>(at.head * 9 + column)];
       }),
       "the bias of distances, by 1"},
      {"bias.shifted", queries, defined([](const LabPair& at, double s) {
         const int64_t other = at.key - (at.position - at.query) - 1;
         const bool inside = other >= 0 && other < 4;
         return inside ? s + kLabQueries[static_cast<size_t>(at.query * 4 + other)] : s;
       }),
       "the bias of queries, by -1"},
  };
}

inline std::vector<MadeMistake> slips_of_orders() {
  const auto capped = [](Lab& l) {
    l.params.logits_soft_cap = 0.5f, l.params.terms.key_bias = kLabKeyBias;
  };
  const auto tempered = [](Lab& l) {
    l.params.terms.temperature_len = 3, l.params.terms.key_bias = kLabKeyBias;
  };
  const auto all = [](Lab& l) {
    l.params.logits_soft_cap = 0.5f, l.params.terms.temperature_len = 3;
    l.params.terms.key_bias = kLabKeyBias, l.params.terms.relative_bias = kLabTable;
  };
  const auto hiding = [](Lab& l) {
    l.params.logits_soft_cap = 0.5f, l.params.terms.key_bias = kHidingBias;
  };
  return {
      {"terms.order", capped, defined([](const LabPair& at, double s) {
         return 0.5 * std::tanh((s + at.of(kLabKeyBias)) / 0.5);
       }),
       "the bias of keys before the soft cap"},
      {"terms.order", hiding, defined([](const LabPair& at, double s) {
         return 0.5 * std::tanh((s + at.of(kHidingBias)) / 0.5);
       }),
       "the bias of keys before the soft cap"},
      {"terms.order", hiding, defined([](const LabPair& at, double s) {
         const double x = s + at.of(kHidingBias);
         return std::isinf(x) ? x : 0.5 * std::tanh(x / 0.5);
       }),
       "the bias of keys before the soft cap"},
      {"terms.order", tempered, defined([](const LabPair& at, double s) {
         return lab_temperature(static_cast<double>(at.position)) * (s + at.of(kLabKeyBias));
       }),
       "the bias of keys before the temperature"},
      // The lab's scale is 0.5.
      {"terms.order", tempered, defined([](const LabPair& at, double s) {
         return lab_temperature(static_cast<double>(at.position)) * (s + 0.5 * at.of(kLabKeyBias));
       }),
       "the bias of keys before the scale"},
      {"terms.order", all, defined([](const LabPair& at, double s) {
         const double t = lab_temperature(static_cast<double>(at.position));
         const int64_t column = std::clamp<int64_t>(4 + at.key - at.position, 0, 8);
         return t * 0.5 * std::tanh((s + at.of(kLabKeyBias)) / 0.5) +
                kLabTable[static_cast<size_t>(at.head * 9 + column)];
       }),
       "the bias of keys before the soft cap"},
      {"terms.order", all, defined([](const LabPair& at, double s) {
         const double t = lab_temperature(static_cast<double>(at.position));
         const int64_t column = std::clamp<int64_t>(4 + at.key - at.position, 0, 8);
         return 0.5 * std::tanh(t * s / 0.5) + at.of(kLabKeyBias) +
                kLabTable[static_cast<size_t>(at.head * 9 + column)];
       }),
       "the temperature before the soft cap"},
      {"terms.order", [](Lab& l) { l.params.logits_soft_cap = 0.5f; },
       defined([](const LabPair&, double s) { return 0.25 * std::tanh(s / 0.25); }),
       "the soft cap before the scale"},
  };
}

inline std::vector<MadeMistake> slips_of_temperatures() {
  const auto tempered = [](Lab& l) {
    l.params.terms.temperature_len = 3, l.params.terms.key_bias = kLabKeyBias;
  };
  return {
      {"terms.scaled", with([](AttentionTerms& t) { t.key_bias = kLabKeyBias; }),
       wrong([](AttentionTerms& t) { t.key_bias = kBiasQuarter; }),
       "the bias of keys by 0.25 = 1 / sqrt(16)"},
      {"scale.cap_other", tempered, defined([](const LabPair& at, double s) {
         const double t = lab_temperature(static_cast<double>(at.position));
         return t * 0.7 * std::tanh(s / 0.7) + at.of(kLabKeyBias);
       }),
       "0.7"},
      {"scale.cap_other", [](Lab& l) { l.params.logits_soft_cap = 0.5f; },
       call([](Lab& l) { l.params.logits_soft_cap = 0.75f; }), "0.75"},
      {"terms.scaled",
       with([](AttentionTerms& t) { t.key_bias = kLabKeyBias, t.alibi_slopes = kLabSlopes; }),
       wrong([](AttentionTerms& t) { t.key_bias = kBiasQuarter; }),
       "the bias of keys by 0.25 = 1 / sqrt(16)"},
      {"temperature.other", tempered, wrong([](AttentionTerms& t) { t.temperature_len = 5; }),
       "with the length 5"},
      {"temperature.other", tempered, defined([](const LabPair& at, double s) {
         return lab_temperature(static_cast<double>(at.position + 1)) * s + at.of(kLabKeyBias);
       }),
       "of the next position"},
      {"temperature.other", tempered, defined([](const LabPair& at, double s) {
         return std::pow(lab_temperature(static_cast<double>(at.position)), 2) * s +
                at.of(kLabKeyBias);
       }),
       "multiplied twice"},
      {"slopes.distance", with([](AttentionTerms& t) { t.alibi_slopes = kLabSlopes; }),
       defined([](const LabPair& at, double s) {
         return s + kLabSlopes[static_cast<size_t>(at.head)] *
                        static_cast<double>(at.key - at.position + 1);
       }),
       "the slopes, by 1"},
  };
}

inline std::vector<MadeMistake> slips_of_term_masks() {
  const auto masks_of_heads = [](Lab& l) {
    l.masks_of_heads = true, l.params.causal = false;
    for (size_t r = 0; r < l.keys.size(); ++r) {
      const size_t pairs =
          static_cast<size_t>(l.cu_seqlens_q[r + 1] - l.cu_seqlens_q[r]) * l.keys[r].size();
      std::vector<uint8_t>& mask = l.masks.emplace_back(kLabHeads * pairs);
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
      {"mask.chunks_other", with([](AttentionTerms& t) { t.attention_chunk = 4; }),
       wrong([](AttentionTerms& t) { t.attention_chunk = 5; })},
      {"mask.chunks_other", with([](AttentionTerms& t) { t.attention_chunk = 4; }),
       call([](Lab& l) {
         l.params.terms.attention_chunk = 0;
         l.masks = masks_of(l, [](int32_t i, int32_t j, int32_t p) {
           return j <= p + i && (j + 3) / 4 == (p + i + 3) / 4;
         });
       })},
      {"mask.ranges", with([](AttentionTerms& t) {
         t.bidirectional_ranges = kLabRanges, t.bidirectional_indptr = kLabRangeIndptr;
       }),
       wrong([](AttentionTerms& t) { t.bidirectional_ranges = t.bidirectional_indptr = {}; })},
      {"causal.of_request", with([](AttentionTerms& t) { t.request_causal = kLabCausal; }),
       wrong([](AttentionTerms& t) { t.request_causal = kNoCausal; })},
      {"mask.first_head", masks_of_heads, call([](Lab& l) {
         for (std::vector<uint8_t>& mask : l.masks)
           for (size_t i = 0; i < mask.size(); ++i) mask[i] = mask[i % (mask.size() / kLabHeads)];
       })},
  };
}

}  // namespace shadowgraph
