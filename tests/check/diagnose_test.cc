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

#include "check/mistake_slips_terms.h"
#include "check/mistakes/call_scene.h"

namespace shadowgraph::diagnose_test {
namespace {

using Lab = MistakeLab;

std::vector<MadeMistake> slips_of_lengths() {
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

std::vector<MadeMistake> slips_of_parts() {
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

std::vector<MadeMistake> slips_of_tables() {
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

std::vector<MadeMistake> slips_of_merges() {
  return {
      {"merge.empty", nothing,
       [](Lab& l, Scene&) { std::fill_n(l.row(2), kLabHeads * kDim, kNanOfArithmetic); }},
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

std::vector<MadeMistake> slips() {
  std::vector<MadeMistake> all;
  for (const auto of :
       {slips_of_rows, slips_of_masks, slips_of_layouts, slips_of_numbers, slips_of_lengths,
        slips_of_parts, slips_of_tables, slips_of_merges, slips_of_terms, slips_of_biases,
        slips_of_orders, slips_of_temperatures, slips_of_term_masks}) {
    for (MadeMistake& slip : of()) {
      const auto same = [&](const MadeMistake& m) {
        return std::string_view(m.mistake) == slip.mistake;
      };
      slip.way = static_cast<int>(std::ranges::count_if(all, same));
      all.push_back(std::move(slip));
    }
  }
  return all;
}

class EveryMistake : public ::testing::TestWithParam<MadeMistake> {};

TEST_P(EveryMistake, IsNamedFirst) {
  const MadeMistake& slip = GetParam();
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
  EXPECT_TRUE(named[0].sentence.ends_with(slip.said)) << all;
}

INSTANTIATE_TEST_SUITE_P(Mistakes, EveryMistake, ::testing::ValuesIn(slips()),
                         [](const auto& slip) {
                           std::string name = slip.param.mistake;
                           std::ranges::replace(name, '.', '_');
                           return slip.param.way == 0 ? name
                                                      : name + std::to_string(slip.param.way + 1);
                         });

TEST(Mistakes, AreAllMadeHere) {
  std::set<std::string_view> made, known;
  for (const MadeMistake& slip : slips()) made.insert(slip.mistake);
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

/// Rows 0 to 3 are wrong; so many heads of row 3 are those of a call that is not causal.
std::vector<Explanation> named_of_part(int64_t heads) {
  Lab lab, wrong;
  wrong.params.causal = false;
  lab.run(), wrong.run();
  const Scene scene = lab.scene();
  for (int64_t i = 0; i < 4 * kLabHeads; ++i) lab.row(0)[i * kDim] += 0.25f;
  std::copy_n(wrong.row(3), heads * kDim, lab.row(3));
  std::copy_n(&wrong.lse_of(3, 0), heads, &lab.lse_of(3, 0));
  return lab.named(scene);
}

TEST(Diagnose, BelievesWhatIsRightAboutMostOfARequest) {
  EXPECT_EQ(named_of_part(4)[0].to_string(),
            "causal.ignored: The causal mask is ignored (a part: 4 of 16 wrong results)");
  EXPECT_EQ(named_of_part(3)[0].to_string(),
            "causal.ignored: The causal mask is ignored (a part: 3 of 16 wrong results)");
  EXPECT_EQ(named_of_part(2)[0].mistake, "unknown");
}

TEST(Diagnose, OffersNoPartOfWhatALikelierNameExplains) {
  Lab lab;
  // The left end hides keys of request 2 alone.
  lab.params.causal = false, lab.params.window_left = 14, lab.params.window_right = 1;
  lab.run();
  const Scene scene = lab.scene();
  lab.params.window_right = -1;
  lab.run();
  const auto named = [&](bool of_many, std::string_view mistake) {
    const auto all = diagnose(scene, lab.result(), *find_arithmetic("ours_portable"),
                              {.unwritten = true, .of_many = of_many});
    return std::ranges::find(all, mistake, &Explanation::mistake) != all.end();
  };
  EXPECT_TRUE(named(false, "window.right_ignored"));
  EXPECT_FALSE(named(false, "window.ignored"));
  EXPECT_TRUE(named(true, "window.ignored"));
}

TEST(Diagnose, CallsSlopesOfAnotherHeadNoBias) {
  Lab lab;
  lab.params.terms.key_bias = kLabKeyBias, lab.params.terms.alibi_slopes = kLabSlopes;
  lab.run();
  const Scene scene = lab.scene();
  lab.params.terms.alibi_slopes = kSlopesSwapped;
  lab.run();
  const std::vector<Explanation> named = lab.named(scene);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].mistake, "slopes.of_head");
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
}  // namespace shadowgraph::diagnose_test
