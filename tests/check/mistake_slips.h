// Slips of rows, masks and numbers: each mistake, made with the engine. Those of lengths, tables
// and merges stand in diagnose_test.cc, which makes all.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <ostream>
#include <vector>

#include "check/mistake_lab.h"

namespace shadowgraph {

using Lab = MistakeLab;

struct MadeMistake {
  const char* mistake;
  std::function<void(Lab&)> setting;       // of the right call
  std::function<void(Lab&, Scene&)> make;  // the wrong result
  const char* said = "";                   // at the end of the sentence
  int way = 0;                             // of several to make it
};

inline void PrintTo(const MadeMistake& slip, std::ostream* out) { *out << slip.mistake; }

inline void nothing(Lab&) {}
/// The wrong result is that of another call.
inline auto call(const std::function<void(Lab&)>& change) {
  return [change](Lab& lab, Scene&) {
    Lab wrong = lab;
    change(wrong);
    wrong.run();
    lab.out = wrong.out, lab.lse = wrong.lse;
  };
}
inline auto each_row(const std::function<void(std::vector<int32_t>&)>& change) {
  return call([change](Lab& l) {
    for (auto& row : l.keys) change(row);
  });
}
inline void set_window(Lab& lab) { lab.params.window_left = 5; }
inline void set_both_ends(Lab& lab) {
  lab.params.causal = false, lab.params.window_left = 2, lab.params.window_right = 1;
}
inline void set_sinks(Lab& lab) { lab.params.sinks = lab.sinks; }

/// Every pair that the predicate shows.
inline std::vector<std::vector<uint8_t>> masks_of(const Lab& lab,
                                                  bool (*sees)(int32_t, int32_t, int32_t)) {
  std::vector<std::vector<uint8_t>> masks;
  for (size_t r = 0; r < lab.keys.size(); ++r) {
    const auto n = static_cast<int32_t>(lab.keys[r].size());
    const int32_t q_len = lab.cu_seqlens_q[r + 1] - lab.cu_seqlens_q[r];
    std::vector<uint8_t>& mask = masks.emplace_back();
    for (int32_t i = 0; i < q_len; ++i)
      for (int32_t j = 0; j < n; ++j) mask.push_back(sees(i, j, n - q_len));
  }
  return masks;
}
inline bool tree_sees(int32_t i, int32_t j, int32_t prefix) {
  return j < prefix ? (i + j) % 3 != 0 : j == prefix || j == prefix + i;
}
inline bool old_tree_sees(int32_t i, int32_t j, int32_t prefix) {
  return j < prefix ? (i + j) % 5 != 1 : j <= prefix + i;
}
inline void set_tree(Lab& lab) {
  lab.params.causal = false;
  lab.masks = masks_of(lab, tree_sees);
}

/// Parts before and from a place on, merged by weights exp(factor of the part * lse).
inline void merge_parts(Lab& lab, size_t cut, std::array<double, 2> factors,
                        bool unscaled_first = false) {
  Lab parts[] = {lab, lab};
  for (size_t p = 0; p < 2; ++p) {
    Lab& part = parts[p];
    part.masks = masks_of(
        lab, cut == 0 ? tree_sees
                      : [](int32_t i, int32_t j, int32_t prefix) { return j <= prefix + i; });
    for (size_t r = 0; r < lab.keys.size(); ++r) {
      const size_t n = lab.keys[r].size();
      for (size_t bit = 0; bit < part.masks[r].size(); ++bit)
        if ((bit % n < cut) != (p == 0)) part.masks[r][bit] = 0;
    }
    if (p == 0 && unscaled_first) part.k_scale = part.v_scale = 1;
    part.params.causal = false;
    part.run();
  }
  for (size_t i = 0; i < lab.lse.size(); ++i) {
    const double a = parts[0].lse[i], b = parts[1].lse[i];
    if (std::isinf(b)) continue;
    const double wa = std::exp(factors[0] * a), wb = std::exp(factors[1] * b);
    for (size_t d = 0; d < kDim; ++d) {
      const size_t at = i * kDim + d;
      lab.out[at] = static_cast<float>((wa * parts[0].out[at] + wb * parts[1].out[at]) / (wa + wb));
    }
    lab.lse[i] = static_cast<float>(std::log(std::exp(a) + std::exp(b)));
  }
}

inline constexpr float kNanOfArithmetic = std::numeric_limits<float>::quiet_NaN();

using std::numbers::log2e, std::numbers::ln2;

inline std::vector<MadeMistake> slips_of_rows() {
  return {
      {"row.unwritten", nothing,
       [](Lab& l, Scene&) {
         for (const int64_t token : {1, 4})
           std::memset(l.row(token), kUnwritten, 4 * kLabHeads * kDim);
         for (const int64_t token : {1, 4})
           std::memset(&l.lse_of(token, 0), kUnwritten, 4 * kLabHeads);
       }},
      {"row.mark", [](Lab& l) { l.keys[1].clear(); },
       [](Lab& l, Scene&) {
         for (int64_t h = 0; h < kLabHeads; ++h) l.lse_of(3, h) = -1e4f;
       }},
      {"values.hidden", [](Lab& l) { l.params.window_left = 5; },
       [](Lab& l, Scene&) {
         // Keys before the windows have been given back, and are NaN.
         std::memset(l.v.data() + l.keys[0][0] * kKvHeads * kDim, kNanByte, 4 * kKvHeads * kDim);
         std::memset(l.row(0), kNanByte, 3 * 4 * kLabHeads * kDim);
       }},
      {"values.no_number", nothing,
       [](Lab& l, Scene&) { std::memset(l.row(2), kNanByte, 4 * kLabHeads * kDim); }},
      {"row.query", nothing,
       call([](Lab& l) { l.query = [](int64_t t) { return std::max<int64_t>(0, t - 1); }; })},
      {"row.of_request", nothing,
       [](Lab& l, Scene&) {
         std::copy_n(l.row(2), kLabHeads * kDim, l.row(3));
         for (int64_t h = 0; h < kLabHeads; ++h) l.lse_of(3, h) = l.lse_of(2, h);
       }},
      {"row.zero", nothing,
       [](Lab& l, Scene&) { std::ranges::fill(l.out, 0.0f), std::ranges::fill(l.lse, 0.0f); }},
      {"row.of_head", nothing,
       [](Lab& l, Scene&) {
         for (int64_t t = 0; t < 9; ++t) {
           std::swap_ranges(l.row(t), l.row(t) + kDim, l.row(t) + 3 * kDim);
           std::swap(l.lse_of(t, 0), l.lse_of(t, 3));
         }
       }},
  };
}

inline std::vector<MadeMistake> slips_of_masks() {
  return {
      {"window.ignored", set_window, call([](Lab& l) { l.params.window_left = -1; })},
      {"window.left_ignored", set_both_ends, call([](Lab& l) { l.params.window_left = -1; })},
      {"window.right_ignored", set_both_ends, call([](Lab& l) { l.params.window_right = -1; })},
      {"window.shorter", set_window, call([](Lab& l) { l.params.window_left = 4; })},
      {"window.longer", set_window, call([](Lab& l) { l.params.window_left = 6; })},
      {"window.prefix", [](Lab& l) { l.params.window_left = 1; }, call([](Lab& l) {
         l.params.window_left = -1;
         l.masks = masks_of(l, [](int32_t i, int32_t j, int32_t prefix) {
           return j < prefix || (j <= prefix + i && prefix + i - j <= 1);
         });
       })},
      {"causal.top_left", nothing, call([](Lab& l) {
         l.masks = masks_of(l, [](int32_t i, int32_t j, int32_t) { return j <= i; });
       })},
      {"causal.ignored", nothing, call([](Lab& l) { l.params.causal = false; })},
      {"mask.ignored", set_tree, call([](Lab& l) { l.masks.clear(); })},
      {"mask.stale", set_tree,
       [](Lab& l, Scene& s) {
         Lab old = l;
         old.masks = masks_of(l, old_tree_sees);
         s.before.push_back({l.cu_seqlens_q, l.keys, old.masks});
         old.run();
         l.out = old.out, l.lse = old.lse;
       }},
      {"mask.wrapped", set_tree, call([](Lab& l) {
         for (auto& mask : l.masks)
           for (size_t i = 16; i < mask.size(); ++i) mask[i] = mask[i % 16];
       })},
      {"mask.as_length", set_tree, call([](Lab& l) {
         for (size_t r = 0; r < l.masks.size(); ++r) {
           const auto width = static_cast<std::ptrdiff_t>(l.keys[r].size());
           for (auto row = l.masks[r].begin(); row != l.masks[r].end(); row += width)
             std::sort(row, row + width, std::greater());
         }
       })},
      {"mask.of_request", set_tree,
       [](Lab& l, Scene& s) {
         // All masks have the same size, and no request's mask equals another's.
         l.keys[1] = std::vector(l.keys[0].rbegin(), l.keys[0].rend());
         l.cu_seqlens_q = {0, 3, 6, 9};
         l.masks = masks_of(l, tree_sees);
         std::ranges::reverse(l.masks[1]);
         s.rows = {l.cu_seqlens_q, l.keys, l.masks};
         std::swap(l.masks[0], l.masks[1]);
         l.run();
       }},
      {"causal.shifted", nothing, call([](Lab& l) {
         l.masks = masks_of(l, [](int32_t i, int32_t j, int32_t p) { return j <= p + i + 1; });
       })},
  };
}

inline std::vector<MadeMistake> slips_of_layouts() {
  return {
      {"values.of_others", nothing, call([](Lab& l) {
         for (const auto& row : l.keys)
           for (size_t k = 0; k + 1 < row.size(); ++k)
             std::copy_n(&l.v[static_cast<size_t>(row[k + 1]) * kKvHeads * kDim], kKvHeads * kDim,
                         &l.v[static_cast<size_t>(row[k]) * kKvHeads * kDim]);
       })},
      {"table.strides", nothing, call([](Lab& l) {
         const Lab own = l;
         for (size_t slot = 0; slot < kPoolSlots; ++slot) {
           for (size_t head = 0; head < kKvHeads; ++head) {
             // Heads, then tokens, of a page that holds tokens, then heads.
             const size_t from = slot / kPage * kPage * kKvHeads + head * kPage + slot % kPage;
             const size_t to = slot * kKvHeads + head;
             std::copy_n(&own.k[from * kDim], kDim, &l.k[to * kDim]);
             std::copy_n(&own.v[from * kDim], kDim, &l.v[to * kDim]);
           }
         }
       })},
      {"heads.mapped", nothing,
       [](Lab& l, Scene&) {
         // Each KV head's rows from a pool with the heads swapped.
         Lab other = l;
         for (size_t at = 0; at < l.k.size(); at += 2 * kDim) {
           std::swap_ranges(&other.k[at], &other.k[at] + kDim, &other.k[at] + kDim);
           std::swap_ranges(&other.v[at], &other.v[at] + kDim, &other.v[at] + kDim);
         }
         other.run();
         for (size_t i = 0; i < l.lse.size(); ++i) {
           if (i % kLabHeads != 1 && i % kLabHeads != 2) continue;
           std::copy_n(&other.out[i * kDim], kDim, &l.out[i * kDim]);
           l.lse[i] = other.lse[i];
         }
       }},
  };
}

inline std::vector<MadeMistake> slips_of_numbers() {
  return {
      {"scale.log2e_missing", nothing,
       call([](Lab& l) { l.params.sm_scale *= static_cast<float>(ln2); })},
      {"scale.log2e_twice", nothing,
       call([](Lab& l) { l.params.sm_scale *= static_cast<float>(log2e); })},
      {"scale.softmax_missing", nothing, call([](Lab& l) { l.params.sm_scale = 1; })},
      {"scale.cap_missing", [](Lab& l) { l.params.logits_soft_cap = 0.5f; },
       call([](Lab& l) { l.params.logits_soft_cap = 0; })},
      {"scale.kv_missing", nothing, call([](Lab& l) { l.k_scale = l.v_scale = 1; })},
      {"scale.other", nothing, call([](Lab& l) { l.params.sm_scale = 1 / std::sqrt(24.0f); })},
      {"sum.no_keys", nothing,
       call([](Lab& l) { l.params.sinks = l.no_keys, l.lse_sink = LseSink::kIncluded; })},
      {"sink.missing", set_sinks, call([](Lab& l) { l.params.sinks = {}; })},
      {"sink.of_head", set_sinks, call([](Lab& l) {
         std::rotate(l.sinks.begin(), l.sinks.begin() + 1, l.sinks.end());
         l.params.sinks = l.sinks;
       })},
      {"scale.output", nothing,
       [](Lab& l, Scene&) {
         for (float& x : l.out) x *= 0.75f;
       }},
      {"lse.base", nothing,
       [](Lab& l, Scene&) {
         for (float& x : l.lse) x *= static_cast<float>(log2e);
       }},
      {"lse.sink", set_sinks,
       [](Lab& l, Scene&) {
         Lab wrong = l;
         wrong.lse_sink = LseSink::kIncluded;
         wrong.run();
         l.lse = wrong.lse;
       }},
      {"lse.infinite", nothing,
       [](Lab& l, Scene&) {
         std::fill_n(l.row(2), kLabHeads * kDim, 0.0f);
         for (int64_t h = 0; h < kLabHeads; ++h) l.lse_of(2, h) = INFINITY;
       }},
      {"lse.unwritten", nothing,
       [](Lab& l, Scene&) { std::memset(l.lse.data(), kUnwritten, l.lse.size() * 4); }},
  };
}

}  // namespace shadowgraph
