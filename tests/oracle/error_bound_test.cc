// The derived bound holds for arithmetic of the declared kind, and is near enough to see faults.
#include "check/bounds/error_bound.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "oracle/emulated_kernel.h"

namespace shadowgraph::error_bound_test {
namespace {

using namespace emulated;

TEST(ErrorBound, HoldsOnRandomRows) {
  Rng rng(1);
  int64_t rows = 0;
  for (const Kernel& kernel : kKernels) {
    Excess largest;
    for (int i = 0; i < 15000; ++i, ++rows) {
      const auto n = static_cast<int32_t>(1 + rng.below(rng.below(8) == 0 ? 100 : 20));
      SmallCall c(1, n, 1, 1, 8, 4);
      c.params().sm_scale = 0.35355339f;
      fill(c, kernel.q_type, rng);
      const Excess e = measure(c, kernel);
      ASSERT_LE(e.out, 1) << "row " << rows << ", " << n << " keys";
      ASSERT_LE(e.lse, 1) << "row " << rows << ", " << n << " keys";
      largest = {std::max(largest.out, e.out), std::max(largest.lse, e.lse)};
    }
    // A bound that nobody comes near proves nothing.
    EXPECT_GE(largest.out, 0.05);
    std::printf("largest error over bound: out %.3f, lse %.3f\n", largest.out, largest.lse);
  }
  EXPECT_GE(rows, 100000);
}

/// Share of 300 rows on which a fault exceeds the bound.
template <class Fill>
double share_caught(const Kernel& faulty, int32_t keys, const Fill& fill_case) {
  Rng rng(2);
  int caught = 0;
  for (int i = 0; i < 300; ++i) {
    SmallCall c(1, keys, 1, 1, 64, 32);
    c.params().sm_scale = 0.125;
    fill_case(c, rng);
    const Excess e = measure(c, faulty);
    if (e.out > 1 || e.lse > 1) ++caught;
  }
  return caught / 300.0;
}

/// T0 data: q = 0 makes every weight 1; every token's value is another integer.
void fill_uniform(SmallCall& c, Rng& rng) {
  const int64_t dv = c.call.v.shape[2];
  for (size_t j = 0; j < c.v.size(); ++j) {
    c.v[j] = static_cast<float>(static_cast<int64_t>(j) / dv % 64) +
             static_cast<float>(rng.below(64)) - 63;
  }
}

TEST(ErrorBound, SeesADroppedTokenOnUniformDataAlways) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int32_t keys : {7, 64}) {
      const Kernel good{.q_type = type, .out_type = type};
      Kernel faulty = good;
      faulty.drop_last = true;
      EXPECT_EQ(share_caught(good, keys, fill_uniform), 0);
      EXPECT_EQ(share_caught(faulty, keys, fill_uniform), 1) << keys << " keys";
    }
  }
}

TEST(ErrorBound, SeesAWrongScale) {
  const auto random = [](DType t) { return [t](SmallCall& c, Rng& rng) { fill(c, t, rng); }; };
  const double f32 = share_caught({.scale_error = 1.01f}, 64, random(DType::kF32));
  const double f16 =
      share_caught({.q_type = DType::kF16, .out_type = DType::kF16, .scale_error = 1.01f}, 64,
                   random(DType::kF16));
  std::printf("scale * 1.01 caught: f32 %.0f %%, f16 %.0f %%\n", 100 * f32, 100 * f16);
  EXPECT_EQ(f32, 1);
  EXPECT_EQ(f16, 1);
}

TEST(ErrorBound, SeesABf16Accumulator) {
  const auto random = [](DType t) { return [t](SmallCall& c, Rng& rng) { fill(c, t, rng); }; };
  const double f32 = share_caught({.accumulator = DType::kBF16}, 64, random(DType::kF32));
  const double bf16 =
      share_caught({.q_type = DType::kBF16, .out_type = DType::kBF16, .accumulator = DType::kBF16},
                   64, random(DType::kBF16));
  std::printf("bf16 accumulator caught: f32 %.0f %%, bf16 %.0f %%\n", 100 * f32, 100 * bf16);
  EXPECT_EQ(f32, 1);
  EXPECT_GE(bf16, 0.5);
}

TEST(ErrorBound, SeesSplitsAddedWithoutTheirScale) {
  const auto random = [](SmallCall& c, Rng& rng) { fill(c, DType::kF32, rng); };
  EXPECT_EQ(share_caught({.split = 16}, 64, random), 0);
  EXPECT_EQ(share_caught({.split = 16, .fold_unscaled = true}, 64, random), 1);
}

TEST(ErrorBound, SeesPartsStoredInTheOutputsType) {
  const auto random = [](SmallCall& c, Rng& rng) { fill(c, DType::kBF16, rng); };
  const Kernel in_f32 = {.q_type = DType::kBF16, .split = 16, .partials = Partials::kF32};
  EXPECT_EQ(share_caught(in_f32, 64, random), 0);
  Kernel narrow = in_f32;
  narrow.narrow_parts = true;
  EXPECT_GE(share_caught(narrow, 64, random), 0.9);
}

TEST(ErrorBound, IsInfiniteWhereAnEarlySumMayOverflow) {
  // The last key takes all the weight, but before it comes the others' sum is 4e38.
  SmallCall c(1, 5, 1, 1, 1, 1);
  c.q = {1};
  c.k = {0, 0, 0, 0, 100};
  const auto infinite = [&](float v) {
    c.v = {v, v, v, v, 1};
    bool is = false;
    for_each_row(c.call, [&](const OracleRow& row) {
      is = std::isinf(
          error_bound(row, Arithmetic{}, DType::kF32, DType::kF32, LseSink::kExcluded).out[0]);
    });
    return is;
  };
  EXPECT_TRUE(infinite(1e38f));
  EXPECT_TRUE(infinite(-1e38f));
  EXPECT_FALSE(infinite(1e37f));
}

TEST(ErrorBound, IsInfiniteWhereALogitMayOverflowBeforeItIsScaled) {
  SmallCall c(1, 2, 1, 1, 2, 1);
  c.params().sm_scale = 1e-30f;
  c.q = {1e20f, 1e20f};
  c.k = {1e19f, -1e19f, 1, 1};
  for_each_row(c.call, [](const OracleRow& row) {
    const ErrorBound b =
        error_bound(row, Arithmetic{}, DType::kF32, DType::kF32, LseSink::kExcluded);
    EXPECT_TRUE(std::isinf(b.out[0]));
    EXPECT_TRUE(std::isinf(b.lse));
  });
}

TEST(ErrorBound, AllowsSubnormalInputsToBeFlushed) {
  // bf16 holds 2^-130. A dot product that takes it for 0 loses a logit of 4, on either side.
  for (const bool in_k : {false, true}) {
    SmallCall c(1, 2, 1, 1, 1, 1);
    c.q = {in_k ? 0x1p127f : 0x1p-130f};
    c.k = {0, in_k ? 0x1p-130f : 0x1p127f};
    c.params().sm_scale = 32;
    c.v = {0, 1};
    for_each_row(c.call, [](const OracleRow& row) {
      EXPECT_EQ(row.logits[1], 4);
      const ErrorBound b = error_bound(row, *find_arithmetic("ours_fast"), DType::kBF16,
                                       DType::kBF16, LseSink::kExcluded);
      EXPECT_GE(b.out[0], row.out[0] - 0.5);
      EXPECT_GE(b.lse, row.lse - std::log(2));
    });
  }
}

TEST(ErrorBound, CountsOnlyTheTilesThatMayRaiseTheMaximum) {
  // 64 tiles of 16 keys: one after the other higher, or lower.
  Arithmetic a;
  a.tile = 16;
  const auto bound = [&](bool rising, bool in_order) {
    a.in_order = in_order;
    SmallCall c(1, 1024, 1, 1, 1, 1);
    c.q = {1};
    for (size_t j = 0; j < 1024; ++j) {
      const size_t tile = rising ? j / 16 : 63 - j / 16;
      c.k[j] = 0.001f * static_cast<float>(tile);
      c.v[j] = 1;
    }
    double out = 0;
    for_each_row(c.call, [&](const OracleRow& row) {
      out = error_bound(row, a, DType::kF32, DType::kF32, LseSink::kExcluded).out[0];
    });
    return out;
  };
  EXPECT_LT(bound(false, true), bound(true, true));
  EXPECT_LE(bound(true, true), bound(true, false));
  EXPECT_LT(bound(false, true), bound(false, false));
}

/// The bound of splits whose largest logits are these, 16 keys each.
double bound_of_splits(const std::vector<float>& tops, int split) {
  Arithmetic a;
  a.in_order = true;
  a.tile = 16;
  a.split = split;
  const size_t keys = 16 * tops.size();
  SmallCall c(1, static_cast<int32_t>(keys), 1, 1, 1, 1);
  c.q = {1};
  for (size_t j = 0; j < keys; ++j) c.k[j] = tops[j / 16], c.v[j] = 1;
  double out = 0;
  for_each_row(c.call, [&](const OracleRow& row) {
    out = error_bound(row, a, DType::kF32, DType::kF32, LseSink::kExcluded).out[0];
  });
  return out;
}

TEST(ErrorBound, CountsTheRescalesOfFolds) {
  // A weight is rescaled when its split is folded below a higher one, and whenever a later split is
  // higher than all before. Of the orders of three splits these do it once at most:
  const double once = std::max({bound_of_splits({3, 2, 1}, 16), bound_of_splits({3, 1, 2}, 16),
                                bound_of_splits({1, 3, 2}, 16), bound_of_splits({2, 3, 1}, 16)});
  EXPECT_GT(bound_of_splits({1, 2, 3}, 16), once);  // the first split twice
  EXPECT_GT(bound_of_splits({2, 1, 3}, 16), once);  // the second one
}

/// The bound of four splits of 16 keys, each kept so.
double bound_of_parts(Partials partials, int lse_roundings) {
  Arithmetic a;
  a.split = 16;
  a.partials = partials;
  a.lse_roundings = lse_roundings;
  SmallCall c(1, 64, 1, 1, 1, 1);
  c.q = {1};
  for (size_t j = 0; j < 64; ++j) c.k[j] = static_cast<float>(j % 5), c.v[j] = 1;
  double out = 0;
  for_each_row(c.call, [&](const OracleRow& row) {
    out = error_bound(row, a, DType::kF32, DType::kF16, LseSink::kExcluded).out[0];
  });
  return out;
}

TEST(ErrorBound, CountsTheDivisionOfAPartItsLseAndItsType) {
  EXPECT_GT(bound_of_parts(Partials::kF32, 3), bound_of_parts(Partials::kUnscaled, 3));
  EXPECT_GT(bound_of_parts(Partials::kF32, 4), bound_of_parts(Partials::kF32, 3));
  EXPECT_GT(bound_of_parts(Partials::kOutType, 3), bound_of_parts(Partials::kF32, 3) + 0x1p-12);
}

/// Results of one key each, merged one after the other; keys have one logit, and the second half of
/// them the value 1.
struct Chain {
  double error = 0, bound = 0;

  Chain(int32_t keys, float logit) {
    SmallCall c(1, keys, 1, 1, 1, 1);
    c.q = {1};
    std::ranges::fill(c.k, logit);
    std::fill(c.v.begin() + keys / 2, c.v.end(), 1.f);
    float out = c.v[0], lse = logit;
    for (size_t j = 1; j < c.v.size(); ++j) merge(c.v[j], logit, &out, &lse);
    Arithmetic a = *find_arithmetic("ours_merged");
    a.parts = keys;
    for_each_row(c.call, [&](const OracleRow& row) {
      error = std::abs(out - row.out[0]);
      bound = error_bound(row, a, DType::kF32, DType::kF32, LseSink::kExcluded).out[0];
    });
  }

 private:
  static void merge(float value, float logit, float* out, float* lse) {
    const auto rows = [](const float* x) { return ConstTensorView(x, DType::kF32, {1, 1, 1}); };
    const auto lses = [](const float* x) { return ConstTensorView(x, DType::kF32, {1, 1}); };
    float to = 0, to_lse = 0;
    MergeState<LseBase::kNatural> c;
    c.v_a = rows(out), c.s_a = lses(lse), c.v_b = rows(&value), c.s_b = lses(&logit);
    c.out = TensorView(&to, DType::kF32, {1, 1, 1});
    c.lse = NaturalLse(TensorView(&to_lse, DType::kF32, {1, 1}));
    EXPECT_EQ(merge_state(c).to_string(), "ok");
    *out = to, *lse = to_lse;
  }
};

TEST(ErrorBound, CountsEveryResultOfAChainOfMerges) {
  const Chain small(60, 100);
  EXPECT_LE(small.error, small.bound);
  EXPECT_LT(small.bound, 0.1);
  // The sum of so many does not move an LSE of this size any more: what comes late weighs too much.
  const Chain large(2000, 1e5f);
  EXPECT_GT(large.error, 0.25);
  EXPECT_LE(large.error, large.bound);
}

TEST(ErrorBound, IsExactRoundingForASingleKey) {
  // One key: weight 1 whatever its logit; what is left is the division and the last rounding.
  SmallCall c(1, 1, 1, 1, 4, 1);
  c.v = {3};
  for_each_row(c.call, [](const OracleRow& row) {
    const ErrorBound b = error_bound(row, *find_arithmetic("ours_portable"), DType::kBF16,
                                     DType::kBF16, LseSink::kExcluded);
    EXPECT_GE(b.out[0], 3 * 0x1p-8);
    EXPECT_LE(b.out[0], 3 * (0x1p-8 + 0x1p-18));
  });
}

TEST(ErrorBound, SinkTakesPartLikeAKeyWithoutValue) {
  // The same row once with a sink and once with the sink as a real key whose value is 0.
  SmallCall sink(1, 3, 1, 1, 1, 1), key(1, 4, 1, 1, 1, 1);
  sink.q = key.q = {1};
  sink.k = {0.5f, -1, 2};
  sink.v = {1, -2, 3};
  key.k = {0.5f, -1, 2, 1.5f};
  key.v = {1, -2, 3, 0};
  sink.set_sinks({1.5f});
  ErrorBound a, b;
  const auto bound = [](const OracleRow& row) {
    return error_bound(row, Arithmetic{}, DType::kF32, DType::kF32, LseSink::kIncluded);
  };
  for_each_row(sink.call, [&](const OracleRow& row) { a = bound(row); });
  for_each_row(key.call, [&](const OracleRow& row) { b = bound(row); });
  EXPECT_GT(a.out[0], 0.5 * b.out[0]);
  EXPECT_LT(a.out[0], 2 * b.out[0]);
}

}  // namespace
}  // namespace shadowgraph::error_bound_test
