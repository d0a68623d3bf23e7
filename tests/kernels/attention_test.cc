// Every feature of the three attention kernels on every instruction set: cases worked out by hand
// (exact data, no tolerance), and small random ones within the derived bound.
#include "shadowgraph/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check/bounds/compare.h"
#include "core/choices.h"
#include "kernels/small_attention.h"

namespace shadowgraph::attention_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using Keys = std::vector<int64_t>;
Keys range(int64_t begin, int64_t end) {
  Keys keys;
  for (int64_t k = begin; k < end; ++k) keys.push_back(k);
  return keys;
}

class Attention : public ::testing::TestWithParam<std::tuple<CaseKernel, std::string>> {
 protected:
  CaseKernel kernel() const { return std::get<0>(GetParam()); }
  bool decode() const { return kernel() == CaseKernel::kDecodePaged; }
  std::unique_ptr<SmallAttention> make(const SmallShape& shape) const {
    return std::make_unique<SmallAttention>(kernel(), std::get<1>(GetParam()), shape);
  }

  /// Uniform data: out is the mean of the keys' codes (over `denominator`, where a sink counts
  /// too).
  static void expect_mean(const SmallAttention& c, size_t request, int64_t row, int64_t head,
                          const Keys& keys, size_t denominator, float v_scale = 1) {
    const int64_t kv_head = head / (c.shape.qo_heads / c.shape.kv_heads);
    for (int64_t d = 0; d < c.shape.dim_vo; ++d) {
      float sum = 0;
      for (int64_t k : keys)
        sum += SmallAttention::code(static_cast<int64_t>(request), k, kv_head, d);
      const float mean = keys.empty() ? 0 : sum / static_cast<float>(denominator) * v_scale;
      std::byte rounded[4];
      store_float(rounded, c.shape.out_dtype, 0, mean);
      ASSERT_EQ(c.out(request, row, head, d), load_float(rounded, c.shape.out_dtype, 0))
          << "request " << request << " row " << row << " head " << head << " dim " << d;
    }
  }
  static void expect_mean(const SmallAttention& c, size_t request, int64_t row, const Keys& keys) {
    const float lse =
        keys.empty() ? -kInf : static_cast<float>(std::log(static_cast<double>(keys.size())));
    for (int64_t head = 0; head < c.shape.qo_heads; ++head) {
      expect_mean(c, request, row, head, keys, keys.size());
      ASSERT_EQ(c.lse(request, row, head), lse)
          << "request " << request << " row " << row << " head " << head;
    }
  }
  /// The position of the row's own key: bottom-right alignment.
  static int64_t position(const SmallAttention& c, size_t request, int64_t row) {
    return c.kv_len(request) - c.q_len(request) + row;
  }
  /// Uniform data and a mask that shows [begin(position), end(position)) of the keys.
  template <class Begin, class End>
  static void expect_ranges(SmallAttention& c, const Begin& begin, const End& end) {
    c.fill_uniform();
    ASSERT_EQ(c.run().to_string(), "ok");
    for (size_t r = 0; r < c.shape.requests.size(); ++r) {
      for (int64_t row = 0; row < c.q_len(r); ++row) {
        const int64_t at = position(c, r, row), n = c.kv_len(r);
        expect_mean(c, r, row,
                    range(std::max<int64_t>(0, begin(at, n)), std::min<int64_t>(n, end(at, n))));
      }
    }
  }
  static void fill_random(SmallAttention& c, float q_factor) {
    Rng rng(7);
    c.fill_q([&](auto...) { return q_factor * rng.signed_unit(); });
    c.fill_k([&](auto...) { return rng.signed_unit(); });
    c.fill_v([&](auto...) { return rng.signed_unit(); });
  }
  /// Runs it, and holds it against the float64 oracle with the bound derived for our arithmetic.
  static void expect_bound(SmallAttention& c) {
    ASSERT_EQ(c.run().to_string(), "ok");
    Result result;
    result.out = c.paged.out;
    result.lse = c.paged.lse.tensor;
    result.lse_sink = c.options.lse_sink;
    const Arithmetic& ours = *find_arithmetic("ours_portable");
    const Judgement j = c.ragged_kv() ? judge(c.ragged, result, ours, JudgeOptions())
                                      : judge(c.paged, result, ours, JudgeOptions());
    EXPECT_EQ(j.findings.to_string(), "ok");
    EXPECT_EQ(j.unbounded_rows, 0);
    EXPECT_GT(j.rows, j.empty_rows);
  }
};

TEST_P(Attention, SingleKeyIsItsValue) {
  auto c = make({.requests = {{1, 1}, {1, 1}}, .qo_heads = 2, .dim_qk = 20, .dim_vo = 3});
  c->fill_q([](int64_t, int64_t, int64_t, int64_t d) { return d < 2 ? 1.f : 0.f; });
  c->fill_k([](int64_t, int64_t, int64_t, int64_t d) { return d == 0 ? 8.f : -8.f; });
  c->fill_v(SmallAttention::code);
  ASSERT_EQ(c->run().to_string(), "ok");
  for (size_t r = 0; r < 2; ++r) expect_mean(*c, r, 0, {0});
}

TEST_P(Attention, UniformIsTheMeanOverEveryKey) {
  for (int32_t len : {1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1025}) {
    auto c = make({.requests = {{2, len}}, .page_size = 16});
    expect_ranges(
        *c, [](int64_t, int64_t) { return 0; }, [](int64_t, int64_t n) { return n; });
  }
}

TEST_P(Attention, EveryRequestHasItsOwnLength) {
  auto c = make({.requests = {{2, 5}, {1, 0}, {3, 33}, {0, 4}, {1, 1}, {4, 2}},
                 .qo_heads = 2,
                 .kv_heads = 2});
  expect_ranges(
      *c, [](int64_t, int64_t) { return 0; }, [](int64_t, int64_t n) { return n; });
}

TEST_P(Attention, NoRequestsIsNoWork) {
  EXPECT_EQ(make({.requests = {}})->run().to_string(), "ok");
}

TEST_P(Attention, EveryQueryOfALongRequestIsComputed) {
  for (int32_t q_len : {63, 64, 65, 129}) {
    auto c = make({.requests = {{q_len, 140}}});
    c->params.causal = true;
    expect_ranges(
        *c, [](int64_t, int64_t) { return 0; }, [](int64_t at, int64_t) { return at + 1; });
  }
}

TEST_P(Attention, SelectorReadsTheKeyItPointsToAtPageEdges) {
  for (int32_t page_size : {1, 2, 3, 16, 256}) {
    const int32_t len = 2 * page_size + 1;
    for (int64_t pick : {0, page_size - 1, page_size, 2 * page_size - 1, 2 * page_size}) {
      for (const bool other : {false, true}) {
        auto c = make(
            {.requests = {{1, 3}, {1, len}}, .page_size = page_size, .hnd = other, .csr = other});
        c->fill_q([](auto...) { return 16.f; });
        c->fill_k([&](int64_t r, int64_t t, int64_t, int64_t) {
          return t == (r ? pick : 2) ? 16.f : 0.f;
        });
        c->fill_v(SmallAttention::code);
        ASSERT_EQ(c->run().to_string(), "ok");
        expect_mean(*c, 0, 0, 0, {2}, 1);
        expect_mean(*c, 1, 0, 0, {pick}, 1);
      }
    }
  }
}

TEST_P(Attention, CausalIsBottomRight) {
  auto c = make({.requests = {{3, 5}, {5, 3}, {20, 70}, {1, 4}}});
  c->params.causal = true;
  expect_ranges(
      *c, [](int64_t, int64_t) { return 0; }, [](int64_t at, int64_t) { return at + 1; });
}

TEST_P(Attention, WindowZeroSeesOnlySelf) {
  auto c = make({.requests = {{3, 5}, {4, 4}}});
  c->params.window_left = c->params.window_right = 0;
  expect_ranges(
      *c, [](int64_t at, int64_t) { return at; }, [](int64_t at, int64_t) { return at + 1; });
}

TEST_P(Attention, WindowLeftCountsKeysBeforeTheQuery) {
  for (int32_t window : {0, 1, 2, 15, 16, 17, 63, 64, 600}) {
    auto c = make({.requests = {{3, 5}, {30, 100}, {6, 2}, {2, 1100}}, .page_size = 3});
    c->params.causal = true;
    c->params.window_left = window;
    expect_ranges(
        *c, [&](int64_t at, int64_t) { return at - window; },
        [](int64_t at, int64_t) { return at + 1; });
  }
}

TEST_P(Attention, WindowRightCountsKeysAfterTheQuery) {
  auto c = make({.requests = {{9, 5}, {40, 100}}});
  c->params.window_left = 3;
  c->params.window_right = 2;
  expect_ranges(
      *c, [](int64_t at, int64_t) { return at - 3; }, [](int64_t at, int64_t) { return at + 3; });
}

TEST_P(Attention, ARowThatSeesNoKeyIsZeroAndMinusInfinity) {
  auto c = make({.requests = {{2, 0}, {1, 3}}, .dim_vo = 19});
  c->fill_uniform();
  ASSERT_EQ(c->run().to_string(), "ok");
  for (int64_t row = 0; row < c->q_len(0); ++row) {
    for (int64_t d = 0; d < 19; ++d) EXPECT_EQ(c->out(0, row, 0, d), 0);
    EXPECT_EQ(c->lse(0, row, 0), -kInf);
  }
  EXPECT_EQ(c->lse(1, 0, 0), std::log(3.f));
}

TEST_P(Attention, QueryHeadsShareKvHeadsInRuns) {
  for (auto [qo, kv] : {std::pair{6, 2}, {4, 1}, {3, 3}, {8, 4}}) {
    auto c = make({.requests = {{2, 7}}, .qo_heads = qo, .kv_heads = kv, .dim_vo = 12});
    expect_ranges(
        *c, [](int64_t, int64_t) { return 0; }, [](int64_t, int64_t n) { return n; });
  }
}

TEST_P(Attention, HeadDimsMayDifferAndNeedNotBePanels) {
  for (auto [dk, dv] : {std::pair{24, 40}, {5, 72}, {1, 1}, {17, 64}, {64, 80}, {130, 3}}) {
    auto c =
        make({.requests = {{2, 37}}, .qo_heads = 2, .kv_heads = 2, .dim_qk = dk, .dim_vo = dv});
    expect_ranges(
        *c, [](int64_t, int64_t) { return 0; }, [](int64_t, int64_t n) { return n; });
    fill_random(*c, 1);
    expect_bound(*c);
  }
}

TEST_P(Attention, ASinkIsOneMoreWeightWithoutAValue) {
  for (const LseSink lse_sink : {LseSink::kExcluded, LseSink::kIncluded}) {
    auto c = make({.requests = {{2, 7}, {1, 0}}, .qo_heads = 4, .kv_heads = 2});
    c->set_sinks({0.f, -kInf, 0.f, 0.f});
    c->options.lse_sink = lse_sink;
    c->fill_uniform();
    ASSERT_EQ(c->run().to_string(), "ok");
    for (int64_t head = 0; head < 4; ++head) {
      const size_t mass = head == 1 ? 7 : 8;
      expect_mean(*c, 0, 0, head, range(0, 7), mass);
      const bool counted = lse_sink == LseSink::kIncluded;
      EXPECT_EQ(c->lse(0, 0, head),
                static_cast<float>(std::log(counted ? static_cast<double>(mass) : 7.0)));
      // An empty row has the sink's mass only.
      EXPECT_EQ(c->out(1, 0, head, 0), 0);
      EXPECT_EQ(c->lse(1, 0, head), counted && head != 1 ? 0 : -kInf);
    }
  }
}

TEST_P(Attention, SinksOfAnySizeAreWithinTheBound) {
  for (const LseSink lse_sink : {LseSink::kExcluded, LseSink::kIncluded}) {
    auto c = make({.requests = {{3, 40}}, .qo_heads = 3, .dim_qk = 16});
    c->set_sinks({3.25f, -2.f, 40.f});
    c->options.lse_sink = lse_sink;
    fill_random(*c, 1);
    expect_bound(*c);
  }
}

TEST_P(Attention, SoftCapBendsTheScaledLogit) {
  auto c = make({.requests = {{1, 1}}, .dim_qk = 1});
  c->params.sm_scale = 4;
  c->params.logits_soft_cap = 2;
  c->fill_q([](auto...) { return 1000.f; });
  c->fill_k([](auto...) { return 1.f; });
  c->fill_v(SmallAttention::code);
  ASSERT_EQ(c->run().to_string(), "ok");
  // 2 tanh(2000) = 2: rounded as a base-2 logit and as the result.
  EXPECT_LE(std::abs(c->lse(0, 0, 0) - 2.0), 2 * 2 * 0x1p-24);
}

TEST_P(Attention, SoftCapComesBeforeTheMask) {
  auto c = make({.requests = {{4, 9}, {1, 70}}});
  c->params.causal = true;
  c->params.window_left = 3;
  c->params.logits_soft_cap = 1;
  expect_ranges(
      *c, [](int64_t at, int64_t) { return at - 3; }, [](int64_t at, int64_t) { return at + 1; });
  fill_random(*c, 16);
  expect_bound(*c);
}

TEST_P(Attention, RandomDataIsWithinTheBound) {
  for (const float scale : {1.f, 0.125f}) {
    for (const float factor : {1.f, 30.f}) {
      auto c = make({.requests = {{3, 7}, {2, 300}, {1, 1100}},
                     .qo_heads = 4,
                     .kv_heads = 2,
                     .dim_qk = 20,
                     .dim_vo = 20});
      c->params.sm_scale = scale;
      c->params.causal = true;
      fill_random(*c, factor);
      expect_bound(*c);
    }
  }
}

TEST_P(Attention, RisingAndFallingLogitsAreRescaledRightly) {
  for (const float slope : {0.03125f, -0.03125f, 1.f, -1.f}) {
    auto c = make({.requests = {{1, 700}}, .dim_qk = 1, .page_size = 64});
    c->fill_q([](auto...) { return 1.f; });
    c->fill_k([&](int64_t, int64_t t, int64_t, int64_t) { return slope * static_cast<float>(t); });
    c->fill_v(SmallAttention::code);
    expect_bound(*c);
  }
}

TEST_P(Attention, BoolAndPackedMasksAreTheSameMask) {
  const auto sees = [](int64_t r, int64_t q, int64_t k) { return (k * k + 3 * q + r) % 5 < 2; };
  for (const auto kind : {CustomMask::Kind::kBool, CustomMask::Kind::kPacked}) {
    auto c = make({.requests = {{3, 7}, {2, 5}, {0, 3}, {5, 37}, {2, 90}}});
    c->set_mask(kind, sees);
    c->fill_uniform();
    ASSERT_EQ(c->run().to_string(), "ok");
    for (size_t r = 0; r < 5; ++r) {
      for (int64_t row = 0; row < c->q_len(r); ++row) {
        Keys keys;
        for (int64_t k = 0; k < c->kv_len(r); ++k) {
          if (sees(static_cast<int64_t>(r), row, k)) keys.push_back(k);
        }
        expect_mean(*c, r, row, keys);
      }
    }
  }
}

TEST_P(Attention, ACustomMaskIsAndedWithCausalAndWindow) {
  auto c = make({.requests = {{4, 30}}});
  c->params.causal = true;
  c->params.window_left = 9;
  c->set_mask(CustomMask::Kind::kPacked, [](int64_t, int64_t, int64_t k) { return k % 2 == 0; });
  c->fill_uniform();
  ASSERT_EQ(c->run().to_string(), "ok");
  for (int64_t row = 0; row < c->q_len(0); ++row) {
    Keys keys;
    for (int64_t k : range(position(*c, 0, row) - 9, position(*c, 0, row) + 1)) {
      if (k % 2 == 0) keys.push_back(k);
    }
    expect_mean(*c, 0, row, keys);
  }
}

TEST_P(Attention, AMaskThatHidesAllLeavesAnEmptyRow) {
  auto c = make({.requests = {{2, 600}}, .page_size = 64});
  c->set_mask(CustomMask::Kind::kBool, [](int64_t, int64_t, int64_t) { return false; });
  c->fill_uniform();
  ASSERT_EQ(c->run().to_string(), "ok");
  for (int64_t row = 0; row < c->q_len(0); ++row) expect_mean(*c, 0, row, {});
}

TEST_P(Attention, HalfTypesAreReadAndRoundedExactly) {
  for (const DType q : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const DType out : {DType::kF16, DType::kBF16, DType::kF32}) {
      auto c = make({.requests = {{2, 23}},
                     .dim_qk = 21,
                     .dim_vo = 37,
                     .q_dtype = q,
                     .kv_dtype = q,
                     .out_dtype = out});
      expect_ranges(
          *c, [](int64_t, int64_t) { return 0; }, [](int64_t, int64_t n) { return n; });
      fill_random(*c, 1);
      expect_bound(*c);
    }
  }
}

TEST_P(Attention, Fp8KeysAndValuesAreScaled) {
  for (const DType kv : {DType::kE4M3, DType::kE5M2}) {
    auto c = make({.requests = {{2, 23}, {1, 5}}, .dim_qk = 21, .dim_vo = 37, .kv_dtype = kv});
    c->paged.cache.k_scale = c->ragged.k_scale = 0.75f;
    c->paged.cache.v_scale = c->ragged.v_scale = 2.5f;
    fill_random(*c, 2);
    expect_bound(*c);
    c->fill_q([](auto...) { return 0.f; });
    c->fill_v([](int64_t, int64_t t, int64_t, int64_t) { return static_cast<float>(t % 4); });
    ASSERT_EQ(c->run().to_string(), "ok");
    EXPECT_EQ(c->out(1, 0, 0, 0), 6.f / 5.f * 2.5f);
  }
}

TEST_P(Attention, NaNInHiddenKeysIsHarmless) {
  for (const bool by_window : {true, false}) {
    auto c = make({.requests = {{1, 40}, {1, 700}}, .dim_vo = 80, .page_size = 16});
    c->fill_uniform();
    if (by_window) c->params.window_left = 4;
    if (!by_window) {
      c->set_mask(CustomMask::Kind::kBool, [&](int64_t r, int64_t, int64_t k) {
        return k >= c->kv_len(static_cast<size_t>(r)) - 5;
      });
    }
    for (size_t r = 0; r < 2; ++r) {
      for (int64_t k = 0; k < c->kv_len(r) - 5; ++k)
        c->poison_key(static_cast<int64_t>(r), k, true, true);
    }
    ASSERT_EQ(c->run().to_string(), "ok");
    for (size_t r = 0; r < 2; ++r) expect_mean(*c, r, 0, range(c->kv_len(r) - 5, c->kv_len(r)));
  }
}

TEST_P(Attention, NaNInAVisibleKeyIsNotLost) {
  for (auto [len, from, to] : {std::tuple{1, 0, 1},
                               {5, 2, 3},
                               {40, 0, 40},
                               {600, 0, 512},
                               {600, 512, 600},
                               {600, 550, 551}}) {
    auto c = make({.requests = {{1, len}}, .page_size = 16});
    c->fill_uniform();
    c->fill_q([](auto...) { return 1.f; });
    for (int64_t k = from; k < to; ++k) c->poison_key(0, k, true, false);
    ASSERT_EQ(c->run().to_string(), "ok");
    EXPECT_TRUE(std::isnan(c->out(0, 0, 0, 0))) << len << " keys, NaN in " << from << ".." << to;
    EXPECT_TRUE(std::isnan(c->lse(0, 0, 0))) << len << " keys, NaN in " << from << ".." << to;
    c->fill_uniform();
    for (int64_t k = from; k < to; ++k) c->poison_key(0, k, false, true);
    ASSERT_EQ(c->run().to_string(), "ok");
    EXPECT_TRUE(std::isnan(c->out(0, 0, 0, 0)));
    EXPECT_EQ(c->lse(0, 0, 0), static_cast<float>(std::log(static_cast<double>(len))));
  }
}

TEST_P(Attention, TheLseIsOptional) {
  auto c = make({.requests = {{1, 3}}});
  c->fill_uniform();
  c->paged.lse = c->ragged.lse = NaturalLse();
  ASSERT_EQ(c->run().to_string(), "ok");
  expect_mean(*c, 0, 0, 0, {0, 1, 2}, 3);
  for (std::byte b : c->lse_memory) EXPECT_EQ(b, std::byte{0xff});
}

TEST_P(Attention, AnMlaLatentIsKeyAndValueAtOnce) {
  if (kernel() == CaseKernel::kPrefillRagged) GTEST_SKIP() << "a latent cache is paged";
  auto c = make({.requests = {{1, 9}}, .qo_heads = 4, .dim_qk = 7, .dim_vo = 5});
  c->fill_uniform();
  c->fill_k(SmallAttention::code);
  const KvCache& cache = c->paged.cache;
  c->paged.cache = KvCache::mla_latent(
      TensorView(c->k_memory.data(), DType::kF32, {cache.num_pages, cache.page_size, 7}), 5);
  ASSERT_EQ(c->run().to_string(), "ok");
  expect_mean(*c, 0, 0, range(0, 9));
}

std::vector<std::string> isas() { return {available_isas().begin(), available_isas().end()}; }

std::string name_of_param(
    const ::testing::TestParamInfo<std::tuple<CaseKernel, std::string>>& info) {
  constexpr const char* kNames[] = {"decode_paged", "prefill_paged", "prefill_ragged"};
  return std::string(kNames[static_cast<size_t>(std::get<0>(info.param))]) + "_" +
         std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Attention,
                         ::testing::Combine(::testing::Values(CaseKernel::kDecodePaged,
                                                              CaseKernel::kPrefillPaged,
                                                              CaseKernel::kPrefillRagged),
                                            ::testing::ValuesIn(isas())),
                         name_of_param);

}  // namespace
}  // namespace shadowgraph::attention_test
