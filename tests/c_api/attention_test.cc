// The calls in C have the bits of the engine's, and its findings.
#include "shadowgraph/attention/attention.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "attn/lse.h"
#include "c_api/decode.h"

namespace shadowgraph::c_api::attention_test {
namespace {

TensorView view(std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return {values.data(), DType::kF32, shape};
}

/// The same call in C++, into memory of its own.
struct Engine {
  std::vector<float> out, lse;
  PagedAttention call;

  explicit Engine(Decode& d) : out(d.out.values.size(), 99), lse(d.lse.values.size(), 99) {
    call.q = view(d.q.values, {2, 4, 8});
    call.cache = KvCache::nhd(view(d.k.values, {4, 2, 2, 8}), view(d.v.values, {4, 2, 2, 8}));
    call.pages = PageTable::dense(d.table.values, 2, d.lens.values);
    call.params.num_qo_heads = 4, call.params.num_kv_heads = 2;
    call.params.head_dim_qk = call.params.head_dim_vo = 8;
    call.params.sm_scale = 0.5f;
    call.out = view(out, {2, 4, 8});
    call.lse = NaturalLse(view(lse, {2, 4}));
  }
  void expect_bits_of(Decode& d) {
    const Status status = attention_with_kvcache(call);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(d.run(), SG_OK) << sg_last_error();
    EXPECT_EQ(d.out.values, out);
    EXPECT_EQ(d.lse.values, lse);
  }
};

TEST(CAttention, ADecodeHasTheBitsOfTheEngine) {
  Decode d;
  Engine(d).expect_bits_of(d);
}

TEST(CAttention, EveryParameterReachesTheEngine) {
  Tensor<float> sinks({4}, {0.5f, -1, 2, 0});
  DLTensor sinks_t = sinks.dl();
  const auto both = [&](const std::function<void(sg_params&, PagedAttention&)>& set) {
    Decode plain, d;
    Engine engine(d);
    set(d.params, engine.call);
    engine.expect_bits_of(d);
    plain.run();
    EXPECT_TRUE(plain.out.values != d.out.values || plain.lse.values != d.lse.values);
  };
  both([](sg_params& p, PagedAttention& c) { p.sm_scale = c.params.sm_scale = 0.25f; });
  both([](sg_params& p, PagedAttention& c) { p.logits_soft_cap = c.params.logits_soft_cap = 2; });
  both([](sg_params& p, PagedAttention& c) { p.window_left = c.params.window_left = 1; });
  both([&](sg_params& p, PagedAttention& c) { p.sinks = &sinks_t, c.params.sinks = sinks.values; });
  both([&](sg_params& p, PagedAttention& c) {
    p.sinks = &sinks_t, c.params.sinks = sinks.values;
    p.lse_sink = 1, c.options.lse_sink = LseSink::kIncluded;
  });
}

TEST(CAttention, ScalesOfTheCacheReachTheEngine) {
  Decode d;
  Engine engine(d);
  d.cache.k_scale = engine.call.cache.k_scale = 0.5f;
  d.cache.v_scale = engine.call.cache.v_scale = 4;
  engine.expect_bits_of(d);
}

TEST(CAttention, APrefillIsCausalAndMasked) {
  // Both requests have two new tokens; the first query of each sees one key less.
  Tensor<int32_t> cu({3}, {0, 1, 2});
  DLTensor cu_t = cu.dl();
  Tensor<bool> no_mask;
  Tensor<uint8_t> bits({2}, {0b101, 0b10});
  Tensor<int64_t> indptr({3}, {0, 1, 2});
  DLTensor bits_t = bits.dl(), indptr_t = indptr.dl();
  Decode d;
  Engine engine(d);
  engine.call.cu_seqlens_q = cu.values;
  engine.call.params.causal = true;
  engine.call.params.custom_mask = {CustomMask::Kind::kPacked, bits.values, indptr.values};
  ASSERT_TRUE(attention_with_kvcache(engine.call).ok());
  d.params.causal = 1, d.params.mask = &bits_t, d.params.mask_indptr = &indptr_t;
  ASSERT_EQ(
      sg_paged_attention(&d.q_t, &d.cache, &d.pages, &cu_t, &d.params, &d.out_t, &d.lse_t, nullptr),
      SG_OK);
  EXPECT_EQ(d.out.values, engine.out);
  // The same mask, a byte a pair.
  Decode bytes;
  uint8_t pairs[5] = {1, 0, 1, 0, 1};
  DLTensor pairs_t = bits_t;
  int64_t five[1] = {5};
  pairs_t.data = pairs, pairs_t.shape = five, pairs_t.dtype = {6, 8, 1};
  Tensor<int64_t> in_bytes({3}, {0, 3, 5});
  DLTensor in_bytes_t = in_bytes.dl();
  bytes.params.causal = 1, bytes.params.mask = &pairs_t, bytes.params.mask_indptr = &in_bytes_t;
  ASSERT_EQ(bytes.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(bytes.out.values, engine.out);
}

TEST(CAttention, ALseOfBase2IsTheSameNumberInItsBase) {
  Decode natural, base2;
  natural.lens.values[1] = base2.lens.values[1] = 0;
  base2.params.lse_base2 = 1;
  ASSERT_EQ(natural.run(), SG_OK);
  ASSERT_EQ(base2.run(), SG_OK);
  for (size_t i = 0; i < natural.lse.values.size(); ++i)
    EXPECT_EQ(base2.lse.values[i], static_cast<float>(natural.lse.values[i] * kLog2E));
  EXPECT_EQ(base2.lse.values[7], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(base2.out.values, natural.out.values);
}

TEST(CAttention, RowsThatAreNotComputedKeepTheirLse) {
  Decode d;
  Tensor<int32_t> cu({3}, {0, 2, 2});
  DLTensor cu_t = cu.dl();
  d.params.max_seqlen_q = 1, d.params.lse_base2 = 1;
  ASSERT_EQ(
      sg_paged_attention(&d.q_t, &d.cache, &d.pages, &cu_t, &d.params, &d.out_t, &d.lse_t, nullptr),
      SG_OK);
  for (size_t head = 0; head < 4; ++head) {
    EXPECT_NE(d.lse.values[head], 99);
    EXPECT_EQ(d.lse.values[4 + head], 99);
  }
}

TEST(CAttention, EveryLayoutOfACacheGivesTheSameBits) {
  Decode nhd;
  ASSERT_EQ(nhd.run(), SG_OK);
  // [page, token, head, dim] of nhd, in the order that `place` gives.
  const auto copy = [&](std::vector<float>& to, const std::vector<float>& from, auto place) {
    for (size_t p = 0; p < 4; ++p)
      for (size_t t = 0; t < 2; ++t)
        for (size_t h = 0; h < 2; ++h)
          for (size_t i = 0; i < 8; ++i)
            to[place(p, t, h) * 8 + i] = from[((p * 2 + t) * 2 + h) * 8 + i];
  };
  const auto expect_same = [&](Decode& d) {
    EXPECT_EQ(d.run(), SG_OK) << sg_last_error();
    EXPECT_EQ(d.out.values, nhd.out.values);
  };
  Decode hnd;
  const auto head_first = [](size_t p, size_t t, size_t h) { return (p * 2 + h) * 2 + t; };
  copy(hnd.k.values, nhd.k.values, head_first);
  copy(hnd.v.values, nhd.v.values, head_first);
  hnd.cache.layout = SG_HND;
  expect_same(hnd);
  for (const int32_t layout : {SG_STACKED_NHD, SG_STACKED_HND}) {
    Decode d;
    Tensor<float> kv({4, 2, 2, 2, 8});
    for (size_t plane = 0; plane < 2; ++plane)
      copy(kv.values, plane == 0 ? nhd.k.values : nhd.v.values, [&](size_t p, size_t t, size_t h) {
        const size_t in_page = layout == SG_STACKED_NHD ? t * 2 + h : h * 2 + t;
        return (p * 2 + plane) * 4 + in_page;
      });
    DLTensor kv_t = kv.dl();
    d.cache.layout = layout, d.cache.k = &kv_t, d.cache.v = nullptr;
    expect_same(d);
  }
}

TEST(CAttention, ALatentsValueIsTheBeginningOfItsKey) {
  Decode d;
  Tensor<float> latent({4, 2, 8}), out({2, 4, 6}, 99);
  count_up(&latent.values, 0.125f);
  DLTensor latent_t = latent.dl(), out_t = out.dl();
  d.cache.layout = SG_MLA_LATENT, d.cache.k = &latent_t, d.cache.v = nullptr;
  d.cache.head_dim_vo = 6;
  Engine engine(d);
  std::vector<float> expected(48);
  engine.call.cache = KvCache::mla_latent(view(latent.values, {4, 2, 8}), 6);
  engine.call.params.num_kv_heads = 1, engine.call.params.head_dim_vo = 6;
  engine.call.out = view(expected, {2, 4, 6});
  ASSERT_TRUE(attention_with_kvcache(engine.call).ok());
  ASSERT_EQ(
      sg_paged_attention(&d.q_t, &d.cache, &d.pages, nullptr, &d.params, &out_t, nullptr, nullptr),
      SG_OK);
  EXPECT_EQ(out.values, expected);
}

TEST(CAttention, ListsOfPagesSayWhatATableSays) {
  Decode table, lists;
  Tensor<int32_t> indptr({3}, {0, 2, 3}), indices({3}, {3, 1, 2}), last({2}, {1, 2});
  DLTensor indptr_t = indptr.dl(), indices_t = indices.dl(), last_t = last.dl();
  lists.pages = SG_PAGES_INIT;
  lists.pages.kv_indptr = &indptr_t, lists.pages.kv_indices = &indices_t;
  lists.pages.last_page_len = &last_t;
  ASSERT_EQ(table.run(), SG_OK);
  ASSERT_EQ(lists.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(table.out.values, lists.out.values);
}

TEST(CAttention, RowsOfATableMayLieApartAndNoLengthReachesBetweenThem) {
  Decode plain, apart;
  apart.table.values = {3, 1, 3, 3, 2, 0, 3, 3};
  apart.table.strides = {4, 1};
  apart.describe();
  ASSERT_EQ(plain.run(), SG_OK);
  ASSERT_EQ(apart.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(plain.out.values, apart.out.values);
  Decode longer;
  longer.table = apart.table;
  longer.lens.values = {4, 5};
  longer.describe();
  EXPECT_EQ(longer.refused(), Found{"len.capacity cache_seqlens"});
  longer.table.strides = {1, 2};
  longer.describe();
  EXPECT_EQ(longer.refused(), Found{"input.stride page_table"});
}

TEST(CAttention, BadInputGetsEveryFindingAtOnce) {
  Decode d;
  d.table.values = {99, 1, -1, 0};
  d.params.sm_scale = -1;
  EXPECT_EQ(d.refused(), (Found{"param.scale sm_scale", "table.page_id page_table",
                                "table.page_id page_table"}));
  EXPECT_STREQ(sg_last_error(),
               "param.scale: sm_scale is -1, expected finite and normal also in base 2, > 0 (and 2 "
               "more)");
}

TEST(CAttention, AGivenListIsNotLeftOutBecauseItIsEmpty) {
  Decode d;
  Tensor<float> none({0});
  DLTensor none_t = none.dl();
  d.params.sinks = &none_t;
  EXPECT_EQ(d.refused(), Found{"input.shape sinks"});
}

TEST(CAttention, RaggedKeysGiveWhatPagedOnesGive) {
  Decode d;
  ASSERT_EQ(d.run(), SG_OK);
  Tensor<float> k({5, 2, 8}), v({5, 2, 8}), out({2, 4, 8}), lse({2, 4});
  const size_t slots[5] = {6, 7, 2, 4, 5};
  for (size_t i = 0; i < 5; ++i) {
    std::copy_n(&d.k.values[slots[i] * 16], 16, &k.values[i * 16]);
    std::copy_n(&d.v.values[slots[i] * 16], 16, &v.values[i * 16]);
  }
  Tensor<int32_t> cu_q({3}, {0, 1, 2}), cu_k({3}, {0, 3, 5});
  DLTensor k_t = k.dl(), v_t = v.dl(), cu_q_t = cu_q.dl(), cu_k_t = cu_k.dl(), out_t = out.dl(),
           lse_t = lse.dl();
  sg_report* report = nullptr;
  ASSERT_EQ(
      sg_ragged_attention(&d.q_t, &k_t, &v_t, &cu_q_t, &cu_k_t, &d.params, &out_t, &lse_t, &report),
      SG_OK);
  EXPECT_EQ(report, nullptr);
  EXPECT_EQ(out.values, d.out.values);
  EXPECT_EQ(lse.values, d.lse.values);
  cu_k.values = {0, 3, 6};
  EXPECT_EQ(
      sg_ragged_attention(&d.q_t, &k_t, &v_t, nullptr, &cu_k_t, &d.params, &out_t, &lse_t, &report),
      SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"input.null cu_seqlens_q"});
}

TEST(CAttention, MergedStatesAreTheEnginesInEitherBase) {
  Tensor<float> v({2, 3, 1, 8}), s({2, 3, 1}, {0.5f, 1, -2, 3, 0, 1}), out({2, 1, 8}), lse({2, 1});
  count_up(&v.values, 1);
  DLTensor v_t = v.dl(), s_t = s.dl(), out_t = out.dl(), lse_t = lse.dl();
  std::vector<float> natural(16), base2(16);
  const TensorView v_v = view(v.values, {2, 3, 1, 8}), s_v = view(s.values, {2, 3, 1});
  ASSERT_TRUE(
      merge_states(MergeStates<LseBase::kNatural>{v_v, s_v, view(natural, {2, 1, 8}), {}, {}})
          .ok());
  ASSERT_TRUE(
      merge_states(MergeStates<LseBase::kLog2>{v_v, s_v, view(base2, {2, 1, 8}), {}, {}}).ok());
  ASSERT_EQ(sg_merge_states(&v_t, &s_t, 0, &out_t, &lse_t, nullptr), SG_OK);
  EXPECT_EQ(out.values, natural);
  ASSERT_EQ(sg_merge_states(&v_t, &s_t, 1, &out_t, nullptr, nullptr), SG_OK);
  EXPECT_EQ(out.values, base2);
  EXPECT_NE(natural, base2);
}

TEST(CAttention, StoredTokensLieInTheirSlotsAndPagesAreCopied) {
  Decode d;
  Tensor<float> k({3, 2, 8}, 7), v({3, 2, 8}, 8);
  Tensor<int64_t> slots({3}, {5, -1, 1});
  DLTensor k_t = k.dl(), v_t = v.dl(), slots_t = slots.dl();
  std::vector<float> expected = d.k.values;
  std::fill_n(&expected[5 * 16], 16, 7.0f);
  ASSERT_EQ(sg_store_kv(&k_t, &v_t, &slots_t, &d.cache, 2, nullptr), SG_OK) << sg_last_error();
  EXPECT_EQ(d.k.values, expected);  // slot 1 is below the first
  EXPECT_EQ(d.v.values[5 * 16], 8);
  slots.values = {5, 5, 8};
  sg_report* report = nullptr;
  ASSERT_EQ(sg_store_kv(&k_t, &v_t, &slots_t, &d.cache, 0, &report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), (Found{"slot.duplicate out_cache_loc", "slot.range out_cache_loc"}));

  Decode target;
  Tensor<int32_t> from({1}, 2), to({1}, 0);
  DLTensor from_t = from.dl(), to_t = to.dl();
  ASSERT_EQ(sg_copy_kv(&d.cache, &target.cache, &from_t, &to_t, nullptr), SG_OK);
  EXPECT_EQ(target.k.values[16], 7);
  EXPECT_NE(target.k.values, d.k.values);
  ASSERT_EQ(sg_copy_kv(&d.cache, &target.cache, nullptr, nullptr, nullptr), SG_OK);
  EXPECT_EQ(target.k.values, d.k.values);
  EXPECT_EQ(target.v.values, d.v.values);
  ASSERT_EQ(sg_copy_kv(&d.cache, &target.cache, &from_t, nullptr, &report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"input.null target_pages"});
}

}  // namespace
}  // namespace shadowgraph::c_api::attention_test
