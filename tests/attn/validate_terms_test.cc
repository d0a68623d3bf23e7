// The engine refuses terms (AttentionTerms) whose lists have another length, or whose numbers make
// no sense. Two requests of 2 and 3 queries, 4 and 6 keys; 4 query heads, 2 KV heads.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "attn/finding_ids.h"
#include "attn/validate/validate.h"

namespace shadowgraph::validate_terms_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct TermsCall {
  std::vector<float> q = std::vector<float>(5 * 4 * 8), k = std::vector<float>(10 * 2 * 8), v = k;
  std::vector<float> out = q;
  std::vector<int32_t> cu_q = {0, 2, 5}, cu_k = {0, 4, 10};
  RaggedAttention call;

  TermsCall() {
    call.q = ConstTensorView(q.data(), DType::kF32, {5, 4, 8});
    call.k = ConstTensorView(k.data(), DType::kF32, {10, 2, 8});
    call.v = ConstTensorView(v.data(), DType::kF32, {10, 2, 8});
    call.out = TensorView(out.data(), DType::kF32, {5, 4, 8});
    call.cu_seqlens_q = cu_q, call.cu_seqlens_k = cu_k;
    call.params.num_qo_heads = 4, call.params.num_kv_heads = 2;
    call.params.head_dim_qk = call.params.head_dim_vo = 8;
    call.params.sm_scale = 1;
  }
};

void expect_refused(const Ids& expected, const std::function<void(AttentionTerms&)>& plant) {
  TermsCall c;
  plant(c.call.params.terms);
  ASSERT_EQ(ids(validate(c.call)), expected);
  EXPECT_EQ(ids(attention_varlen(c.call)), expected);
}

TEST(ValidateTerms, ListsHaveOneEntryForWhatTheyAreFor) {
  const std::vector<float> three(3, 1), five(5, 1), forty(40, 1), thirty_nine(39, 1), eight(8, 1);
  expect_refused({"param.terms alibi_slopes"}, [&](AttentionTerms& t) { t.alibi_slopes = three; });
  expect_refused({}, [&](AttentionTerms& t) { t.key_bias = forty; });
  expect_refused({"param.terms key_bias"}, [&](AttentionTerms& t) { t.key_bias = thirty_nine; });
  expect_refused({"param.terms qq_bias"}, [&](AttentionTerms& t) { t.qq_bias = three; });
  expect_refused({"param.terms relative_bias"}, [&](AttentionTerms& t) { t.relative_bias = five; });
  expect_refused({"param.terms relative_bias"},
                 [&](AttentionTerms& t) { t.relative_bias = eight; });
  expect_refused({"param.terms k_scales", "param.terms v_scales"},
                 [&](AttentionTerms& t) { t.k_scales = t.v_scales = three; });
}

TEST(ValidateTerms, NumbersMakeSense) {
  const std::vector<float> slopes = {1, kNaN, 1, 1}, scales = {1, 0};
  expect_refused({"param.terms alibi_slopes"}, [&](AttentionTerms& t) { t.alibi_slopes = slopes; });
  expect_refused({"param.scale k_scales[1]", "param.scale sm_scale * k_scale * q_scale * k_scales"},
                 [&](AttentionTerms& t) { t.k_scales = scales; });
  expect_refused({"param.scale out_scale"}, [](AttentionTerms& t) { t.out_scale = kNaN; });
  for (const int32_t len : {-1, 1})
    expect_refused({"param.terms temperature_len"},
                   [&](AttentionTerms& t) { t.temperature_len = len; });
  expect_refused({"param.terms attention_chunk"},
                 [](AttentionTerms& t) { t.attention_chunk = -1; });
  expect_refused({"param.terms chunk_lookback"}, [](AttentionTerms& t) { t.chunk_lookback = 1; });
}

TEST(ValidateTerms, ABiasIsANumberOrHidesItsKey) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> keys(40), square(4), table(12);
  for (const float bias : {-kInf, std::numeric_limits<float>::lowest(), kInf, kNaN}) {
    keys[7] = square[3] = table[5] = bias;
    const bool bad = !(bias < 0);
    expect_refused(
        bad ? Ids{"param.terms key_bias", "param.terms qq_bias", "param.terms relative_bias"}
            : Ids{},
        [&](AttentionTerms& t) { t.key_bias = keys, t.qq_bias = square, t.relative_bias = table; });
  }
}

TEST(ValidateTerms, RequestsHaveTheirOwn) {
  const std::vector<uint8_t> one = {1};
  const std::vector<int32_t> short_list = {0}, beyond = {5, -1}, fits = {4, 0};
  expect_refused({"param.terms request_causal"},
                 [&](AttentionTerms& t) { t.request_causal = one; });
  expect_refused({"param.terms cache_leftpad"},
                 [&](AttentionTerms& t) { t.cache_leftpad = short_list; });
  expect_refused({}, [&](AttentionTerms& t) { t.cache_leftpad = fits; });
  expect_refused({"param.terms cache_leftpad", "param.terms cache_leftpad"},
                 [&](AttentionTerms& t) { t.cache_leftpad = beyond; });
}

TEST(ValidateTerms, RangesAreAscendingApartAndOfTheRequest) {
  const auto refused = [](const Ids& expected, const std::vector<int32_t>& ranges,
                          const std::vector<int32_t>& indptr) {
    expect_refused(expected, [&](AttentionTerms& t) {
      t.bidirectional_ranges = ranges, t.bidirectional_indptr = indptr;
    });
  };
  refused({}, {0, 1, 3, 3, 2, 5}, {0, 2, 3});
  refused({"param.terms bidirectional_ranges"}, {0, 1, 1, 3}, {0, 2, 2});
  refused({"param.terms bidirectional_ranges"}, {2, 4}, {0, 1, 1});
  refused({"param.terms bidirectional_ranges"}, {2, 1}, {0, 0, 1});
  refused({"param.terms bidirectional_ranges"}, {2, 3, 4}, {0, 1, 1});
  refused({"len.total bidirectional_indptr"}, {2, 3}, {0, 0, 0});
  refused({"len.batch bidirectional_indptr"}, {2, 3}, {0, 1});
}

TEST(ValidateTerms, LengthsFitBetweenTheOffsets) {
  const std::vector<int32_t> longer = {2, 4}, one = {2}, fits = {1, 0};
  expect_refused({}, [&](AttentionTerms& t) { t.seqused_q = fits, t.seqused_k = fits; });
  expect_refused({"param.terms seqused_q"}, [&](AttentionTerms& t) { t.seqused_q = longer; });
  expect_refused({"param.terms seqused_k"}, [&](AttentionTerms& t) { t.seqused_k = one; });
}

TEST(ValidateTerms, AMaskIsOfAllHeadsOrOfEach) {
  std::vector<uint8_t> of_two(2 * 26, 1), of_four(4 * 26, 1);
  const std::vector<int64_t> two = {0, 16, 52}, four = {0, 32, 104};
  TermsCall c;
  CustomMask& mask = c.call.params.custom_mask;
  mask = {CustomMask::Kind::kBool, of_four, four, 4};
  EXPECT_EQ(ids(validate(c.call)), Ids{});
  mask.heads = 1;
  EXPECT_EQ(ids(validate(c.call)), (Ids{"mask.size mask_indptr", "mask.size mask_indptr"}));
  mask = {CustomMask::Kind::kBool, of_two, two, 2};
  EXPECT_EQ(ids(validate(c.call)), (Ids{"mask.size custom_mask.heads"}));
}

TEST(ValidateTerms, APagedCallHasItsLengthsInTheTable) {
  TermsCall c;
  std::vector<float> pool(4 * 4 * 2 * 8);
  const std::vector<int32_t> table = {0, 1, 2, 3}, lens = {4, 6}, used = {2, 3};
  PagedAttention paged;
  paged.q = c.call.q, paged.out = c.call.out, paged.params = c.call.params;
  const TensorView plane(pool.data(), DType::kF32, {4, 4, 2, 8});
  paged.cache = KvCache::nhd(plane, plane);
  paged.pages = PageTable::dense(table, 2, lens);
  paged.cu_seqlens_q = c.cu_q;
  paged.params.terms.seqused_q = used;
  EXPECT_EQ(ids(validate(paged)), Ids{});
  paged.params.terms.seqused_k = used;
  EXPECT_EQ(ids(validate(paged)), (Ids{"param.terms seqused_k"}));
}

}  // namespace
}  // namespace shadowgraph::validate_terms_test
