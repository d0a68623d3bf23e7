// A name has the number that it found, the same for all heads, rows and requests of a call; a name
// for a part of the wrong rows says so; and looking for it costs no more than keys.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include "check/mistake_slips.h"
#include "check/mistakes/reading_result.h"

namespace shadowgraph::diagnose_numbers_test {
namespace {

/// The mistake that is named first where the lab's call is made otherwise.
std::string named(const std::function<void(Lab&)>& setting, const std::function<void(Lab&)>& slip) {
  Lab lab;
  setting(lab);
  lab.run();
  Scene scene = lab.scene();
  call(slip)(lab, scene);
  const std::vector<Explanation> all = lab.named(scene);
  return all.empty() ? "" : all[0].to_string();
}

TEST(DiagnoseNumbers, AWindowIsOffBySoManyKeysAtItsEnd) {
  EXPECT_EQ(named(set_window, [](Lab& l) { l.params.window_left = 2; }),
            "window.shorter: The window is too short, by 3 (36 of 36 wrong results)");
  EXPECT_EQ(named(set_window, [](Lab& l) { l.params.window_left = 7; }),
            "window.longer: The window is too long, by 2 (36 of 36 wrong results)");
  EXPECT_EQ(
      named(set_both_ends, [](Lab& l) { l.params.window_right = 0; }),
      "window.shorter: The window is too short, at its right end, by 1 (24 of 24 wrong results)");
}

TEST(DiagnoseNumbers, AnotherScaleIsSaidAsSomebodyMeantIt) {
  const auto of_scale = [](float scale) {
    return named(nothing, [scale](Lab& l) { l.params.sm_scale = scale; });
  };
  const std::string end = " (36 of 36 wrong results)",
                    other = "scale.other: The logits have another scale, ";
  EXPECT_EQ(of_scale(1 / std::sqrt(24.0f)), other + "0.204 = 1 / sqrt(24)" + end);
  EXPECT_EQ(of_scale(1 / std::sqrt(128.0f)), other + "0.0884 = 1 / sqrt(128)" + end);
  EXPECT_EQ(of_scale(0.3f), other + "0.3" + end);
  EXPECT_EQ(of_scale(0.67f), other + "0.67" + end);
}

TEST(DiagnoseNumbers, OneScaleForAllRequestsOrNone) {
  Lab lab, half, third;
  half.params.sm_scale = 0.3f, third.params.sm_scale = 0.4f;
  lab.run(), half.run(), third.run();
  const Scene scene = lab.scene();
  lab.out = half.out, lab.lse = half.lse;
  std::copy(third.row(3), third.row(5), lab.row(3));
  std::copy_n(&third.lse_of(3, 0), 2 * kLabHeads, &lab.lse_of(3, 0));
  for (const Explanation& e : lab.named(scene)) {
    if (e.mistake != "scale.other") continue;
    EXPECT_EQ(e.explained, 28) << "of requests 0 and 2";
    EXPECT_EQ(e.to_string(),
              "scale.other: The logits have another scale, 0.3 (a part: 28 of 36 wrong results)");
  }
}

TEST(DiagnoseNumbers, KeysThatAreNoneAreCounted) {
  const auto of_mass = [](float cap, double count, double logit) {
    return named([cap](Lab& l) { l.params.logits_soft_cap = cap; },
                 [=](Lab& l) {
                   l.no_keys.assign(kLabHeads, static_cast<float>(std::log(count) + logit));
                   l.params.sinks = l.no_keys, l.lse_sink = LseSink::kIncluded;
                 });
  };
  const std::string is = "sum.no_keys: Keys that are none weigh in the sum, and have no value, ";
  EXPECT_EQ(of_mass(0, 12, 0), is + "12 of them, each with the logit 0 (36 of 36 wrong results)");
  EXPECT_EQ(of_mass(3, 63, -3), is + "63 of them, each with the logit -3 (36 of 36 wrong results)");
}

/// One query over so many keys of one head, its first element wrong.
struct LongRow {
  static constexpr int64_t kWide = 16;
  std::vector<float> q, k, v, out = std::vector<float>(kWide), lse = {0};
  RowsRead rows;
  Scene scene;

  explicit LongRow(int64_t length) {
    Rng rng = Rng::stream(3, static_cast<uint64_t>(length));
    const auto fill = [&](std::vector<float>& to, int64_t count) {
      to.resize(static_cast<size_t>(count));
      for (float& x : to) x = rng.signed_unit();
    };
    fill(q, kWide), fill(k, length * kWide), fill(v, length * kWide);
    std::vector<int32_t> keys(static_cast<size_t>(length));
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int32_t>(i);
    const int32_t lens[] = {static_cast<int32_t>(length)};
    PagedAttention call;
    call.q = ConstTensorView(q.data(), DType::kF32, {1, 1, kWide});
    call.cache = KvCache::nhd(TensorView(k.data(), DType::kF32, {length, 1, 1, kWide}),
                              TensorView(v.data(), DType::kF32, {length, 1, 1, kWide}));
    call.pages = PageTable::dense(keys, length, lens);
    call.params = {.num_qo_heads = 1,
                   .num_kv_heads = 1,
                   .head_dim_qk = kWide,
                   .head_dim_vo = kWide,
                   .sm_scale = 0.25f};
    call.out = TensorView(out.data(), DType::kF32, {1, 1, kWide});
    call.lse = NaturalLse(TensorView(lse.data(), DType::kF32, {1, 1}));
    EXPECT_TRUE(attention_with_kvcache(call).ok());
    out[0] += 0.25f;
    scene.q = call.q, scene.tokens = call.cache, scene.params = call.params;
    scene.rows = {{0, 1}, {keys}, {}};
    scene.page_size = 16;
  }
  double seconds() const {
    const Result result{ConstTensorView(out.data(), DType::kF32, {1, 1, kWide}),
                        ConstTensorView(lse.data(), DType::kF32, {1, 1}), LseBase::kNatural,
                        LseSink::kExcluded};
    const std::clock_t start = std::clock();
    const auto all = diagnose(scene, result, *find_arithmetic("ours_portable"), {});
    EXPECT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].mistake, "unknown") << all[0].to_string();
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }
};

TEST(DiagnoseNumbers, ALongRowCostsTimeByItsKeys) {
  // Eight times the keys: a search of pairs of them would take 64 times as long.
  const double few = LongRow(1024).seconds(), many = LongRow(8192).seconds();
  EXPECT_LT(many, 24 * few + 0.5);
}

TEST(RowSums, AStretchIsTheSumOfItsKeys) {
  Lab lab;
  lab.params.sinks = lab.sinks;
  lab.params.window_left = 6;
  lab.run();
  const Scene scene = lab.scene();
  const Result result = lab.result();
  const Arithmetic& arithmetic = *find_arithmetic("ours_portable");
  const DiagnoseOptions options;
  const ReadingResults results(scene, result, arithmetic, options);
  const Reading right = right_reading(scene, 2);
  const HeadRow cell{7, 2, 3};
  const auto [sums, got] = results.look(2, right, cell);
  EXPECT_LT(got.distance(sums.of(sums.seen(0, sums.length()))), 1e-5);
  EXPECT_LT(got.distance(sums.of(sums.read_as(1))), 1e-5);
  EXPECT_GT(got.distance(sums.of(sums.read_as(1.1))), 1e-5);
  for (int64_t cut = 0; cut <= sums.length(); ++cut) {
    const KeySum parts[] = {sums.seen(0, cut), sums.seen(cut, sums.length())};
    EXPECT_LT(got.distance(sums.of(parts[0] + parts[1])), 1e-5) << cut;
    Reading merged = right;
    merged.merge = Reading::Merge::kUnweighted;
    const bool both = !parts[0].empty() && !parts[1].empty();
    EXPECT_EQ(sums.merged(parts, merged).has_value(), both) << cut;
  }
  EXPECT_TRUE(sums.seen(0, sums.length(), {.list = Stretch::List::kRow, .shift = 4}).unknown);
}

}  // namespace
}  // namespace shadowgraph::diagnose_numbers_test
