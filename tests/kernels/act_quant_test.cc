#include "kernels/sparse/act_quant.h"

#include <gtest/gtest.h>

#include <limits>

#include "check/bounds/rounding.h"
#include "kernels/footprint_elements.h"
#include "kernels/small_indexer.h"
#include "oracle/indexer_oracle.h"

namespace shadowgraph::act_quant_test {
namespace {

struct SmallQuant {
  DType type = DType::kBF16;
  int64_t tokens = 21, dim = 256;
  bool ue8m0 = false;
  Bytes x, y, scale;
  CallOptions options;

  SmallQuant(DType t, bool power, uint64_t seed) : type(t), ue8m0(power) {
    Rng rng(seed);
    x.resize(static_cast<size_t>(tokens * dim) * size_of(type));
    for (int64_t i = 0; i < tokens * dim; ++i) {
      // Blocks of very different magnitudes, the smallest below the floor.
      const float size = std::ldexp(1.F, static_cast<int>(i / kIndexDim % 30) - 20);
      store_float(x.data(), type, i, size * rng.signed_unit());
    }
    y.resize(static_cast<size_t>(tokens * dim)), scale.resize(y.size() / kIndexDim * 4);
  }
  ActQuant call() {
    ActQuant c;
    c.x = ConstTensorView(x.data(), type, {tokens, dim});
    c.ue8m0 = ue8m0;
    c.y = TensorView(y.data(), DType::kE4M3, {tokens, dim});
    c.scale = TensorView(scale.data(), DType::kF32, {tokens, dim / kIndexDim});
    c.options = options;
    return c;
  }
  std::string run() { return act_quant(call()).to_string(); }
};

/// Every value is one of the e4m3 nearest to a quotient that is wrong by half an ulp, every scale
/// within two roundings of its own, a power of two exactly it.
std::string judged(const SmallQuant& s) {
  for (int64_t block = 0; block < s.tokens * s.dim / kIndexDim; ++block) {
    double amax = 0;
    for (int64_t i = 0; i < kIndexDim; ++i)
      amax =
          std::max(amax, std::abs(double{load_float(s.x.data(), s.type, block * kIndexDim + i)}));
    const double right = block_scale(amax, s.ue8m0);
    const double scale = load_float(s.scale.data(), DType::kF32, block);
    const double error = s.ue8m0 ? 0 : right * gamma_of(2, rounding_to(DType::kF32).u);
    if (!(std::abs(scale - right) <= error)) return "scale";
    for (int64_t i = block * kIndexDim; i < (block + 1) * kIndexDim; ++i) {
      const double q = load_float(s.x.data(), s.type, i) / scale, e = std::abs(q) * 0x1p-24;
      const double got = load_float(s.y.data(), DType::kE4M3, i);
      if (!(got >= nearest_e4m3(q - e) && got <= nearest_e4m3(q + e)))
        return "value " + std::to_string(i);
    }
  }
  return "";
}

TEST(ActQuant, ScalesAndValuesAreTheNearest) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    for (const bool power : {false, true}) {
      SmallQuant s(type, power, 4);
      ASSERT_EQ(s.run(), "ok");
      EXPECT_EQ(judged(s), "") << static_cast<int>(type) << power;
      SmallQuant threads = s;
      threads.options.num_threads = 3;
      ASSERT_EQ(threads.run(), "ok");
      EXPECT_EQ(threads.y, s.y);
      EXPECT_EQ(threads.scale, s.scale);
    }
}

TEST(ActQuant, TheJudgeSeesASlip) {
  for (const bool power : {false, true}) {
    SmallQuant s(DType::kF32, power, 5);
    ASSERT_EQ(s.run(), "ok");
    for (const size_t i : {0U, 700U, 5000U}) {
      SmallQuant value = s, scale = s;
      value.y[i] ^= std::byte{1};
      EXPECT_NE(judged(value), "");
      scale.scale[i / 128 * 4] ^= std::byte{4};
      EXPECT_NE(judged(scale), "");
    }
    SmallQuant other = s;
    other.ue8m0 = !power;
    EXPECT_NE(judged(other), "");
  }
}

/// As the engine's kernel has it: the product with 1 / 448 rounded, not the quotient.
TEST(ActQuant, AScaleByHand) {
  SmallQuant s(DType::kF32, false, 1);
  std::fill(s.x.begin(), s.x.end(), std::byte{0});
  store_float(s.x.data(), DType::kF32, 3, -800);
  store_float(s.x.data(), DType::kF32, 4, 400);
  ASSERT_EQ(s.run(), "ok");
  EXPECT_EQ(load_float(s.scale.data(), DType::kF32, 0), 1.7857143878936768F);
  EXPECT_EQ(load_float(s.y.data(), DType::kE4M3, 3), -448);
  EXPECT_EQ(load_float(s.y.data(), DType::kE4M3, 4), 224);
  EXPECT_EQ(load_float(s.scale.data(), DType::kF32, 1), 1e-4F * (1 / 448.F));
  s.ue8m0 = true;
  for (const auto& [amax, scale] :
       {std::pair(896.F, 2.F), {897.F, 4.F}, {448.F, 1.F}, {1.F, 0x1p-8F}}) {
    store_float(s.x.data(), DType::kF32, 3, amax);
    store_float(s.x.data(), DType::kF32, 4, 0);
    ASSERT_EQ(s.run(), "ok");
    EXPECT_EQ(load_float(s.scale.data(), DType::kF32, 0), scale) << amax;
  }
}

TEST(ActQuant, ANaNStaysOneAndIsNoMagnitude) {
  SmallQuant s(DType::kF32, false, 1);
  std::fill(s.x.begin(), s.x.end(), std::byte{0});
  store_float(s.x.data(), DType::kF32, 0, std::numeric_limits<float>::quiet_NaN());
  store_float(s.x.data(), DType::kF32, 1, 448);
  ASSERT_EQ(s.run(), "ok");
  EXPECT_TRUE(std::isnan(load_float(s.y.data(), DType::kE4M3, 0)));
  EXPECT_EQ(load_float(s.y.data(), DType::kE4M3, 1), 448);
}

TEST(ActQuant, ItReadsAllAndWritesAll) {
  SmallQuant s(DType::kF16, false, 1);
  const Footprint spans = act_quant_footprint(s.call());
  EXPECT_EQ(elements(spans, s.x, Access::kRead).size(), 21U * 256);
  EXPECT_EQ(elements(spans, s.y, Access::kWrite).size(), 21U * 256);
  EXPECT_EQ(elements(spans, s.scale, Access::kWrite).size(), 21U * 2);
}

}  // namespace
}  // namespace shadowgraph::act_quant_test
