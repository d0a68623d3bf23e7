#include "kernels/dense/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "check/bounds/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"

namespace shadowgraph::merge_states_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A merge that owns its f32 memory.
template <LseBase Base>
struct SmallMerge {
  std::vector<float> v, s, out, lse;
  MergeStates<Base> call;

  SmallMerge(int64_t rows, int64_t states, int64_t heads, int64_t dim)
      : v(static_cast<size_t>(rows * states * heads * dim)),
        s(static_cast<size_t>(rows * states * heads)),
        out(static_cast<size_t>(rows * heads * dim), kNaN),
        lse(static_cast<size_t>(rows * heads), kNaN) {
    call.v = ConstTensorView(v.data(), DType::kF32, {rows, states, heads, dim});
    call.s = ConstTensorView(s.data(), DType::kF32, {rows, states, heads});
    call.out = TensorView(out.data(), DType::kF32, {rows, heads, dim});
    call.lse = LseView<Base>(TensorView(lse.data(), DType::kF32, {rows, heads}));
  }
  void random(uint64_t seed) {
    Rng rng(seed);
    for (float& x : v) x = rng.signed_unit();
    for (float& x : s)
      x = rng.below(6) == 0 ? (rng.below(2) ? kInf : -kInf) : 12 * rng.signed_unit();
  }
  void run() { ASSERT_EQ(merge_states(call).to_string(), "ok"); }
};

template <class T>
class Merge : public ::testing::Test {
 protected:
  static constexpr LseBase kBase = T::value;
  /// log of x to the base.
  static float log_base(double x) {
    return static_cast<float>(kBase == LseBase::kLog2 ? std::log2(x) : std::log(x));
  }
};
using Bases = ::testing::Types<std::integral_constant<LseBase, LseBase::kNatural>,
                               std::integral_constant<LseBase, LseBase::kLog2>>;
TYPED_TEST_SUITE(Merge, Bases);

TYPED_TEST(Merge, OneStatePassesWithItsBits) {
  SmallMerge<TestFixture::kBase> m(1, 1, 1, 3);
  m.v = {0.1f, -7.f, 3e-30f};
  m.s = {1.2345678f};
  m.run();
  EXPECT_EQ(m.out, m.v);
  EXPECT_EQ(m.lse, m.s);
}

/// fi.I-46.
TYPED_TEST(Merge, AnEmptyStateIsTheIdentity) {
  for (const float empty : {-kInf, kInf}) {
    for (size_t place : {0, 1, 2}) {
      SmallMerge<TestFixture::kBase> m(1, 3, 1, 2);
      m.s = {empty, empty, empty};
      m.v.assign(6, kNaN);  // not read
      m.s[place] = -0.75f;
      m.v[2 * place] = 0.3f, m.v[2 * place + 1] = -11.f;
      m.run();
      EXPECT_EQ(m.out, (std::vector<float>{0.3f, -11.f}));
      EXPECT_EQ(m.lse[0], -0.75f);
    }
  }
}

/// fi.I-46.
TYPED_TEST(Merge, EmptyStatesMergeToTheEmptyState) {
  SmallMerge<TestFixture::kBase> m(1, 2, 1, 2);
  m.s = {-kInf, kInf};
  m.v.assign(4, kNaN);
  m.run();
  EXPECT_EQ(m.out, (std::vector<float>{0, 0}));
  EXPECT_EQ(m.lse[0], -kInf);
}

/// fi.I-47.
TYPED_TEST(Merge, TheLseIsAtLeastThatOfEveryState) {
  SmallMerge<TestFixture::kBase> m(20, 5, 2, 1);
  m.random(11);
  m.run();
  for (size_t i = 0; i < m.s.size(); ++i) {
    if (m.s[i] == kInf) continue;  // empty
    EXPECT_GE(m.lse[i / 10 * 2 + i % 2], m.s[i]) << i;
  }
}

TYPED_TEST(Merge, EqualStatesGiveTheirMean) {
  for (int64_t states : {2, 4, 8}) {
    SmallMerge<TestFixture::kBase> m(1, states, 1, 1);
    float sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(states); ++i)
      m.s[i] = 0, sum += m.v[i] = static_cast<float>(i * i);
    m.run();
    EXPECT_EQ(m.out[0], sum / static_cast<float>(states));
    EXPECT_EQ(m.lse[0], TestFixture::log_base(static_cast<double>(states)));
  }
}

TYPED_TEST(Merge, AStateFarBelowWeighsNothing) {
  SmallMerge<TestFixture::kBase> m(1, 2, 1, 1);
  m.s = {-300.f, 5.f};
  m.v = {1000.f, 2.f};
  m.run();
  EXPECT_EQ(m.out[0], 2.f);
  EXPECT_EQ(m.lse[0], 5.f);
}

TYPED_TEST(Merge, NaNIsNotLost) {
  for (const float last : {2.f, -kInf}) {
    SmallMerge<TestFixture::kBase> m(1, 3, 1, 1);
    m.s = {1.f, kNaN, last};
    m.run();
    EXPECT_TRUE(std::isnan(m.out[0])) << last;
    EXPECT_TRUE(std::isnan(m.lse[0])) << last;
  }
}

TYPED_TEST(Merge, RandomStatesAreWithinTheBound) {
  for (int64_t states : {1, 2, 5, 9}) {
    SmallMerge<TestFixture::kBase> m(6, states, 3, 20);
    m.random(static_cast<uint64_t>(states));
    m.run();
    Result result;
    result.out = m.call.out;
    result.lse = m.call.lse.tensor;
    result.lse_base = TestFixture::kBase;
    const Judgement j = judge(m.call, result, *find_arithmetic("ours_portable"), JudgeOptions());
    EXPECT_EQ(j.findings.to_string(), "ok");
    EXPECT_EQ(j.rows, 18);
  }
}

TYPED_TEST(Merge, TwoTensorsAreTwoStates) {
  SmallMerge<TestFixture::kBase> both(4, 2, 3, 5), pair(4, 2, 3, 5);
  both.random(3);
  both.run();
  MergeState<TestFixture::kBase> call;
  const auto part = [&](int64_t i) {
    return ConstTensorView(both.v.data() + i * 15, DType::kF32, {4, 3, 5}, {30, 5, 1});
  };
  const auto scores = [&](int64_t i) {
    return ConstTensorView(both.s.data() + i * 3, DType::kF32, {4, 3}, {6, 1});
  };
  call.v_a = part(0), call.v_b = part(1), call.s_a = scores(0), call.s_b = scores(1);
  call.out = pair.call.out, call.lse = pair.call.lse;
  ASSERT_EQ(merge_state(call).to_string(), "ok");
  EXPECT_EQ(std::memcmp(both.out.data(), pair.out.data(), both.out.size() * 4), 0);
  EXPECT_EQ(std::memcmp(both.lse.data(), pair.lse.data(), both.lse.size() * 4), 0);
}

TYPED_TEST(Merge, RowsAndThreadsDoNotMatter) {
  SmallMerge<TestFixture::kBase> all(7, 4, 2, 9);
  all.random(5);
  all.call.options.num_threads = 1;
  all.run();
  for (int threads : {2, 3, 7}) {
    SmallMerge<TestFixture::kBase> again(7, 4, 2, 9);
    again.random(5);
    again.call.options.num_threads = threads;
    again.run();
    EXPECT_EQ(std::memcmp(all.out.data(), again.out.data(), all.out.size() * 4), 0);
    EXPECT_EQ(std::memcmp(all.lse.data(), again.lse.data(), all.lse.size() * 4), 0);
  }
  for (int64_t row = 0; row < 7; ++row) {
    SmallMerge<TestFixture::kBase> one(1, 4, 2, 9);
    std::copy_n(all.v.begin() + row * 72, 72, one.v.begin());
    std::copy_n(all.s.begin() + row * 8, 8, one.s.begin());
    one.run();
    EXPECT_EQ(std::memcmp(all.out.data() + row * 18, one.out.data(), 18 * 4), 0);
  }
}

TYPED_TEST(Merge, HalfTypesRoundOnce) {
  for (const DType t : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> v = {0, 0, 0}, out = {0xffff};
    std::vector<float> s = {0, 0, 0};
    for (int64_t i = 0; i < 3; ++i)
      store_float(reinterpret_cast<std::byte*>(v.data()), t, i, static_cast<float>(i + 1));
    store_float(reinterpret_cast<std::byte*>(v.data()), t, 0,
                2.f);  // the mean 7/3 is not representable
    MergeStates<TestFixture::kBase> call;
    call.v = ConstTensorView(v.data(), t, {1, 3, 1, 1});
    call.s = ConstTensorView(s.data(), DType::kF32, {1, 3, 1});
    call.out = TensorView(out.data(), t, {1, 1, 1});
    ASSERT_EQ(merge_states(call).to_string(), "ok");
    EXPECT_EQ(out[0], encode_float(7.f / 3.f, format_of(t)));
  }
}

TYPED_TEST(Merge, TheFootprintLeavesOutValuesWithoutMass) {
  SmallMerge<TestFixture::kBase> m(2, 2, 1, 3);
  m.s = {-kInf, 1.f, 2.f, kInf};
  const Footprint spans = merge_states_footprint(StateViews<TestFixture::kBase>::of(m.call));
  std::set<const float*> reads, writes;
  for (const AccessSpan& span : spans) {
    const float* first = static_cast<const float*>(span.buffer) + span.first;
    for (int64_t i = 0; i < span.count; ++i)
      (span.access == Access::kWrite ? writes : reads).insert(first + i);
  }
  std::set<const float*> expected_reads, expected_writes;
  for (const float& x : m.s) expected_reads.insert(&x);
  for (size_t i = 3; i < 9; ++i) expected_reads.insert(&m.v[i]);
  for (const float& x : m.out) expected_writes.insert(&x);
  for (const float& x : m.lse) expected_writes.insert(&x);
  EXPECT_EQ(reads, expected_reads);
  EXPECT_EQ(writes, expected_writes);
}

/// Larger than any cache: its rows lie on cache lines, or beside them.
TYPED_TEST(Merge, ALargeResultHasTheBitsOfItsRowsAlone) {
  constexpr int64_t kRows = 1100, kHeads = 64, kDim = 128, kElements = kRows * kHeads * kDim;
  for (const int64_t offset : {0, 4}) {
    SmallMerge<TestFixture::kBase> large(kRows, 2, kHeads, kDim);
    large.random(9);
    std::vector<float> memory(static_cast<size_t>(kElements + 32));
    const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % 64;
    float* line = memory.data() + (64 - past) % 64 / sizeof(float);
    large.call.out = TensorView(line + offset, DType::kF32, {kRows, kHeads, kDim});
    large.run();
    for (const int64_t row : {int64_t{0}, kRows / 2, kRows - 1}) {
      SmallMerge<TestFixture::kBase> one(1, 2, kHeads, kDim);
      one.v.assign(large.v.begin() + row * 2 * kHeads * kDim,
                   large.v.begin() + (row + 1) * 2 * kHeads * kDim);
      one.s.assign(large.s.begin() + row * 2 * kHeads, large.s.begin() + (row + 1) * 2 * kHeads);
      one.run();
      EXPECT_EQ(std::memcmp(one.out.data(), large.call.out.at(row, 0), one.out.size() * 4), 0);
    }
  }
}

}  // namespace
}  // namespace shadowgraph::merge_states_test
