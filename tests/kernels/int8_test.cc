// An i8 cache: every token and head has a scale of its own, and nobody else's. Exact data on every
// instruction set and layout; NaN as the scale of what a row does not see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>

#include "attn/mask.h"
#include "check/bounds/compare.h"
#include "core/choices.h"
#include "kernels/small_attention.h"

namespace shadowgraph::int8_test {
namespace {

enum class Layout : uint8_t { kNhd, kHnd, kPanels };

struct Form {
  CaseKernel kernel;
  Layout layout;
  DType q_dtype;
  Arith arith;
};
constexpr Form kForms[] = {
    {CaseKernel::kDecodePaged, Layout::kNhd, DType::kF32, Arith::kPortable},
    {CaseKernel::kDecodePaged, Layout::kHnd, DType::kF16, Arith::kPortable},
    {CaseKernel::kDecodePaged, Layout::kPanels, DType::kBF16, Arith::kFast},
    {CaseKernel::kPrefillPaged, Layout::kNhd, DType::kBF16, Arith::kFast},
    {CaseKernel::kPrefillPaged, Layout::kHnd, DType::kF32, Arith::kPortable},
    {CaseKernel::kPrefillPaged, Layout::kPanels, DType::kF32, Arith::kPortable},
};

using Requests = std::vector<std::pair<int32_t, int32_t>>;

class Int8 : public ::testing::TestWithParam<std::tuple<Form, std::string>> {
 protected:
  Form form() const { return std::get<0>(GetParam()); }
  std::unique_ptr<SmallAttention> make(Requests requests, int32_t dim_qk = 21,
                                       int32_t dim_vo = 37) const {
    auto c = std::make_unique<SmallAttention>(
        form().kernel, std::get<1>(GetParam()),
        SmallShape{.requests = std::move(requests),
                   .qo_heads = 6,
                   .kv_heads = 2,
                   .dim_qk = dim_qk,
                   .dim_vo = dim_vo,
                   .q_dtype = form().q_dtype,
                   .kv_dtype = DType::kI8,
                   .page_size = form().layout == Layout::kPanels ? 32 : 5,
                   .hnd = form().layout == Layout::kHnd,
                   .panels = form().layout == Layout::kPanels});
    c->options.arith = form().arith;
    return c;
  }
  static bool seen(const SmallAttention& c, size_t r, int64_t row, int64_t key) {
    return attends(MaskShape::of(c.params, c.q_len(r), c.kv_len(r)), row, key);
  }
  /// The mean of the codes of keys that `sees` shows to the row, bit for bit.
  template <class Sees>
  static void expect_mean(const SmallAttention& c, size_t r, int64_t row, const Sees& sees) {
    int64_t n = 0;
    for (int64_t k = 0; k < c.kv_len(r); ++k) n += sees(k) ? 1 : 0;
    for (int64_t head = 0; head < 6; ++head) {
      for (int64_t d = 0; d < c.shape.dim_vo; ++d) {
        float sum = 0;
        for (int64_t k = 0; k < c.kv_len(r); ++k)
          if (sees(k)) sum += SmallAttention::code(static_cast<int64_t>(r), k, head / 3, d);
        ASSERT_EQ(c.out(r, row, head, d), n == 0 ? 0 : sum / static_cast<float>(n))
            << "request " << r << " row " << row << " head " << head << " dim " << d;
      }
    }
  }
};

TEST_P(Int8, UniformIsTheMeanOfValuesTimesTheirScales) {
  for (const bool masked : {false, true}) {
    auto c = make({{3, 40}, {20, 700}, {1, 5}, {2, 0}});
    c->params.causal = masked;
    if (masked) c->params.window_left = 18;
    c->fill_uniform();
    ASSERT_EQ(c->run().to_string(), "ok");
    for (size_t r = 0; r < 4; ++r) {
      for (int64_t row = 0; row < c->q_len(r); ++row)
        expect_mean(*c, r, row, [&](int64_t k) { return seen(*c, r, row, k); });
    }
  }
}

/// Codes are all alike: only the scales tell which key of which head has all the weight.
TEST_P(Int8, AKeysScaleIsInItsLogit) {
  for (const float k_scale : {1.f, 0.5f}) {
    auto c = make({{1, 100}, {2, 30}}, 16, 80);
    c->fill_uniform();
    c->fill_q([](int64_t, int64_t, int64_t, int64_t d) { return d == 3 ? 8.f : 0.f; });
    c->fill_k([](int64_t, int64_t, int64_t, int64_t d) { return d == 3 ? 60.f : 1.f; });
    c->paged.cache.k_scale = k_scale;
    const auto hot = [](int64_t r, int64_t h) { return 7 + 13 * h + 4 * r; };
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t t = 0; t < c->kv_len(static_cast<size_t>(r)); ++t)
          c->scale(true, r, t, h) = t == hot(r, h) ? 4.f : -0.5f;
      }
    }
    ASSERT_EQ(c->run().to_string(), "ok");
    for (size_t r = 0; r < 2; ++r) {
      for (int64_t row = 0; row < c->q_len(r); ++row) {
        for (int64_t head = 0; head < 6; ++head) {
          const auto key = hot(static_cast<int64_t>(r), head / 3);
          for (int64_t d = 0; d < 80; ++d)
            ASSERT_EQ(c->out(r, row, head, d),
                      SmallAttention::code(static_cast<int64_t>(r), key, head / 3, d));
        }
      }
    }
  }
}

enum class Hidden { kWindow, kCausal, kBoolMask, kPackedMask };

/// Rows that see a token whose scale is NaN are NaN, every other row keeps its bits: a weight of 0
/// times NaN is never added.
TEST_P(Int8, NaNScalesReachExactlyTheRowsThatSeeTheToken) {
  const int32_t q_len = form().kernel == CaseKernel::kDecodePaged ? 1 : 24;
  for (const Hidden by :
       {Hidden::kWindow, Hidden::kCausal, Hidden::kBoolMask, Hidden::kPackedMask}) {
    for (const int64_t token : {0, 14, 47, 66, 79, 80, 88, 99}) {
      for (const bool key : {false, true}) {
        auto c = make({{q_len, 100}, {q_len, 60}});
        c->params.causal = by == Hidden::kCausal || by == Hidden::kWindow;
        if (by == Hidden::kWindow) c->params.window_left = 13;
        const auto shown = [&](int64_t q, int64_t k) { return (3 * q + k) % 5 != 4; };
        const bool masked = by == Hidden::kBoolMask || by == Hidden::kPackedMask;
        if (masked)
          c->set_mask(by == Hidden::kBoolMask ? CustomMask::Kind::kBool : CustomMask::Kind::kPacked,
                      [&](int64_t, int64_t q, int64_t k) { return shown(q, k); });
        c->fill_uniform();
        for (int64_t h = 0; h < 2; ++h)
          c->scale(key, 0, token, h) = std::numeric_limits<float>::quiet_NaN();
        ASSERT_EQ(c->run().to_string(), "ok");
        for (size_t r = 0; r < 2; ++r) {
          for (int64_t row = 0; row < q_len; ++row) {
            const auto sees = [&](int64_t k) {
              return seen(*c, r, row, k) && (!masked || shown(row, k));
            };
            if (r != 0 || !sees(token)) {
              expect_mean(*c, r, row, sees);
              continue;
            }
            for (int64_t d = 0; d < 37; ++d)
              ASSERT_TRUE(std::isnan(c->out(r, row, 5, d))) << "row " << row << " token " << token;
          }
        }
      }
    }
  }
}

TEST_P(Int8, RandomCodesAndScalesAreWithinTheBound) {
  for (const float cap : {0.f, 3.f}) {
    auto c = make({{2, 70}, {9, 600}}, 40, 72);
    Rng rng(3);
    c->params.sm_scale = 0.07f;
    c->params.logits_soft_cap = cap;
    c->paged.cache.k_scale = 1.7f, c->paged.cache.v_scale = 0.3f;
    c->fill_q([&](auto...) { return 2 * rng.signed_unit(); });
    c->fill_k([&](auto...) { return 120 * rng.signed_unit(); });
    c->fill_v([&](auto...) { return 120 * rng.signed_unit(); });
    for (std::vector<float>* scales : {&c->k_scales, &c->v_scales}) {
      for (float& s : *scales) s = std::isnan(s) ? s : rng.signed_unit() / 64;
    }
    ASSERT_EQ(c->run().to_string(), "ok");
    Result result;
    result.out = c->paged.out;
    result.lse = c->paged.lse.tensor;
    const bool fast = form().arith == Arith::kFast;
    const Arithmetic& arithmetic = *find_arithmetic(fast ? "ours_fast" : "ours_portable");
    const Judgement j = judge(c->paged, result, arithmetic, {.bounded = true});
    EXPECT_EQ(j.findings.to_string(), "ok");
    EXPECT_EQ(j.rows, form().kernel == CaseKernel::kDecodePaged ? 12 : 66);
    // Not so if a scale that was used is another one.
    for (const bool key : {true, false}) {
      float& scale = c->scale(key, 1, 599, 1);
      const float was = scale;
      scale = 2;
      EXPECT_FALSE(judge(c->paged, result, arithmetic, {.bounded = true}).findings.ok()) << key;
      scale = was;
    }
  }
}

TEST_P(Int8, KeysAndValuesNeedNotBothBeInt8) {
  for (const bool int8_keys : {true, false}) {
    auto c = make({{3, 40}, {1, 5}});
    SmallShape other = c->shape;
    other.kv_dtype = DType::kBF16;
    SmallAttention wide(form().kernel, std::get<1>(GetParam()), other);
    c->fill_uniform();
    wide.fill_uniform();
    (int8_keys ? c->paged.cache.v : c->paged.cache.k) =
        int8_keys ? wide.paged.cache.v : wide.paged.cache.k;
    ASSERT_EQ(c->run().to_string(), "ok");
    for (size_t r = 0; r < 2; ++r) {
      for (int64_t row = 0; row < c->q_len(r); ++row)
        expect_mean(*c, r, row, [](int64_t) { return true; });
    }
  }
}

/// A latent is not offered in panels.
class Int8Latent : public Int8 {};

TEST_P(Int8Latent, SharesItsScales) {
  SmallAttention c(
      form().kernel, std::get<1>(GetParam()),
      SmallShape{
          .requests = {{2, 9}}, .qo_heads = 4, .dim_qk = 7, .dim_vo = 5, .kv_dtype = DType::kI8});
  c.fill_uniform();
  c.fill_k(SmallAttention::code);
  const KvCache& cache = c.paged.cache;
  const TensorView scales(c.k_scales.data(), DType::kF32, {cache.num_pages, cache.page_size, 1});
  c.paged.cache =
      KvCache::mla_latent(
          TensorView(c.k_memory.data(), DType::kI8, {cache.num_pages, cache.page_size, 7}), 5)
          .with_scales(scales, scales);
  ASSERT_EQ(c.run().to_string(), "ok");
  for (int64_t head = 0; head < 4; ++head) {
    for (int64_t d = 0; d < 5; ++d) {
      float sum = 0;
      for (int64_t k = 0; k < 9; ++k) sum += SmallAttention::code(0, k, 0, d);
      EXPECT_EQ(c.out(0, 0, head, d), sum / 9);
    }
  }
}

std::vector<Form> strided_forms() {
  std::vector<Form> forms;
  std::ranges::copy_if(kForms, std::back_inserter(forms),
                       [](const Form& f) { return f.layout != Layout::kPanels; });
  return forms;
}
std::vector<std::string> isas() { return {available_isas().begin(), available_isas().end()}; }

std::string name_of_param(const ::testing::TestParamInfo<std::tuple<Form, std::string>>& info) {
  constexpr const char* kKernels[] = {"decode", "prefill"};
  constexpr const char* kLayouts[] = {"nhd", "hnd", "panels"};
  const Form& f = std::get<0>(info.param);
  return std::string(kKernels[static_cast<size_t>(f.kernel)]) + "_" +
         kLayouts[static_cast<size_t>(f.layout)] + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Forms, Int8,
                         ::testing::Combine(::testing::ValuesIn(kForms),
                                            ::testing::ValuesIn(isas())),
                         name_of_param);
INSTANTIATE_TEST_SUITE_P(Forms, Int8Latent,
                         ::testing::Combine(::testing::ValuesIn(strided_forms()),
                                            ::testing::ValuesIn(isas())),
                         name_of_param);

}  // namespace
}  // namespace shadowgraph::int8_test
