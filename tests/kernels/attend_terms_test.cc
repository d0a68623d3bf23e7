// Terms of scores, masks and scales (AttentionTerms): what they mean, by calls that say the same
// without them, and by sums that are known. Random calls against the oracle: `shadowgraph fuzz`.
#include "kernels/dense/attend_terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "kernels/small_attention.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph::attend_terms_test {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr CaseKernel kPaged = CaseKernel::kPrefillPaged, kRagged = CaseKernel::kPrefillRagged;

void fill_random(SmallAttention& call) {
  Rng rng(3);
  const auto random = [&](auto...) { return rng.signed_unit(); };
  call.fill_q(random), call.fill_k(random), call.fill_v(random);
}

SmallShape shape_of(std::vector<std::pair<int32_t, int32_t>> requests) {
  return {.requests = std::move(requests), .qo_heads = 4, .kv_heads = 2};
}

void expect_same_bits(SmallAttention& a, SmallAttention& b) {
  const Status of_a = a.run(), of_b = b.run();
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << of_a.to_string() << of_b.to_string();
  EXPECT_EQ(std::memcmp(a.out_memory.data(), b.out_memory.data(), a.out_memory.size()), 0);
  EXPECT_EQ(std::memcmp(a.lse_memory.data(), b.lse_memory.data(), a.lse_memory.size()), 0);
}

/// One row, written down without the engine and its oracle: every key has the same q.k (of f32 and
/// 4 dims), capped, times the temperature, and its own sum of terms.
struct RowByHand {
  std::vector<double> added;  // [keys]
  double q_k = 0, soft_cap = 0, temperature = 1;

  /// Holds an LSE against this row, within the error bound that is derived of it.
  void expect(float lse) const {
    const auto n = static_cast<Eigen::Index>(added.size());
    const RowMatrix values = RowMatrix::Zero(n, 4);
    OracleRow row;
    row.values = &values;
    for (int32_t key = 0; key < n; ++key) row.keys.push_back(key);
    row.terms = 4, row.soft_cap = soft_cap, row.temperature = temperature;
    row.query_max = row.key_max = q_k == 0 ? 2 : 1;
    row.sink = -std::numeric_limits<double>::infinity();
    const double capped = soft_cap > 0 ? soft_cap * std::tanh(q_k / soft_cap) : q_k;
    row.added = Eigen::Map<const Eigen::ArrayXd>(added.data(), n);
    row.logits = temperature * capped + row.added;
    row.added = row.added.abs().eval();
    row.products = row.uncapped = Eigen::ArrayXd::Constant(n, q_k);
    row.magnitudes = temperature * row.products;
    row.key_scales = Eigen::ArrayXd::Ones(n);
    finish(row);
    const ErrorBound bound = error_bound(row, *find_arithmetic("ours_portable"), DType::kF32,
                                         DType::kF32, LseSink::kExcluded);
    EXPECT_LE(std::abs(lse - row.lse), bound.lse);
  }
};

/// Every logit is 0 but for what is added: the LSE tells it.
void expect_lse(const std::function<double(int64_t head, int64_t q, int64_t key)>& added,
                const std::function<void(SmallAttention&)>& set) {
  for (const CaseKernel kernel : {kPaged, kRagged}) {
    SmallAttention call(kernel, "", shape_of({{3, 5}, {2, 9}}));
    call.fill_uniform();
    call.params.causal = true;
    set(call);
    const Status status = call.run();
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t r = 0; r < 2; ++r) {
      for (int64_t q = 0; q < call.q_len(r); ++q) {
        for (int64_t head = 0; head < 4; ++head) {
          SCOPED_TRACE(std::to_string(r) + " " + std::to_string(q) + " " + std::to_string(head));
          RowByHand row;
          const int64_t position = call.kv_len(r) - call.q_len(r) + q;
          for (int64_t key = 0; key <= position; ++key)
            row.added.push_back(added(head, position, key));
          row.expect(call.lse(r, q, head));
        }
      }
    }
  }
}

TEST(AttendTerms, ASlopeMultipliesADistance) {
  const std::vector<float> slopes = {0.5F, 0.25F, 1, 0};
  const auto slope = [&](int64_t head) { return double{slopes[static_cast<size_t>(head)]}; };
  using Alibi = AttentionTerms::Alibi;
  const auto set = [&](Alibi alibi) {
    return [&slopes, alibi](SmallAttention& c) {
      c.params.terms.alibi = alibi, c.params.terms.alibi_slopes = slopes;
    };
  };
  const auto ahead = [](int64_t q, int64_t key) { return static_cast<double>(key - q); };
  expect_lse([&](int64_t h, int64_t q, int64_t key) { return slope(h) * ahead(q, key); },
             set(Alibi::kLinear));
  expect_lse([&](int64_t h, int64_t q, int64_t key) { return -slope(h) * std::abs(ahead(q, key)); },
             set(Alibi::kDistance));
  expect_lse(
      [&](int64_t h, int64_t q, int64_t key) { return -slope(h) * std::sqrt(-ahead(q, key)); },
      set(Alibi::kSqrt));
}

TEST(AttendTerms, LaterKeysDifferByTheKindOfSlope) {
  const std::vector<float> slopes = {1, 1, 1, 1};
  const double expected[] = {1, -1, 0};
  for (const int alibi : {0, 1, 2}) {
    SmallAttention call(kRagged, "", shape_of({{2, 2}}));
    call.fill_uniform();
    call.params.terms.alibi_slopes = slopes;
    call.params.terms.alibi = static_cast<AttentionTerms::Alibi>(alibi);
    ASSERT_TRUE(call.run().ok());
    RowByHand{.added = {0, expected[alibi]}}.expect(call.lse(0, 0, 0));
  }
}

TEST(AttendTerms, FarDistancesCountAsTheFarthest) {
  std::vector<float> table;  // [heads, 5]
  for (int h = 0; h < 4; ++h)
    for (int d = 0; d < 5; ++d)
      table.push_back(static_cast<float>(h) * 0.5F + static_cast<float>(d));
  expect_lse(
      [&](int64_t h, int64_t q, int64_t key) {
        return 0.5 * static_cast<double>(h) +
               static_cast<double>(std::max<int64_t>(key - q, -2) + 2);
      },
      [&](SmallAttention& c) { c.params.terms.relative_bias = table; });
}

TEST(AttendTerms, ABiasOfKeysFollowsTheRequestsKeys) {
  std::vector<float> bias;  // [heads, 14]
  for (int h = 0; h < 4; ++h)
    for (int k = 0; k < 14; ++k) bias.push_back(static_cast<float>(h - k) * 0.25F);
  // Request 1 has 9 keys, behind the 5 of request 0; its queries stand at 7 and 8.
  expect_lse(
      [&](int64_t h, int64_t q, int64_t key) {
        const int64_t first = q >= 7 ? 5 : 0;
        return 0.25 * static_cast<double>(h - first - key);
      },
      [&](SmallAttention& c) { c.params.terms.key_bias = bias; });
}

TEST(AttendTerms, ABiasOfQueriesIsOfNewTokensAlone) {
  const std::vector<float> bias = {1, 2, 3, 4};
  expect_lse(
      [&](int64_t, int64_t q, int64_t key) {
        const int64_t first = q >= 7 ? 7 : 2, i = q - first, j = key - first;
        return i < 2 && j >= 0 && j < 2 ? static_cast<double>(1 + 2 * i + j) : 0;
      },
      [&](SmallAttention& c) { c.params.terms.qq_bias = bias; });
}

TEST(AttendTerms, ATemperatureMultipliesCappedLogitsOfLateQueries) {
  SmallAttention call(kPaged, "", shape_of({{3, 9}}));
  call.fill_q([](auto...) { return 1.F; }), call.fill_k([](auto...) { return 1.F; });
  call.fill_v([](auto...) { return 1.F; });
  call.params.logits_soft_cap = 2, call.params.terms.temperature_len = 7;
  ASSERT_TRUE(call.run().ok());
  for (int64_t q = 0; q < 3; ++q) {
    const int64_t position = 6 + q;
    const double late = std::log(static_cast<double>(position)) / std::log(7.0);
    const RowByHand row{.added = std::vector<double>(9, 0),
                        .q_k = 4,
                        .soft_cap = 2,
                        .temperature = position > 7 ? late : 1};
    row.expect(call.lse(0, q, 0));
  }
}

TEST(AttendTerms, AnInfiniteBiasIsAMask) {
  SmallAttention biased(kPaged, "", shape_of({{2, 5}})), masked(kPaged, "", shape_of({{2, 5}}));
  const std::vector<float> zero(20, 0);
  std::vector<float> bias = zero;
  for (const size_t hidden : {1U, 3U})
    for (size_t h = 0; h < 4; ++h) bias[h * 5 + hidden] = kHidden;
  for (SmallAttention* c : {&biased, &masked}) {
    fill_random(*c);
    c->poison_key(0, 1, true, true), c->poison_key(0, 3, true, true);
  }
  biased.params.terms.key_bias = bias;
  masked.set_mask(CustomMask::Kind::kBool, [](int64_t, int64_t, int64_t k) { return k % 2 == 0; });
  masked.params.terms.key_bias = zero;  // the same body
  expect_same_bits(biased, masked);
}

TEST(AttendTerms, TheLowestFloatHidesAKeyAndWeighsAllOfARowAlike) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  SmallAttention call(kPaged, "", shape_of({{2, 4}}));
  call.fill_uniform();
  std::vector<float> bias(16, 0);
  bias[0] = bias[1] = kLowest;                       // of head 0, two keys
  for (size_t k = 4; k < 8; ++k) bias[k] = kLowest;  // of head 1, all
  call.params.terms.key_bias = bias;
  ASSERT_TRUE(call.run().ok());
  for (int64_t d = 0; d < 4; ++d) {
    const auto code = [&](int64_t t) { return SmallAttention::code(0, t, 0, d); };
    EXPECT_EQ(call.out(0, 0, 0, d), (code(2) + code(3)) / 2);
    EXPECT_EQ(call.out(0, 0, 1, d), (code(0) + code(1) + code(2) + code(3)) / 4);
  }
  EXPECT_TRUE(std::isfinite(call.lse(0, 0, 1)));
}

TEST(AttendTerms, HeadsHaveMasksOfTheirOwn) {
  for (const auto kind : {CustomMask::Kind::kBool, CustomMask::Kind::kPacked}) {
    const auto sees = [](int64_t head, int64_t q, int64_t k) { return (head + q + k) % 3 != 0; };
    SmallAttention all(kPaged, "", shape_of({{3, 5}}));
    all.fill_uniform();
    std::vector<uint8_t> mask;
    int64_t pair = 0;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t q = 0; q < 3; ++q) {
        for (int64_t k = 0; k < 5; ++k, ++pair) {
          const bool packed = kind == CustomMask::Kind::kPacked;
          if (!packed || pair % 8 == 0) mask.push_back(0);
          if (sees(h, q, k)) mask.back() |= static_cast<uint8_t>(1U << (packed ? pair % 8 : 0));
        }
      }
    }
    const std::vector<int64_t> indptr = {0, std::ssize(mask)};
    all.params.custom_mask = {kind, mask, indptr, 4};
    ASSERT_TRUE(all.run().ok());
    for (int64_t h = 0; h < 4; ++h) {
      SmallAttention one(kPaged, "", shape_of({{3, 5}}));
      one.fill_uniform();
      one.set_mask(kind, [&](int64_t, int64_t q, int64_t k) { return sees(h, q, k); });
      ASSERT_TRUE(one.run().ok());
      for (int64_t q = 0; q < 3; ++q)
        for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(all.out(0, q, h, d), one.out(0, q, h, d));
    }
  }
}

// Terms of masks are ranges: the usual bodies run, so the bits are those of a custom mask.

void expect_as_mask(const std::function<void(AttentionTerms&)>& set,
                    const SmallAttention::Sees& sees) {
  for (const CaseKernel kernel : {kPaged, kRagged}) {
    SmallAttention terms(kernel, "", shape_of({{5, 7}, {3, 11}}));
    SmallAttention masked(kernel, "", shape_of({{5, 7}, {3, 11}}));
    fill_random(terms), fill_random(masked);
    terms.params.causal = true;
    set(terms.params.terms);
    masked.set_mask(CustomMask::Kind::kBool, sees);
    expect_same_bits(terms, masked);
  }
}
int64_t position_of(int64_t request, int64_t q) { return request == 0 ? 2 + q : 8 + q; }

TEST(AttendTerms, EachRequestIsCausalOrNot) {
  const std::vector<uint8_t> causal = {0, 1};
  expect_as_mask([&](AttentionTerms& t) { t.request_causal = causal; },
                 [](int64_t r, int64_t q, int64_t k) { return r == 0 || k <= position_of(r, q); });
}

TEST(AttendTerms, PaddingAtTheLeftIsNotSeen) {
  const std::vector<int32_t> padding = {3, 1};
  expect_as_mask([&](AttentionTerms& t) { t.cache_leftpad = padding; },
                 [](int64_t r, int64_t q, int64_t k) {
                   return k <= position_of(r, q) && k >= (r == 0 ? 3 : 1);
                 });
}

TEST(AttendTerms, ChunksBeginAtMultiples) {
  expect_as_mask([&](AttentionTerms& t) { t.attention_chunk = 4, t.chunk_lookback = 1; },
                 [](int64_t r, int64_t q, int64_t k) {
                   const int64_t p = position_of(r, q);
                   return k <= p && k / 4 >= p / 4 - 1;
                 });
}

TEST(AttendTerms, TokensOfARangeSeeEachOther) {
  const std::vector<int32_t> ranges = {2, 4, 8, 9}, indptr = {0, 1, 2};
  expect_as_mask(
      [&](AttentionTerms& t) { t.bidirectional_ranges = ranges, t.bidirectional_indptr = indptr; },
      [](int64_t r, int64_t q, int64_t k) {
        const int64_t p = position_of(r, q), first = r == 0 ? 2 : 8, last = r == 0 ? 4 : 9;
        return k <= p || (p >= first && p <= last && k >= first && k <= last);
      });
}

TEST(AttendTerms, ScalesOfHeadsAreScalesOfTheirData) {
  const std::vector<float> k_scales = {2, 0.5F}, v_scales = {0.25F, 4};
  for (const CaseKernel kernel : {CaseKernel::kDecodePaged, kPaged, kRagged}) {
    SmallAttention scaled(kernel, "", shape_of({{3, 5}, {2, 9}}));
    SmallAttention plain(kernel, "", shape_of({{3, 5}, {2, 9}}));
    fill_random(scaled), fill_random(plain);
    const auto times = [](const std::vector<float>& scales) {
      return [&scales, rng = Rng(5)](int64_t, int64_t, int64_t h, int64_t) mutable {
        return rng.signed_unit() * (scales.empty() ? 1 : scales[static_cast<size_t>(h)]);
      };
    };
    const std::vector<float> none;
    scaled.fill_k(times(none)), scaled.fill_v(times(none));
    plain.fill_k(times(k_scales)), plain.fill_v(times(v_scales));
    scaled.params.terms.k_scales = k_scales, scaled.params.terms.v_scales = v_scales;
    expect_same_bits(scaled, plain);
  }
}

TEST(AttendTerms, ScalesOfRequestsAndHeadsAreThoseOfEachRequest) {
  const std::vector<float> by_head = {2, 0.5F}, by_request = {2, 0.5F, 2, 0.5F};
  SmallAttention a(kPaged, "", shape_of({{3, 5}, {2, 9}})),
      b(kPaged, "", shape_of({{3, 5}, {2, 9}}));
  fill_random(a), fill_random(b);
  a.params.terms.v_scales = by_head, b.params.terms.v_scales = by_request;
  expect_same_bits(a, b);
}

TEST(AttendTerms, ScalesOfQAndOutMultiplyThem) {
  SmallAttention scaled(kPaged, "", shape_of({{3, 5}})), plain(kPaged, "", shape_of({{3, 5}}));
  fill_random(scaled), fill_random(plain);
  scaled.params.terms.q_scale = 4, scaled.params.terms.out_scale = 0.5F;
  plain.params.sm_scale = 4, plain.paged.cache.v_scale = 0.5F;
  expect_same_bits(scaled, plain);
}

TEST(AttendTerms, RowsOfNobodyAreNotTouchedAndChangeNothing) {
  SmallAttention plain(kRagged, "", shape_of({{2, 3}, {3, 4}}));
  SmallAttention padded(kRagged, "", shape_of({{4, 5}, {3, 6}}));
  const auto code = [](int64_t r, int64_t t, int64_t h, int64_t d) {
    return std::sin(static_cast<float>(r * 97 + t * 31 + h * 7 + d));
  };
  plain.fill_q(code), plain.fill_k(code), plain.fill_v(code);
  padded.fill_q(code), padded.fill_k(code), padded.fill_v(code);
  for (const int64_t r : {0, 1})
    for (const int64_t t : {0, 1}) padded.poison_key(r, t + (r == 0 ? 3 : 4), true, true);
  plain.params.causal = padded.params.causal = true;
  const std::vector<int32_t> q_lens = {2, 3}, kv_lens = {3, 4};
  padded.params.terms.seqused_q = q_lens, padded.params.terms.seqused_k = kv_lens;
  ASSERT_TRUE(plain.run().ok());
  const Status status = padded.run();
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < 2; ++r) {
    for (int64_t t = 0; t < q_lens[r]; ++t) {
      for (int64_t h = 0; h < 4; ++h) {
        EXPECT_EQ(plain.lse(r, t, h), padded.lse(r, t, h));
        for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(plain.out(r, t, h, d), padded.out(r, t, h, d));
      }
    }
  }
  for (int64_t h = 0; h < 4; ++h) {
    for (const int64_t t : {2, 3}) {
      EXPECT_TRUE(std::isnan(padded.lse(0, t, h)));
      EXPECT_TRUE(std::isnan(padded.out(0, t, h, 0)));
    }
  }
}

TEST(AttendTerms, TheBitsDoNotDependOnTheBatch) {
  const std::vector<float> slopes = {0.5F, 0.25F, 1, 0};
  SmallAttention both(kPaged, "", shape_of({{3, 5}, {2, 600}})),
      one(kPaged, "", shape_of({{2, 600}}));
  const auto code = [](int64_t, int64_t t, int64_t h, int64_t d) {
    return std::sin(static_cast<float>(t * 31 + h * 7 + d));
  };
  for (SmallAttention* c : {&both, &one}) {
    c->fill_q(code), c->fill_k(code), c->fill_v(code);
    c->params.terms.alibi_slopes = slopes;
    ASSERT_TRUE(c->run().ok());
  }
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(both.out(1, 1, h, d), one.out(0, 1, h, d));
}

}  // namespace
}  // namespace shadowgraph::attend_terms_test
