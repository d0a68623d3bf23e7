// Each mistake, made with the engine, is named first; and what is right, or nobody's mistake, is
// not.
#include "check/mistakes/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <string>

#include "check/mistake_lab.h"
#include "check/mistakes/call_scene.h"

namespace shadowgraph {
namespace {

using Lab = MistakeLab;

struct Slip {
  const char* mistake;
  std::function<void(Lab&)> setting;       // of the right call
  std::function<void(Lab&, Scene&)> make;  // the wrong result
};

void PrintTo(const Slip& slip, std::ostream* out) { *out << slip.mistake; }

void nothing(Lab&) {}
/// The wrong result is that of another call.
auto call(const std::function<void(Lab&)>& change) {
  return [change](Lab& lab, Scene&) {
    Lab wrong = lab;
    change(wrong);
    wrong.run();
    lab.out = wrong.out, lab.lse = wrong.lse;
  };
}
auto each_row(const std::function<void(std::vector<int32_t>&)>& change) {
  return call([change](Lab& l) {
    for (auto& row : l.keys) change(row);
  });
}
void set_window(Lab& lab) { lab.params.window_left = 5; }
void set_sinks(Lab& lab) { lab.params.sinks = lab.sinks; }

/// Every pair that the predicate shows.
std::vector<std::vector<uint8_t>> masks_of(const Lab& lab,
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
bool tree_sees(int32_t i, int32_t j, int32_t prefix) {
  return j < prefix ? (i + j) % 3 != 0 : j == prefix || j == prefix + i;
}
bool old_tree_sees(int32_t i, int32_t j, int32_t prefix) {
  return j < prefix ? (i + j) % 5 != 1 : j <= prefix + i;
}
void set_tree(Lab& lab) {
  lab.params.causal = false;
  lab.masks = masks_of(lab, tree_sees);
}

/// Parts before and from a place on, merged by weights exp(factor of the part * lse).
void merge_parts(Lab& lab, size_t cut, std::array<double, 2> factors, bool unscaled_first = false) {
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

constexpr float kNanOfArithmetic = std::numeric_limits<float>::quiet_NaN();

using std::numbers::log2e, std::numbers::ln2;

std::vector<Slip> slips_of_rows() {
  return {
      {"row.unwritten", nothing,
       [](Lab& l, Scene&) {
         for (const int64_t token : {1, 4})
           std::memset(l.row(token), kUnwritten, 4 * kHeads * kDim);
         for (const int64_t token : {1, 4})
           std::memset(&l.lse_of(token, 0), kUnwritten, 4 * kHeads);
       }},
      {"values.hidden", [](Lab& l) { l.params.window_left = 5; },
       [](Lab& l, Scene&) {
         // What stands before the windows has been given back, and is NaN.
         std::memset(l.v.data() + l.keys[0][0] * kKvHeads * kDim, kNanByte, 4 * kKvHeads * kDim);
         std::memset(l.row(0), kNanByte, 3 * 4 * kHeads * kDim);
       }},
      {"values.no_number", nothing,
       [](Lab& l, Scene&) { std::memset(l.row(2), kNanByte, 4 * kHeads * kDim); }},
      {"row.query", nothing,
       call([](Lab& l) { l.query = [](int64_t t) { return std::max<int64_t>(0, t - 1); }; })},
      {"row.of_request", nothing,
       [](Lab& l, Scene&) {
         std::copy_n(l.row(2), kHeads * kDim, l.row(3));
         for (int64_t h = 0; h < kHeads; ++h) l.lse_of(3, h) = l.lse_of(2, h);
       }},
      {"row.of_head", nothing,
       [](Lab& l, Scene&) {
         for (int64_t t = 0; t < 9; ++t) {
           std::swap_ranges(l.row(t), l.row(t) + kDim, l.row(t) + 3 * kDim);
           std::swap(l.lse_of(t, 0), l.lse_of(t, 3));
         }
       }},
  };
}

std::vector<Slip> slips_of_masks() {
  return {
      {"window.ignored", set_window, call([](Lab& l) { l.params.window_left = -1; })},
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

std::vector<Slip> slips_of_numbers() {
  return {
      {"scale.log2e_missing", nothing,
       call([](Lab& l) { l.params.sm_scale *= static_cast<float>(ln2); })},
      {"scale.log2e_twice", nothing,
       call([](Lab& l) { l.params.sm_scale *= static_cast<float>(log2e); })},
      {"scale.softmax_missing", nothing, call([](Lab& l) { l.params.sm_scale = 1; })},
      {"scale.cap_missing", [](Lab& l) { l.params.logits_soft_cap = 0.5f; },
       call([](Lab& l) { l.params.logits_soft_cap = 0; })},
      {"scale.kv_missing", nothing, call([](Lab& l) { l.k_scale = l.v_scale = 1; })},
      {"sink.missing", set_sinks, call([](Lab& l) { l.params.sinks = {}; })},
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
           if (i % kHeads != 1 && i % kHeads != 2) continue;
           std::copy_n(&other.out[i * kDim], kDim, &l.out[i * kDim]);
           l.lse[i] = other.lse[i];
         }
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
         std::fill_n(l.row(2), kHeads * kDim, 0.0f);
         for (int64_t h = 0; h < kHeads; ++h) l.lse_of(2, h) = INFINITY;
       }},
      {"lse.unwritten", nothing,
       [](Lab& l, Scene&) { std::memset(l.lse.data(), kUnwritten, l.lse.size() * 4); }},
  };
}

std::vector<Slip> slips_of_lengths() {
  return {
      {"extent.none", nothing,
       [](Lab& l, Scene&) { std::ranges::fill(l.out, 0.0f), std::ranges::fill(l.lse, -INFINITY); }},
      {"extent.short_by_extend", nothing, call([](Lab& l) {
         for (size_t r = 0; r < 3; ++r)
           l.keys[r].resize(l.keys[r].size() -
                            static_cast<size_t>(l.cu_seqlens_q[r + 1] - l.cu_seqlens_q[r]));
       })},
      {"extent.long_by_extend", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         s.behind = {{90, 91, 92, 93}, {80, 81, 82, 83}, {70, 71, 72, 73, 74, 75}};
         for (size_t r = 0; r < 3; ++r) {
           const int32_t q_len = l.cu_seqlens_q[r + 1] - l.cu_seqlens_q[r];
           wrong.keys[r].insert(wrong.keys[r].end(), s.behind[r].begin(),
                                s.behind[r].begin() + q_len);
         }
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"extent.of_request", nothing, call([](Lab& l) {
         for (auto& row : l.keys) row.resize(9);
       })},
      {"extent.stale", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         s.before.push_back(
             {l.cu_seqlens_q, {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, {11, 12, 13, 14, 15}}, {}});
         for (auto& row : wrong.keys) row.resize(5);
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"extent.capacity", nothing, each_row([](std::vector<int32_t>& row) {
         while (row.size() % kPage != 0) row.push_back(row.back() + 1);
       })},
  };
}

std::vector<Slip> slips_of_parts() {
  return {
      {"extent.short", nothing,
       each_row([](std::vector<int32_t>& row) { row.resize(row.size() - 5); })},
      {"extent.long", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         s.behind = {{90}, {91}, {92}};
         for (size_t r = 0; r < 3; ++r) wrong.keys[r].push_back(s.behind[r][0]);
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"extent.first_missing", nothing, call([](Lab& l) {
         l.masks =
             masks_of(l, [](int32_t i, int32_t j, int32_t p) { return j >= 3 && j <= p + i; });
       })},
      {"extent.overlap",
       [](Lab& l) {
         l.cu_seqlens_q = {0, 1, 2, 3};
       },
       each_row([](std::vector<int32_t>& row) {
         std::vector<int32_t> read;
         for (size_t first = 0; first < row.size(); first += 6)
           read.insert(read.end(), row.begin() + static_cast<ptrdiff_t>(first),
                       row.begin() + static_cast<ptrdiff_t>(std::min(row.size(), first + 8)));
         row = read;
       })},
      {"extent.range_missing", nothing, call([](Lab& l) {
         l.masks = masks_of(
             l, [](int32_t i, int32_t j, int32_t p) { return (j < 2 || j > 6) && j <= p + i; });
       })},
      {"extent.range_twice",
       [](Lab& l) {
         l.cu_seqlens_q = {0, 1, 2, 3};
       },
       call([](Lab& l) {
         l.keys[0].insert(l.keys[0].begin(), {l.keys[0][3], l.keys[0][4], l.keys[0][5]});
       })},
  };
}

std::vector<Slip> slips_of_tables() {
  return {
      {"table.stale", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         wrong.keys = {{31, 30, 29, 28}, {27, 26, 25, 24}, {23, 22, 21, 20}};
         s.before.push_back({l.cu_seqlens_q, wrong.keys, {}});
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"table.stale_offsets", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         std::vector<int32_t> list;
         for (const auto& row : l.keys) list.insert(list.end(), row.begin(), row.end());
         wrong.keys = {{list.begin(), list.begin() + 11},
                       {list.begin() + 11, list.begin() + 26},
                       {list.begin() + 26, list.begin() + 39}};
         s.before.push_back({l.cu_seqlens_q,
                             {std::vector<int32_t>(11, 1), std::vector<int32_t>(15, 2),
                              std::vector<int32_t>(13, 3)},
                             {}});
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"table.of_request", nothing, call([](Lab& l) { l.keys[0] = l.keys[1]; })},
      {"table.page_off_by_one", nothing, each_row([](std::vector<int32_t>& row) {
         for (int32_t& slot : row) slot += kPage;
       })},
      {"table.other_unit", nothing, each_row([](std::vector<int32_t>& row) {
         for (int32_t& slot : row) slot /= kPage;
       })},
      {"table.padding", nothing, each_row([](std::vector<int32_t>& row) {
         for (size_t k = 2; k < row.size(); ++k) row[k] %= kPage;
       })},
      {"table.wrapped", nothing, each_row([](std::vector<int32_t>& row) {
         for (int32_t& slot : row) slot %= 32;
       })},
      {"table.shifted", nothing,
       [](Lab& l, Scene& s) {
         Lab wrong = l;
         s.behind = {{90}, {91}, {92}};
         for (size_t r = 0; r < 3; ++r) {
           wrong.keys[r].erase(wrong.keys[r].begin());
           wrong.keys[r].push_back(s.behind[r][0]);
         }
         wrong.run();
         l.out = wrong.out, l.lse = wrong.lse;
       }},
      {"table.place_wrapped", nothing, each_row([](std::vector<int32_t>& row) {
         for (size_t k = 8; k < row.size(); ++k) row[k] = row[k % 8];
       })},
      {"table.one_foreign", nothing, call([](Lab& l) { l.keys[0][4] = 95; })},
  };
}

std::vector<Slip> slips_of_merges() {
  return {
      {"merge.empty", nothing,
       [](Lab& l, Scene&) { std::fill_n(l.row(2), kHeads * kDim, kNanOfArithmetic); }},
      {"merge.base", nothing,
       [](Lab& l, Scene&) {
         merge_parts(l, 5, {log2e, log2e});
       }},
      {"merge.unweighted", nothing,
       [](Lab& l, Scene&) {
         merge_parts(l, 5, {0, 0});
       }},
      {"merge.lse_of_part", nothing,
       [](Lab& l, Scene&) {
         Lab part = l;
         part.masks = masks_of(l, [](int32_t, int32_t j, int32_t) { return j < 5; });
         part.run();
         l.lse = part.lse;
       }},
  };
}

std::vector<Slip> slips() {
  std::vector<Slip> all;
  for (const auto of : {slips_of_rows, slips_of_masks, slips_of_numbers, slips_of_lengths,
                        slips_of_parts, slips_of_tables, slips_of_merges}) {
    for (Slip& slip : of()) all.push_back(std::move(slip));
  }
  return all;
}

class EveryMistake : public ::testing::TestWithParam<Slip> {};

TEST_P(EveryMistake, IsNamedFirst) {
  const Slip& slip = GetParam();
  Lab lab;
  slip.setting(lab);
  lab.run();
  Scene scene = lab.scene();
  EXPECT_TRUE(lab.named(scene).empty());
  slip.make(lab, scene);
  const std::vector<Explanation> named = lab.named(scene);
  ASSERT_FALSE(named.empty());
  std::string all;
  for (const Explanation& e : named) all += e.to_string() + '\n';
  EXPECT_EQ(named[0].mistake, slip.mistake) << all;
  EXPECT_EQ(named[0].explained, named[0].wrong) << all;
  EXPECT_EQ(named[0].broken, 0) << all;
}

INSTANTIATE_TEST_SUITE_P(Mistakes, EveryMistake, ::testing::ValuesIn(slips()),
                         [](const auto& slip) {
                           std::string name = slip.param.mistake;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(Mistakes, AreAllMadeHere) {
  std::set<std::string_view> made, known;
  for (const Slip& slip : slips()) made.insert(slip.mistake);
  for (const Mistake& mistake : all_mistakes()) {
    EXPECT_TRUE(known.insert(mistake.id).second) << mistake.id;
    EXPECT_FALSE(mistake.sentence.empty());
  }
  EXPECT_EQ(made, known);
}

TEST(Diagnose, SaysSoWhereNoMistakeFits) {
  Lab lab;
  lab.run();
  lab.row(4)[3] += 0.25f;
  const std::vector<Explanation> named = lab.named(lab.scene());
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].to_string(),
            "unknown: No known mistake gives these results (0 of 1 wrong results)");
}

TEST(Diagnose, TellsPartsOfScalesFromAll) {
  Lab lab;
  lab.run();
  merge_parts(lab, 5, {1, 1}, true);
  const std::vector<Explanation> named = lab.named(lab.scene());
  ASSERT_FALSE(named.empty());
  EXPECT_EQ(named[0].mistake, "scale.kv_missing") << named[0].to_string();
  EXPECT_NE(named[0].sentence.find("before place 5"), std::string::npos) << named[0].sentence;
}

TEST(CallScene, OfPagesHeadsFirstHasTheirTokens) {
  Lab lab;
  lab.run();
  // The same pool, pages of 4 tokens, heads first.
  std::vector<float> k(lab.k.size()), v(lab.v.size());
  for (int64_t slot = 0; slot < kPoolSlots; ++slot) {
    for (int64_t head = 0; head < kKvHeads; ++head) {
      const int64_t to = (slot / kPage * kKvHeads + head) * kPage + slot % kPage;
      std::copy_n(&lab.k[static_cast<size_t>((slot * kKvHeads + head) * kDim)], kDim,
                  &k[static_cast<size_t>(to * kDim)]);
      std::copy_n(&lab.v[static_cast<size_t>((slot * kKvHeads + head) * kDim)], kDim,
                  &v[static_cast<size_t>(to * kDim)]);
    }
  }
  std::vector<int32_t> table, lens;
  for (const auto& row : lab.keys) {
    for (size_t page = 0; page < 5; ++page)
      table.push_back(page * kPage < row.size() ? row[page * kPage] / kPage : -1);
    lens.push_back(static_cast<int32_t>(row.size()));
  }
  PagedAttention call;
  call.q = lab.scene().q;
  call.cache = KvCache::hnd(TensorView(k.data(), DType::kF32, {kPages, kKvHeads, kPage, kDim}),
                            TensorView(v.data(), DType::kF32, {kPages, kKvHeads, kPage, kDim}));
  call.cache.k_scale = lab.k_scale, call.cache.v_scale = lab.v_scale;
  call.pages = PageTable::dense(table, 5, lens);
  call.cu_seqlens_q = lab.cu_seqlens_q;
  call.params = lab.params;
  const CallScene scene(call);
  EXPECT_EQ(scene.scene().rows.keys, lab.keys);
  EXPECT_TRUE(lab.named(scene.scene()).empty());
}

}  // namespace
}  // namespace shadowgraph
