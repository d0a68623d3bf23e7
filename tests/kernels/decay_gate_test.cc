#include "kernels/recurrent/decay_gate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "oracle/gate_oracle.h"

namespace shadowgraph::decay_gate_test {
namespace {

using Kind = DecayGate::Kind;
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A gate that owns its memory.
struct SmallGate {
  Kind kind = Kind::kSoftplus;
  int64_t tokens = 3, heads = 2, channels = 0;  // 0: x has none
  bool with_bias = true, with_b = true;
  DType type = DType::kF32;
  float lower_bound = -5;
  std::vector<float> a_log, dt_bias;
  std::vector<std::byte> x, b;
  std::vector<float> log_decay, beta;

  int64_t a_head() const { return channels == 0 ? 1 : channels; }
  int64_t values() const { return tokens * heads * a_head(); }

  void fill(uint64_t seed, float largest) {
    Rng rng(seed);
    const auto floats = [&](int64_t count, float most) {
      std::vector<float> all(static_cast<size_t>(count));
      for (float& f : all) f = most * rng.signed_unit();
      return all;
    };
    const auto stored = [&](int64_t count) {
      std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(type));
      for (int64_t i = 0; i < count; ++i)
        store_float(bytes.data(), type, i, largest * rng.signed_unit());
      return bytes;
    };
    a_log = floats(heads, 2), dt_bias = floats(heads * a_head(), 1);
    x = stored(values()), b = stored(tokens * heads);
    log_decay.assign(static_cast<size_t>(values()), kNaN);
    beta.assign(static_cast<size_t>(tokens * heads), kNaN);
  }
  DecayGate gate() {
    DecayGate g;
    g.kind = kind;
    g.a_log = ConstTensorView(a_log.data(), DType::kF32, {heads});
    g.lower_bound = lower_bound;
    if (channels == 0) {
      g.x = ConstTensorView(x.data(), type, {tokens, heads});
      if (with_bias) g.dt_bias = ConstTensorView(dt_bias.data(), DType::kF32, {heads});
      g.log_decay = TensorView(log_decay.data(), DType::kF32, {tokens, heads});
    } else {
      g.x = ConstTensorView(x.data(), type, {tokens, heads, channels});
      if (with_bias) g.dt_bias = ConstTensorView(dt_bias.data(), DType::kF32, {heads, channels});
      g.log_decay = TensorView(log_decay.data(), DType::kF32, {tokens, heads, channels});
    }
    if (with_b && kind != Kind::kStep) g.b = ConstTensorView(b.data(), type, {tokens, heads});
    if (with_b || kind == Kind::kStep)
      g.beta = TensorView(beta.data(), DType::kF32, {tokens, heads});
    return g;
  }
  std::string run() { return decay_gate(gate()).to_string(); }
};

/// One rounding to f32, and the roundings in double before it.
bool rounded_once(float got, double wanted) {
  return std::abs(got - wanted) <= std::abs(wanted) * 0x1p-24 * (1 + 0x1p-20) + 0x1p-150;
}

/// The first number that is not the oracle's, or "".
std::string judged(SmallGate& s) {
  std::string status = s.run();
  if (status != "ok") return status;
  const GateTruth truth = gate_truth(s.gate());
  for (size_t i = 0; i < truth.log_decay.size(); ++i)
    if (!rounded_once(s.log_decay[i], truth.log_decay[i]))
      return "log_decay " + std::to_string(i) + ": " + std::to_string(s.log_decay[i]) + ", not " +
             std::to_string(truth.log_decay[i]);
  for (size_t i = 0; i < s.beta.size(); ++i) {
    const bool right = truth.beta.empty() ? std::isnan(s.beta[i])  // as it was
                                          : rounded_once(s.beta[i], truth.beta[i]);
    if (!right) return "beta " + std::to_string(i);
  }
  return "";
}

RC_GTEST_PROP(DecayGate, NumbersAreRoundedOnce, ()) {
  SmallGate s;
  s.kind = *rc::gen::elementOf(std::vector<Kind>{Kind::kSoftplus, Kind::kLowerBound, Kind::kStep});
  s.type = *rc::gen::elementOf(std::vector<DType>{DType::kF32, DType::kF16, DType::kBF16});
  s.tokens = *rc::gen::inRange<int64_t>(0, 40), s.heads = *rc::gen::inRange<int64_t>(1, 4);
  if (s.kind != Kind::kStep) s.channels = *rc::gen::elementOf(std::vector<int64_t>{0, 1, 3, 70});
  s.with_bias = *rc::gen::arbitrary<bool>(), s.with_b = *rc::gen::arbitrary<bool>();
  s.fill(*rc::gen::arbitrary<uint64_t>(),
         *rc::gen::elementOf(std::vector<float>{1e-3F, 1, 25, 120}));
  RC_ASSERT(judged(s) == "");
}

TEST(DecayGate, TheJudgeSeesASlip) {
  const auto slip = [](auto change) {
    SmallGate right;
    right.fill(4, 3);
    SmallGate wrong = right;
    change(wrong);
    EXPECT_EQ(wrong.run(), "ok");
    const GateTruth truth = gate_truth(right.gate());
    bool seen = false;
    for (size_t i = 0; i < truth.log_decay.size(); ++i) {
      seen |= !rounded_once(wrong.log_decay[i], truth.log_decay[i]);
      seen |= !rounded_once(wrong.beta[i], truth.beta[i]);
    }
    return seen;
  };
  EXPECT_FALSE(slip([](SmallGate&) {}));
  EXPECT_TRUE(slip([](SmallGate& s) { s.kind = Kind::kLowerBound; }));
  EXPECT_TRUE(slip([](SmallGate& s) { s.with_bias = false; }));
  EXPECT_TRUE(slip([](SmallGate& s) { s.with_b = false; }));
  EXPECT_TRUE(slip([](SmallGate& s) { std::swap(s.a_log[0], s.a_log[1]); }));
  EXPECT_TRUE(slip([](SmallGate& s) {
    const float b = load_float(s.b.data(), s.type, 2);
    store_float(s.b.data(), s.type, 2, b * 1.000001F);
  }));
}

/// The values that models' own kernels differ at: 20 and around it, far above, far below.
TEST(DecayGate, SoftplusIsTheArgumentAbove20) {
  SmallGate s;
  s.kind = Kind::kStep, s.tokens = 8, s.heads = 1, s.with_bias = false;
  s.fill(1, 1);
  s.a_log = {-3};
  const std::vector<float> x = {20, std::nextafter(20.F, 30.F), 21, 1e30F, -17, -60, 0, -kInf};
  std::copy(x.begin(), x.end(), reinterpret_cast<float*>(s.x.data()));
  ASSERT_EQ(s.run(), "ok");
  EXPECT_EQ(s.beta[0], 20);  // + 2e-9
  for (size_t i : {1, 2, 3}) EXPECT_EQ(s.beta[i], x[i]);
  EXPECT_EQ(s.beta[4], 4.1399376e-8F);  // f32's log(1 + exp(x)) would be 0
  EXPECT_EQ(s.beta[5], 8.7565108e-27F);
  EXPECT_EQ(s.beta[6], 0.69314718F);
  EXPECT_EQ(s.beta[7], 0);
  const GateTruth truth = gate_truth(s.gate());
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(rounded_once(s.log_decay[i], -3 * truth.beta[i])) << i;
}

TEST(DecayGate, NaNIsNotLost) {
  for (const Kind kind : {Kind::kSoftplus, Kind::kLowerBound, Kind::kStep}) {
    SmallGate s;
    s.kind = kind;
    s.fill(1, 1);
    store_float(s.x.data(), s.type, 2, kNaN);
    store_float(s.b.data(), s.type, 3, kNaN);
    ASSERT_EQ(s.run(), "ok");
    for (size_t i = 0; i < s.log_decay.size(); ++i) {
      EXPECT_EQ(std::isnan(s.log_decay[i]), i == 2) << i;
      EXPECT_EQ(std::isnan(s.beta[i]), i == (kind == Kind::kStep ? 2 : 3)) << i;
    }
  }
}

/// A decay shrinks, whatever it is made of.
RC_GTEST_PROP(DecayGate, NoDecayIsAboveZero, ()) {
  SmallGate s;
  s.kind = *rc::gen::elementOf(std::vector<Kind>{Kind::kSoftplus, Kind::kLowerBound});
  s.fill(*rc::gen::arbitrary<uint64_t>(), 300);
  RC_ASSERT(s.run() == "ok");
  for (const float d : s.log_decay) {
    RC_ASSERT(d <= 0);
    if (s.kind == Kind::kLowerBound) RC_ASSERT(d >= s.lower_bound);
  }
}

TEST(DecayGate, ThreadsBatchesAndStridesDoNotMatter) {
  SmallGate s;
  s.tokens = 50, s.heads = 3;
  s.fill(9, 4);
  ASSERT_EQ(s.run(), "ok");
  SmallGate serial = s;
  {
    const SerialScope one_thread;
    ASSERT_EQ(serial.run(), "ok");
  }
  EXPECT_EQ(serial.log_decay, s.log_decay);
  // One token alone; heads apart.
  for (int64_t t : {0, 17, 49}) {
    std::vector<float> decay(6, 7), beta(6, 7);
    DecayGate g = s.gate();
    g.x.data = g.x.at(t), g.b.data = g.b.at(t);
    g.x.shape[0] = g.b.shape[0] = 1;
    g.log_decay = TensorView(decay.data(), DType::kF32, {1, 3}, {9, 2});
    g.beta = TensorView(beta.data(), DType::kF32, {1, 3}, {9, 2});
    ASSERT_EQ(decay_gate(g).to_string(), "ok");
    for (size_t h = 0; h < 3; ++h) {
      EXPECT_EQ(decay[2 * h], s.log_decay[static_cast<size_t>(t) * 3 + h]);
      EXPECT_EQ(beta[2 * h], s.beta[static_cast<size_t>(t) * 3 + h]);
      EXPECT_EQ(decay[2 * h + 1], 7);
    }
  }
}

TEST(DecayGate, TheFootprintIsEveryNumberOnce) {
  using Rows = std::map<int32_t, std::set<int64_t>>;
  for (const Kind kind : {Kind::kSoftplus, Kind::kStep}) {
    SmallGate s;
    s.kind = kind, s.tokens = 2, s.heads = 3;
    if (kind == Kind::kSoftplus) s.channels = 2;
    s.fill(1, 1);
    const DecayGate g = s.gate();
    const auto says = [&](const void* buffer, Access access) {
      Rows rows;
      for (const AccessSpan& span : decay_gate_footprint(g)) {
        if (span.buffer != buffer || span.access != access) continue;
        for (int64_t i = 0; i < span.count; ++i)
          EXPECT_TRUE(rows[span.row].insert(span.first + i).second);
      }
      return rows;
    };
    const int64_t width = 3 * s.a_head();
    const auto rows = [](std::initializer_list<int32_t> names, int64_t count) {
      Rows all;
      int64_t at = 0;
      for (const int32_t name : names)
        for (int64_t i = 0; i < count; ++i) all[name].insert(at++);
      return all;
    };
    EXPECT_EQ(says(s.x.data(), Access::kRead), rows({0, 1}, width));
    EXPECT_EQ(says(s.log_decay.data(), Access::kWrite), rows({0, 1}, width));
    EXPECT_EQ(says(s.beta.data(), Access::kWrite), rows({0, 1}, 3));
    EXPECT_EQ(says(s.b.data(), Access::kRead), kind == Kind::kStep ? Rows() : rows({0, 1}, 3));
    EXPECT_EQ(says(s.a_log.data(), Access::kRead), rows({-1}, 3));
    EXPECT_EQ(says(s.dt_bias.data(), Access::kRead), rows({-1}, width));
  }
  SmallGate none;
  none.tokens = 0;
  none.fill(1, 1);
  EXPECT_TRUE(decay_gate_footprint(none.gate()).empty());
}

TEST(DecayGate, ARefusedGateWritesNothing) {
  SmallGate s;
  s.kind = Kind::kLowerBound, s.lower_bound = 0;
  s.fill(1, 1);
  EXPECT_NE(s.run(), "ok");
  for (const float f : s.log_decay) EXPECT_TRUE(std::isnan(f));
  for (const float f : s.beta) EXPECT_TRUE(std::isnan(f));
}

TEST(LightningSlopes, APowerOfTwoOfHeadsHalves) {
  std::vector<float> out(8);
  ASSERT_EQ(lightning_slopes(0, 1, out).to_string(), "ok");
  for (int h = 0; h < 8; ++h)
    EXPECT_EQ(out[static_cast<size_t>(h)], static_cast<float>(std::ldexp(1, -h - 1) * (1 + 1e-5)));
}

TEST(LightningSlopes, OtherHeadsTakeEverySecondOfTwiceThePower) {
  std::vector<float> out(6);
  ASSERT_EQ(lightning_slopes(0, 5, out).to_string(), "ok");
  const double exponents[] = {-2, -4, -6, -8, -1, -3};
  for (size_t h = 0; h < 6; ++h)
    EXPECT_EQ(out[h], static_cast<float>(std::exp2(exponents[h]) * (1 + 1e-5)));
  ASSERT_EQ(lightning_slopes(4, 5, out).to_string(), "ok");
  for (size_t h = 0; h < 6; ++h)
    EXPECT_EQ(out[h], static_cast<float>(std::exp2(exponents[h]) * 1e-5));
}

RC_GTEST_PROP(LightningSlopes, AreTheOracles, ()) {
  const int32_t layers = *rc::gen::inRange(1, 100), layer = *rc::gen::inRange(0, layers);
  std::vector<float> out(*rc::gen::inRange<size_t>(0, 130));
  RC_ASSERT(lightning_slopes(layer, layers, out).to_string() == "ok");
  const std::vector<double> truth = slope_truth(layer, layers, std::ssize(out));
  for (size_t h = 0; h < out.size(); ++h) {
    // The oracle takes powers of a ratio: their exponent multiplies the ratio's rounding.
    RC_ASSERT(std::abs(out[h] - truth[h]) <= truth[h] * 0x1p-24 * (1 + 0x1p-15));
    RC_ASSERT(out[h] > 0);
  }
}

}  // namespace
}  // namespace shadowgraph::decay_gate_test
