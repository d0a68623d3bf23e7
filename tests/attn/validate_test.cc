// Every law that validate() can raise is raised by an input that breaks it, faults are reported all
// at once, and a refused call writes nothing. Each fault starts from a call that is accepted.
#include "attn/validate/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attn/finding_ids.h"

namespace shadowgraph::validate_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::byte kMark{0xff};
constexpr int64_t kApart = 4096;  // more than any input has

/// The same call twice over: paged (2 requests of 5 and 3 keys, 2 + 1 queries, pages of 4) and
/// ragged.
struct Calls {
  std::vector<float> q = std::vector<float>(2 * 3 * 4 * 8), k = std::vector<float>(8 * 4 * 2 * 8),
                     v = k;
  // The outputs, far from each other and from all else, so that a view planted on one of them meets
  // nothing more.
  std::vector<std::byte> outputs = std::vector<std::byte>(5 * kApart, kMark);
  std::byte *out = outputs.data() + kApart, *lse = outputs.data() + 3 * kApart;
  std::vector<int32_t> table = {3, 1, 0, -9}, lens = {5, 3}, cu_q = {0, 2, 3}, cu_k = {0, 5, 8};
  std::vector<int32_t> indptr = {0, 2, 3}, indices = {3, 1, 0}, last_page_len = {1, 3};
  std::vector<float> sinks = {0, 0, 0, 0};
  std::vector<uint8_t> mask = std::vector<uint8_t>(13, 1);
  std::vector<int64_t> mask_indptr = {0, 10, 13};
  PagedAttention paged;
  RaggedAttention ragged;

  Calls() {
    paged.q = ConstTensorView(q.data(), DType::kF32, {3, 4, 8});
    paged.cache = KvCache::nhd(TensorView(k.data(), DType::kF32, {8, 4, 2, 8}),
                               TensorView(v.data(), DType::kF32, {8, 4, 2, 8}));
    paged.pages = PageTable::dense(table, 2, lens);
    paged.cu_seqlens_q = cu_q;
    paged.params.num_qo_heads = 4, paged.params.num_kv_heads = 2;
    paged.params.head_dim_qk = paged.params.head_dim_vo = 8;
    paged.params.sm_scale = 1;
    paged.out = TensorView(out, DType::kF32, {3, 4, 8});
    paged.lse = NaturalLse(TensorView(lse, DType::kF32, {3, 4}));
    ragged.q = paged.q, ragged.out = paged.out, ragged.lse = paged.lse,
    ragged.params = paged.params;
    ragged.k = ConstTensorView(k.data(), DType::kF32, {8, 2, 8});
    ragged.v = ConstTensorView(v.data(), DType::kF32, {8, 2, 8});
    ragged.cu_seqlens_q = cu_q, ragged.cu_seqlens_k = cu_k;
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void use_csr() { paged.pages = PageTable::csr(indptr, indices, last_page_len); }
  void use_mask(CustomMask::Kind kind) {
    paged.params.custom_mask = ragged.params.custom_mask = {kind, mask, mask_indptr};
  }
  bool nothing_written() const {
    return std::all_of(outputs.begin(), outputs.end(), [](std::byte b) { return b == kMark; });
  }
};

/// Plants a fault; the public call must refuse it with exactly these findings, and write nothing.
void expect_paged(const Ids& expected, const std::function<void(Calls&)>& plant) {
  Calls c;
  plant(c);
  ASSERT_EQ(ids(validate(c.paged)), expected);  // or the call would walk bad input
  EXPECT_EQ(ids(attention_with_kvcache(c.paged)), expected);
  EXPECT_EQ(c.nothing_written(), !expected.empty());
}
void expect_ragged(const Ids& expected, const std::function<void(Calls&)>& plant) {
  Calls c;
  plant(c);
  ASSERT_EQ(ids(validate(c.ragged)), expected);
  EXPECT_EQ(ids(attention_varlen(c.ragged)), expected);
  EXPECT_EQ(c.nothing_written(), !expected.empty());
}
/// A fault of the layer, which both kinds of call must see.
void expect_params(const Ids& expected, const std::function<void(AttentionParams&)>& plant) {
  expect_paged(expected, [&](Calls& c) { plant(c.paged.params); });
  expect_ragged(expected, [&](Calls& c) { plant(c.ragged.params); });
}

TEST(Validate, SaysTheValueThatIsWrong) {
  const auto got = [](const std::function<void(Calls&)>& plant) {
    Calls c;
    plant(c);
    const Status status = validate(c.paged);
    const auto found = status.findings();
    return found.empty() ? std::string() : found[0].got;
  };
  EXPECT_EQ(got([](Calls& c) { c.cu_q = {0, 4, 3}; }), "3");
  EXPECT_EQ(got([](Calls& c) {
              c.mask_indptr = {0, 9, 12}, c.mask.resize(12);
              c.use_mask(CustomMask::Kind::kBool);
            }),
            "9");
  EXPECT_EQ(got([](Calls& c) { c.paged.q.stride[2] = 2; }), "2");
  EXPECT_EQ(got([](Calls& c) { c.paged.q.stride[2] = 3; }), "3");
  // A tensor of one head, too.
  EXPECT_EQ(got([](Calls& c) {
              c.paged.params.num_qo_heads = c.paged.params.num_kv_heads = 1;
              c.paged.q.shape[1] = 1, c.paged.q.stride[2] = 2;
            }),
            "2");
}

TEST(Validate, GoodCallsAreAccepted) {
  expect_paged({}, [](Calls&) {});
  expect_paged({}, [](Calls& c) { c.use_csr(); });
  expect_ragged({}, [](Calls&) {});
  expect_paged({}, [](Calls& c) { c.use_mask(CustomMask::Kind::kBool); });
  expect_paged({}, [](Calls& c) { c.paged.params.sinks = c.sinks; });
}

TEST(Validate, HeadsShareOutEvenly) {
  expect_params({"param.heads num_qo_heads"}, [](AttentionParams& p) { p.num_qo_heads = 5; });
  expect_params({"param.heads num_qo_heads"}, [](AttentionParams& p) { p.num_qo_heads = 0; });
  expect_params({"param.heads num_kv_heads"}, [](AttentionParams& p) { p.num_kv_heads = 0; });
  expect_params({"param.heads num_kv_heads"}, [](AttentionParams& p) { p.num_kv_heads = -2; });
}

TEST(Validate, HeadDimsAreInRange) {
  expect_params({"param.head_dim head_dim_qk"}, [](AttentionParams& p) { p.head_dim_qk = 0; });
  expect_params({"param.head_dim head_dim_qk"}, [](AttentionParams& p) { p.head_dim_qk = 1025; });
  expect_params({"param.head_dim head_dim_vo"}, [](AttentionParams& p) { p.head_dim_vo = -1; });
}

TEST(Validate, ScalesAreFiniteAndPositive) {
  for (float bad : {0.f, -1.f, kNaN, kInf}) {
    expect_params({"param.scale sm_scale"}, [&](AttentionParams& p) { p.sm_scale = bad; });
    expect_paged({"param.scale k_scale"}, [&](Calls& c) { c.paged.cache.k_scale = bad; });
    expect_paged({"param.scale v_scale"}, [&](Calls& c) { c.paged.cache.v_scale = bad; });
    expect_ragged({"param.scale k_scale", "param.scale v_scale"},
                  [&](Calls& c) { c.ragged.k_scale = c.ragged.v_scale = bad; });
  }
}

TEST(Validate, WindowsAreOffOrNotNegative) {
  expect_params({"param.window window_left"}, [](AttentionParams& p) { p.window_left = -2; });
  expect_params({"param.window window_right"},
                [](AttentionParams& p) { p.window_right = INT32_MIN; });
  expect_params({}, [](AttentionParams& p) { p.window_left = p.window_right = INT32_MAX; });
}

TEST(Validate, SoftCapsAreFiniteAndNotNegative) {
  for (float bad : {-1.f, kNaN, kInf}) {
    expect_params({"param.soft_cap logits_soft_cap"},
                  [&](AttentionParams& p) { p.logits_soft_cap = bad; });
  }
}

TEST(Validate, SinksAreOneNumberAHead) {
  const std::vector<float> three(3), bad = {0, kNaN, -kInf, kInf};
  expect_params({"param.sinks sinks"}, [&](AttentionParams& p) { p.sinks = three; });
  expect_params({"param.sinks sinks", "param.sinks sinks"},
                [&](AttentionParams& p) { p.sinks = bad; });
}

TEST(Validate, CustomMasksHoldEveryPair) {
  const auto plant = [](CustomMask::Kind kind, const std::function<void(Calls&)>& more) {
    return [=](Calls& c) {
      more(c);
      c.use_mask(kind);
    };
  };
  const auto kBool = CustomMask::Kind::kBool, kPacked = CustomMask::Kind::kPacked;
  const auto both = [&](const Ids& expected, const std::function<void(Calls&)>& fault) {
    expect_paged(expected, fault);
    expect_ragged(expected, fault);
  };
  const auto offsets = [](const std::vector<int64_t>& indptr, size_t bytes = 13) {
    return [=](Calls& c) { c.mask_indptr = indptr, c.mask.resize(bytes, 1); };
  };
  both({"mask.size mask_indptr", "mask.size mask_indptr"}, plant(kBool, offsets({0, 9, 13})));
  both({"mask.size mask_indptr"}, plant(kBool, offsets({0, 10, 12}, 12)));
  both({"mask.size mask_indptr"}, plant(kBool, offsets({0, 10, 14}, 14)));
  both({"mask.size mask_indptr", "mask.size mask_indptr"}, plant(kBool, offsets({-1, 10, 13})));
  both({"mask.size mask_indptr"}, plant(kBool, offsets({3, 13, 16}, 16)));
  both({"mask.size mask_indptr", "mask.size mask_indptr", "mask.size mask_indptr",
        "mask.size custom_mask"},
       plant(kBool, offsets({9, 8, 7})));
  both({"mask.size custom_mask"}, plant(kBool, offsets({0, 10, 13}, 12)));
  both({"mask.size custom_mask"}, plant(kBool, offsets({0, 10, 13}, 14)));
  both({"mask.size mask_indptr", "mask.size custom_mask"},
       plant(kBool, offsets({0, 10, INT64_MAX})));
  both({"mask.size mask_indptr", "mask.size mask_indptr", "mask.size custom_mask"},
       plant(kBool, offsets({0, INT64_MIN, INT64_MAX})));
  both({"len.batch mask_indptr"}, plant(kBool, offsets({0, 10})));
  // 10 pairs are 2 bytes, 3 are 1.
  both({}, plant(kPacked, offsets({0, 2, 3}, 3)));
  both({"mask.size mask_indptr", "mask.size mask_indptr"}, plant(kPacked, offsets({0, 1, 3}, 3)));
}

TEST(Validate, Int8NeedsScalesAndPackedKeysHaveNone) {
  expect_paged({"input.null k_cache.scales.data"},
               [](Calls& c) { c.paged.cache.k.dtype = DType::kI8; });
  std::vector<float> scales(1);
  expect_paged({"input.dtype v_cache.dtype"},
               [&](Calls& c) { c.paged.cache.v.scales = scales.data(); });
  expect_ragged({"input.dtype k.dtype"}, [](Calls& c) { c.ragged.k.dtype = DType::kI8; });
  expect_ragged({"input.dtype v.dtype"}, [](Calls& c) { c.ragged.v.dtype = DType::kI8; });
}

TEST(Validate, RowsHaveTheirTypesAndShapes) {
  const auto both = [](const Ids& expected,
                       const std::function<void(ConstTensorView&, TensorView&, TensorView&)>& f) {
    expect_paged(expected, [&](Calls& c) { f(c.paged.q, c.paged.out, c.paged.lse.tensor); });
    expect_ragged(expected, [&](Calls& c) { f(c.ragged.q, c.ragged.out, c.ragged.lse.tensor); });
  };
  using In = ConstTensorView&;
  using Out = TensorView&;
  both({"input.dtype q.dtype"}, [](In q, Out, Out) { q.dtype = DType::kE4M3; });
  both({"input.dtype q.dtype"}, [](In q, Out, Out) { q.dtype = DType::kI32; });
  both({"input.dtype out.dtype"}, [](In, Out out, Out) { out.dtype = DType::kE5M2; });
  both({"input.dtype lse.dtype"}, [](In, Out, Out lse) { lse.dtype = DType::kF16; });
  both({"input.shape q.shape"}, [](In q, Out, Out) { q.rank = 2; });
  both({"input.shape q.shape"}, [](In q, Out, Out) { q.shape[1] = 3; });
  both({"input.shape out.shape"}, [](In, Out out, Out) { out.shape[0] = 2; });
  both({"input.shape out.shape"}, [](In, Out out, Out) { out.shape[2] = 9; });
  both({"input.shape lse.shape"}, [](In, Out, Out lse) { lse.shape[1] = 2; });
  both({"input.null q.data"}, [](In q, Out, Out) { q.data = nullptr; });
  both({"input.null out.data"}, [](In, Out out, Out) { out.data = nullptr; });
  both({"input.null lse.data"}, [](In, Out, Out lse) { lse.data = nullptr; });
  both({"input.stride q.stride"}, [](In q, Out, Out) { q.stride[2] = 2; });
  both({"input.stride out.stride"}, [](In, Out out, Out) { out.stride[1] = 7; });
  both({"input.stride out.stride"}, [](In, Out out, Out) { out.stride[0] = 0; });
  both({"input.stride lse.stride"}, [](In, Out, Out lse) { lse.stride[0] = 3; });
}

TEST(Validate, SizesNearTwoToThe63AreRefused) {
  const int64_t huge = int64_t{1} << 62;
  expect_paged({"input.overflow q"}, [&](Calls& c) { c.paged.q.stride[0] = huge; });
  expect_paged({"input.overflow out"}, [&](Calls& c) { c.paged.out.stride[0] = INT64_MAX; });
  expect_paged({"input.overflow out"}, [&](Calls& c) { c.paged.out.stride[0] = INT64_MIN; });
  expect_paged({"input.overflow k_cache"}, [&](Calls& c) { c.paged.cache.k.page_stride = huge; });
  expect_paged({"input.overflow k_cache", "input.overflow v_cache"},
               [&](Calls& c) { c.paged.cache.num_pages = INT64_MAX; });
  expect_ragged({"input.overflow k"}, [&](Calls& c) { c.ragged.k.stride[1] = INT64_MAX; });
  expect_ragged({"input.overflow k"}, [&](Calls& c) { c.ragged.k.stride[0] = -huge; });
  Calls c;  // wraps in the view's own constructor, by definition
  c.ragged.k = ConstTensorView(c.k.data(), DType::kF32, {INT64_MAX, 2, 8});
  const Status status = validate(c.ragged);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "input.overflow");
}

TEST(Validate, CachesAreWellFormedAndFit) {
  expect_paged({"input.shape cache"}, [](Calls& c) { c.paged.cache.well_formed = false; });
  expect_paged({"input.shape cache"}, [](Calls& c) { c.paged.cache = KvCache(); });
  expect_paged({"input.shape cache"}, [](Calls& c) { c.paged.cache.page_size = 0; });
  expect_paged({"input.shape num_kv_heads"}, [](Calls& c) { c.paged.cache.num_kv_heads = 1; });
  expect_paged({"input.shape head_dim_qk"}, [](Calls& c) { c.paged.cache.k.head_dim = 7; });
  expect_paged({"input.shape head_dim_vo"}, [](Calls& c) { c.paged.cache.v.head_dim = 7; });
  expect_paged({"input.dtype k_cache.dtype"},
               [](Calls& c) { c.paged.cache.k.dtype = DType::kI64; });
  expect_paged({"input.null v_cache.data"}, [](Calls& c) { c.paged.cache.v.data = nullptr; });
}

TEST(Validate, IndptrsBeginAtZeroRiseAndEndAtTheTotal) {
  const auto plant = [](const std::vector<int32_t>& values) {
    return [=](Calls& c) {
      c.cu_q = values;
      c.paged.cu_seqlens_q = c.ragged.cu_seqlens_q = c.cu_q;
    };
  };
  for (const auto& expect : {expect_paged, expect_ragged}) {
    expect({"len.indptr_first cu_seqlens_q"}, plant({1, 2, 3}));
    expect({"len.indptr_monotone cu_seqlens_q"}, plant({0, 4, 3}));
    expect({"len.total cu_seqlens_q"}, plant({0, 2, 2}));
    expect({"len.indptr_first cu_seqlens_q", "len.indptr_monotone cu_seqlens_q",
            "len.total cu_seqlens_q"},
           plant({-1, 5, 4}));
  }
  expect_paged({"len.batch cu_seqlens_q"}, plant({0, 3}));
  expect_ragged({"len.batch cu_seqlens_k"}, plant({0, 3}));
  expect_ragged({"len.total cu_seqlens_k"}, [](Calls& c) { c.cu_k[2] = 9; });
  expect_ragged({"len.indptr_monotone cu_seqlens_k"}, [](Calls& c) { c.cu_k[1] = 100; });
}

TEST(Validate, ADecodeBatchHasOneRowARequest) {
  expect_paged({"len.total q.shape"}, [](Calls& c) { c.paged.cu_seqlens_q = {}; });
}

TEST(Validate, CacheLensFitTheTable) {
  expect_paged({"len.negative cache_seqlens"}, [](Calls& c) { c.lens[1] = -1; });
  expect_paged({"len.capacity cache_seqlens"}, [](Calls& c) { c.lens[0] = 9; });
  expect_paged({"len.capacity cache_seqlens", "len.negative cache_seqlens"}, [](Calls& c) {
    c.lens = {INT32_MAX, INT32_MIN};
    c.paged.pages.cache_seqlens = c.lens;
  });
  expect_paged({"len.batch page_table"}, [](Calls& c) { c.paged.pages.max_pages = 3; });
  expect_paged({"len.batch page_table"}, [](Calls& c) { c.paged.pages.max_pages = -1; });
  expect_paged({"len.batch page_table"}, [](Calls& c) { c.paged.pages.max_pages = INT64_MAX; });
}

TEST(Validate, CsrTablesAreWalkable) {
  const auto plant = [](const std::function<void(Calls&)>& more) {
    return [=](Calls& c) {
      more(c);
      c.use_csr();
    };
  };
  expect_paged({"len.last_page last_page_len"}, plant([](Calls& c) { c.last_page_len[0] = 0; }));
  expect_paged({"len.last_page last_page_len"}, plant([](Calls& c) { c.last_page_len[1] = 5; }));
  expect_paged({"len.last_page last_page_len", "len.last_page last_page_len"}, plant([](Calls& c) {
                 c.last_page_len = {-3, 5};
               }));
  expect_paged({"len.total kv_indptr"}, plant([](Calls& c) { c.indptr[2] = 4; }));
  expect_paged({"len.indptr_first kv_indptr"}, plant([](Calls& c) { c.indptr[0] = -1; }));
  expect_paged({"len.indptr_monotone kv_indptr"}, plant([](Calls& c) { c.indptr = {0, 3, 2}; }));
  expect_paged({"len.batch kv_indptr"}, plant([](Calls& c) { c.indptr = {0, 3}; }));
  // A request without pages: its last_page_len is not looked at.
  expect_paged({}, plant([](Calls& c) { c.indptr = {0, 0, 3}, c.last_page_len = {-77, 1}; }));
}

TEST(Validate, KeysOfACsrTableFitInInt32) {
  // 2^20 pages of 2^12 tokens in a pool of one page, whose strides no one walks.
  Calls c;
  c.indptr = {0, 1 << 20, 1 << 20};
  c.indices.assign(1 << 20, 0);
  c.use_csr();
  c.k.resize((1 << 12) * 2 * 8), c.v.resize(c.k.size());
  c.paged.cache = KvCache::nhd(TensorView(c.k.data(), DType::kF32, {1, 1 << 12, 2, 8}),
                               TensorView(c.v.data(), DType::kF32, {1, 1 << 12, 2, 8}));
  EXPECT_EQ(ids(validate(c.paged)), Ids{"len.overflow kv_indptr"});
}

TEST(Validate, PageIdsOfVisibleKeysLieInThePool) {
  for (int32_t bad : {-1, 8, INT32_MAX, INT32_MIN}) {
    expect_paged({"table.page_id page_table"}, [&](Calls& c) { c.table[1] = bad; });
    expect_paged({"table.page_id page_table", "table.page_id page_table"},
                 [&](Calls& c) { c.table[0] = c.table[2] = bad; });
    expect_paged({"table.page_id kv_indices"}, [&](Calls& c) {
      c.indices[1] = bad;
      c.use_csr();
    });
  }
}

TEST(Validate, TheFindingNamesRowColumnAndValue) {
  Calls c;
  c.table[2] = 99;
  const Status status = validate(c.paged);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.to_string(), "table.page_id: page_table[1, 0] is 99, expected 0 <= id < 8");
}

TEST(Validate, EntriesThatNoRowNeedsMayBeAbsurd) {
  for (int32_t absurd : {-1, 8, INT32_MAX, INT32_MIN}) {
    // Past the live pages.
    expect_paged({}, [&](Calls& c) { c.table[3] = absurd; });
    // Outside every row's window: the only query of request 0 that sees page 0 is gone.
    expect_paged({}, [&](Calls& c) {
      c.paged.params.window_left = 0;
      c.paged.params.causal = true;
      c.lens[0] = 6;  // queries at 4 and 5
      c.table[0] = absurd;
    });
    // A request without queries.
    expect_paged({}, [&](Calls& c) {
      c.cu_q = {0, 3, 3};
      c.table[2] = absurd;
    });
  }
}

TEST(Validate, OutputsShareNoByteWithAnything) {
  expect_paged({"input.alias out"}, [](Calls& c) { c.paged.q.data = c.out; });
  expect_paged({"input.alias out"}, [](Calls& c) { c.paged.q.data = c.out + 3 * 4 * 8 * 4 - 1; });
  expect_paged({"input.alias lse"}, [](Calls& c) { c.paged.lse.tensor.data = c.out + 40; });
  expect_paged({"input.alias out"}, [](Calls& c) { c.paged.cache.k.data = c.out - 4; });
  expect_ragged({"input.alias lse"}, [](Calls& c) { c.ragged.v.data = c.lse + 47; });
  expect_paged({"input.alias out"}, [](Calls& c) {
    c.use_mask(CustomMask::Kind::kBool);
    c.paged.params.custom_mask.data = {reinterpret_cast<const uint8_t*>(c.out) + 7, 13};
  });
}

TEST(Validate, InputsMayShareMemory) {
  expect_paged({}, [](Calls& c) { c.paged.cache.v.data = c.paged.cache.k.data; });
  expect_ragged({}, [](Calls& c) { c.ragged.v.data = c.ragged.k.data; });
}

TEST(Validate, ARefusalSaysWhoseSizeItExpects) {
  Calls c;
  c.ragged.v.shape[0] = 7, c.ragged.out.shape[0] = 2, c.cu_q[2] = 2;
  EXPECT_EQ(validate(c.ragged).to_string(),
            "input.shape: v.shape is [7, 2, 8], expected [8, 2, 8]: 8 rows of k\n"
            "input.shape: out.shape is [2, 4, 8], expected [3, 4, 8]: 3 rows of q");
  Calls paged;
  paged.cu_q[2] = 2;
  EXPECT_EQ(validate(paged.paged).to_string(),
            "len.total: cu_seqlens_q[2] is 2, expected 3 rows of q");
}

TEST(Validate, FiveFaultsAreFiveFindings) {
  expect_paged(
      {"param.scale sm_scale", "param.window window_left", "param.soft_cap logits_soft_cap",
       "input.shape out.shape", "table.page_id page_table"},
      [](Calls& c) {
        c.paged.params.sm_scale = kNaN;
        c.paged.params.window_left = -7;
        c.paged.params.logits_soft_cap = -1;
        c.paged.out.shape[2] = 3;
        c.table[1] = 1000;
      });
  expect_ragged({"param.scale v_scale", "param.sinks sinks", "input.dtype k.dtype",
                 "input.null out.data", "len.indptr_first cu_seqlens_q"},
                [](Calls& c) {
                  c.ragged.v_scale = 0;
                  c.ragged.params.sinks = std::span<const float>(c.sinks).first(1);
                  c.ragged.k.dtype = DType::kBool;
                  c.ragged.out.data = nullptr;
                  c.cu_q[0] = 1;
                });
}

struct Merges {
  std::vector<float> v = std::vector<float>(2 * 3 * 4), s = std::vector<float>(2 * 3),
                     outputs = std::vector<float>(3 * kApart, 9);  // apart, as above
  MergeStates<LseBase::kLog2> many;
  MergeState<LseBase::kNatural> two;
  Merges() {
    many.v = ConstTensorView(v.data(), DType::kF32, {2, 3, 1, 4});
    many.s = ConstTensorView(s.data(), DType::kF32, {2, 3, 1});
    many.out = TensorView(outputs.data() + kApart, DType::kF32, {2, 1, 4});
    many.lse = Log2Lse(TensorView(outputs.data() + 2 * kApart, DType::kF32, {2, 1}));
    two.v_a = two.v_b = ConstTensorView(v.data(), DType::kF32, {2, 1, 4});
    two.s_a = two.s_b = ConstTensorView(s.data(), DType::kF32, {2, 1});
    two.out = many.out;
    two.lse = NaturalLse(many.lse.tensor);
  }
};

void expect_merge(const Ids& expected, const std::function<void(Merges&)>& plant) {
  Merges m;
  plant(m);
  Status status = merge_states(m.many);
  status.add(merge_state(m.two));
  EXPECT_EQ(ids(status), expected);
  // Each call writes all or nothing; in these cases at least one of the two is refused.
  EXPECT_EQ(ids(validate(m.many)).size() + ids(validate(m.two)).size(), expected.size());
}

TEST(Validate, MergesAgreeInShape) {
  expect_merge({}, [](Merges&) {});
  expect_merge({"input.shape v.shape"}, [](Merges& m) { m.many.v.rank = 3; });
  expect_merge({"input.shape s.shape"}, [](Merges& m) { m.many.s.shape[1] = 2; });
  expect_merge({"input.dtype s.dtype"}, [](Merges& m) { m.many.s.dtype = DType::kF16; });
  expect_merge({"input.dtype v.dtype"}, [](Merges& m) { m.many.v.dtype = DType::kE4M3; });
  expect_merge({"input.shape out.shape", "input.shape lse.shape"},
               [](Merges& m) { m.many.out.shape[1] = 2, m.many.lse.tensor.shape[0] = 1; });
  expect_merge({"input.alias out"}, [](Merges& m) { m.many.v.data = m.many.out.data; });
  expect_merge({"input.shape v_b.shape"}, [](Merges& m) { m.two.v_b.shape[2] = 3; });
  expect_merge({"input.shape s_a.shape", "input.shape s_b.shape"},
               [](Merges& m) { m.two.s_a.shape[0] = m.two.s_b.shape[0] = 5; });
  expect_merge({"input.dtype v_a.dtype"}, [](Merges& m) { m.two.v_a.dtype = DType::kU8; });
  expect_merge({"input.alias lse"}, [](Merges& m) { m.two.lse.tensor.data = m.two.out.data; });
}

TEST(Validate, ARefusedMergeWritesNothing) {
  Merges m;
  m.many.s.dtype = DType::kI32;
  m.two.s_b.data = nullptr;
  EXPECT_EQ(ids(merge_states(m.many)), Ids{"input.dtype s.dtype"});
  EXPECT_EQ(ids(merge_state(m.two)), Ids{"input.null s_b.data"});
  EXPECT_EQ(m.outputs, std::vector<float>(3 * kApart, 9));
}

}  // namespace
}  // namespace shadowgraph::validate_test
