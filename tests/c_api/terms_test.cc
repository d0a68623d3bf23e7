// Terms of a call reach the engine, one by one; and what is set for all calls.
#include <functional>

#include "c_api/decode.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::c_api::terms_test {
namespace {

/// Two new tokens of request 0 behind one cached key, and request 1 without new ones; causal. The
/// same call in C and in C++.
struct Extend : Decode {
  Tensor<int32_t> cu{{3}, {0, 2, 2}};
  DLTensor cu_t = cu.dl();
  sg_terms terms = SG_TERMS_INIT;
  std::vector<float> engine_out, engine_lse;
  PagedAttention call;

  Extend() : engine_out(64, 99), engine_lse(8, 99) {
    params.causal = 1, params.terms = &terms;
    call.q = TensorView(q.values.data(), DType::kF32, {2, 4, 8});
    call.cache = KvCache::nhd(TensorView(k.values.data(), DType::kF32, {4, 2, 2, 8}),
                              TensorView(v.values.data(), DType::kF32, {4, 2, 2, 8}));
    call.pages = PageTable::dense(table.values, 2, lens.values);
    call.cu_seqlens_q = cu.values;
    call.params.num_qo_heads = 4, call.params.num_kv_heads = 2;
    call.params.head_dim_qk = call.params.head_dim_vo = 8;
    call.params.sm_scale = 0.5f, call.params.causal = true;
    call.out = TensorView(engine_out.data(), DType::kF32, {2, 4, 8});
    call.lse = NaturalLse(TensorView(engine_lse.data(), DType::kF32, {2, 4}));
  }
  sg_status run(sg_report** report = nullptr) {
    return sg_paged_attention(&q_t, &cache, &pages, &cu_t, &params, &out_t, &lse_t, report);
  }
};

/// The term changes the result, as it does in C++.
void expect_reaches(const std::function<void(sg_terms&, AttentionTerms&, CustomMask&)>& set) {
  Extend plain, with;
  ASSERT_EQ(plain.run(), SG_OK) << sg_last_error();
  set(with.terms, with.call.params.terms, with.call.params.custom_mask);
  const Status status = attention_with_kvcache(with.call);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(with.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(with.out.values, with.engine_out);
  EXPECT_EQ(with.lse.values, with.engine_lse);
  EXPECT_TRUE(plain.out.values != with.out.values || plain.lse.values != with.lse.values);
}

TEST(CTerms, EachTermOfScoresReachesTheEngine) {
  Tensor<float> slopes({4}, {0.5f, 0.25f, 1, 2}), bias({4, 5}), pairs({2, 2}, {0, 1, 2, 3}),
      relative({4, 3});
  count_up(&bias.values, 0.25f);
  count_up(&relative.values, 0.125f);
  DLTensor slopes_t = slopes.dl(), bias_t = bias.dl(), pairs_t = pairs.dl(),
           relative_t = relative.dl();
  for (const auto kind : {SG_ALIBI_LINEAR, SG_ALIBI_DISTANCE, SG_ALIBI_SQRT}) {
    expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
      t.alibi = kind, a.alibi = static_cast<AttentionTerms::Alibi>(kind);
      t.alibi_slopes = &slopes_t, a.alibi_slopes = slopes.values;
    });
  }
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.key_bias = &bias_t, a.key_bias = bias.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.qq_bias = &pairs_t, a.qq_bias = pairs.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.relative_bias = &relative_t, a.relative_bias = relative.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.temperature_len = a.temperature_len = 2;
  });
}

TEST(CTerms, EachTermOfMasksReachesTheEngine) {
  Tensor<uint8_t> causal({2}, {0, 1});
  Tensor<int32_t> leftpad({2}, {1, 0}), ranges({1, 2}, {1, 2}), indptr({3}, {0, 1, 1}),
      used({2}, {1, 0});
  DLTensor causal_t = causal.dl(), leftpad_t = leftpad.dl(), ranges_t = ranges.dl(),
           indptr_t = indptr.dl(), used_t = used.dl();
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.attention_chunk = a.attention_chunk = 2;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.attention_chunk = a.attention_chunk = 1, t.chunk_lookback = a.chunk_lookback = 1;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.request_causal = &causal_t, a.request_causal = causal.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.cache_leftpad = &leftpad_t, a.cache_leftpad = leftpad.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.bidirectional_ranges = &ranges_t, a.bidirectional_ranges = ranges.values;
    t.bidirectional_indptr = &indptr_t, a.bidirectional_indptr = indptr.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.seqused_q = &used_t, a.seqused_q = used.values;
  });
}

TEST(CTerms, EachScaleReachesTheEngine) {
  Tensor<float> heads({2}, {0.5f, 2}), requests({2, 2}, {0.5f, 2, 4, 1});
  DLTensor heads_t = heads.dl(), requests_t = requests.dl();
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.k_scales = &heads_t, a.k_scales = heads.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) {
    t.v_scales = &requests_t, a.v_scales = requests.values;
  });
  expect_reaches([&](sg_terms& t, AttentionTerms& a, CustomMask&) { t.q_scale = a.q_scale = 2; });
  expect_reaches(
      [&](sg_terms& t, AttentionTerms& a, CustomMask&) { t.out_scale = a.out_scale = 2; });
}

TEST(CTerms, AMaskMayBeOfEachHead) {
  Extend d;
  // Head h hides key h of request 0, where there is one.
  std::vector<uint8_t> bits(24, 1);
  for (size_t head = 0; head < 3; ++head) bits[head * 6 + 3 + head] = 0;
  const std::vector<int64_t> indptr = {0, 24, 24};
  d.call.params.custom_mask = {CustomMask::Kind::kBool, bits, indptr, 4};
  ASSERT_TRUE(attention_with_kvcache(d.call).ok());
  Tensor<uint8_t> mask({24}, bits);
  Tensor<int64_t> mask_indptr({3}, indptr);
  DLTensor mask_t = mask.dl(), mask_indptr_t = mask_indptr.dl();
  mask_t.dtype = dl_type<bool>();
  d.params.mask = &mask_t, d.params.mask_indptr = &mask_indptr_t, d.terms.mask_heads = 4;
  ASSERT_EQ(d.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(d.out.values, d.engine_out);
}

TEST(CTerms, ZerosMeanNothing) {
  Extend none, zeros;
  none.params.terms = nullptr;
  zeros.terms = {};
  zeros.terms.struct_size = sizeof(sg_terms);
  ASSERT_EQ(none.run(), SG_OK);
  ASSERT_EQ(zeros.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(none.out.values, zeros.out.values);
  EXPECT_EQ(none.lse.values, zeros.lse.values);
}

TEST(CTerms, WhatIsNoTermIsFound) {
  Extend d;
  Tensor<float> slopes({3}, 1), bias({4, 5}, 1);
  bias.strides = {1, 4};
  Tensor<int32_t> causal({2}, 1);
  DLTensor slopes_t = slopes.dl(), bias_t = bias.dl(), causal_t = causal.dl();
  sg_report* report = nullptr;
  d.terms.alibi_slopes = &slopes_t;
  EXPECT_EQ(d.run(&report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"param.terms alibi_slopes"});
  d.terms.key_bias = &bias_t, d.terms.request_causal = &causal_t;
  EXPECT_EQ(d.run(&report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), (Found{"input.dtype request_causal", "input.stride key_bias"}));
  d.terms.alibi = 3;
  EXPECT_EQ(d.run(), SG_USAGE);
  d.terms.struct_size = 0;
  EXPECT_EQ(d.run(), SG_USAGE);
}

TEST(CSettings, AnInstructionSetIsSetForAllCalls) {
  const std::string before = sg_isa();
  EXPECT_EQ(sg_set_isa("generic"), SG_OK);
  EXPECT_STREQ(sg_isa(), "generic");
  EXPECT_EQ(sg_set_isa("mmx"), SG_BAD_INPUT);
  EXPECT_EQ(sg_set_isa(nullptr), SG_USAGE);
  EXPECT_STREQ(sg_isa(), "generic");
  EXPECT_EQ(sg_set_isa(before.c_str()), SG_OK);
}

}  // namespace
}  // namespace shadowgraph::c_api::terms_test
