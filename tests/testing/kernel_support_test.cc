// The test draws all that a kernel declares to support, and nothing else. The engine's own kernels
// support everything, and pass whatever of it is declared.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/laws.h"
#include "testing/broken_laws.h"
#include "testing/kernel_faults.h"

namespace shadowgraph::testing::kernel_support_test {
namespace {

const Kernel kEngine = {
    .paged =
        [](const PagedAttention& call) {
          EXPECT_EQ(attention_with_kvcache(call).to_string(), "ok");
        },
    .ragged =
        [](const RaggedAttention& call) { EXPECT_EQ(attention_varlen(call).to_string(), "ok"); }};

/// Short calls of all that there is.
KernelOptions everything() {
  KernelOptions o;
  KernelSupport& s = o.support;
  s.calls = {KernelCall::kPagedDecode, KernelCall::kPagedExtend, KernelCall::kRagged};
  s.terms = {Term::kCausal, Term::kWindowLeft, Term::kWindowRight, Term::kSoftCap,
             Term::kSinks,  Term::kBoolMask,   Term::kPackedMask};
  for (auto t = static_cast<int>(Term::kAlibi); t <= static_cast<int>(Term::kPaddedRows); ++t)
    s.terms.push_back(static_cast<Term>(t));
  s.types = {{DType::kF32, DType::kF32, DType::kF32},   {DType::kF16, DType::kF16, DType::kF16},
             {DType::kBF16, DType::kBF16, DType::kF32}, {DType::kBF16, DType::kE4M3, DType::kBF16},
             {DType::kF16, DType::kE5M2, DType::kF16},  {DType::kF32, DType::kI8, DType::kF32}};
  s.head_dims = {{16, 16}, {40, 24}};
  s.group_sizes = {1, 4};
  s.num_kv_heads = {1, 3};
  s.page_sizes = {1, 16, 32};
  s.layouts = {KvLayout::kNhd,        KvLayout::kHnd,       KvLayout::kStackedNhd,
               KvLayout::kStackedHnd, KvLayout::kMlaLatent, KvLayout::kPanels};
  s.tables = {PageTable::Form::kDense, PageTable::Form::kCsr};
  s.strided = true;
  s.max_requests = 4, s.max_kv_len = 160;
  s.propagates_nan = true;
  s.arithmetic = "ours_portable";
  o.calls = 1500;
  return o;
}

TEST(KernelSupport, TheEngineHoldsAllThatCanBeDeclared) {
  for (const LseSink sink : {LseSink::kExcluded, LseSink::kIncluded}) {
    KernelOptions o = everything();
    o.support.lse_sink = sink, o.seed = sink == LseSink::kIncluded ? 2 : 1;
    int64_t calls = 0;
    EXPECT_EQ(check(o, kEngine, &calls).to_string(), "ok");
    EXPECT_GT(calls, o.calls / 2);
  }
}

TEST(KernelSupport, DrawsNothingThatIsNotDeclared) {
  KernelOptions o;
  o.support.always = {Term::kCausal, Term::kSinks};
  o.support.head_dims = {{8, 8}};
  o.support.num_kv_heads = {2};
  o.support.group_sizes = {3};
  o.support.empty_rows = false, o.support.far_pages = false;
  o.support.lse = false;
  o.support.max_requests = 2, o.support.max_kv_len = 70;
  o.calls = 300;
  const auto paged = [](const PagedAttention& c) {
    EXPECT_TRUE(c.params.causal);
    EXPECT_EQ(std::ssize(c.params.sinks), 6);
    EXPECT_EQ(c.params.window_left, -1);
    EXPECT_EQ(c.params.window_right, -1);
    EXPECT_EQ(c.params.logits_soft_cap, 0);
    EXPECT_EQ(c.params.custom_mask.kind, CustomMask::Kind::kNone);
    EXPECT_FALSE(c.params.terms.any());
    EXPECT_EQ(c.params.num_qo_heads, 6);
    EXPECT_EQ(c.params.head_dim_qk, 8);
    EXPECT_FALSE(c.lse.defined());
    EXPECT_TRUE(c.cu_seqlens_q.empty());
    EXPECT_EQ(c.pages.form, PageTable::Form::kDense);
    EXPECT_EQ(c.cache.page_size, 16);
    EXPECT_EQ(c.q.stride[0], 48) << "no gaps";
    EXPECT_LE(c.pages.batch(), 2);
    for (const int32_t len : c.pages.cache_seqlens) EXPECT_TRUE(len > 0 && len <= 70);
    TiledKernel(c, Slip::kNone).run();
  };
  EXPECT_EQ(check(o, {.paged = paged, .ragged = {}}).to_string(), "ok");
}

TEST(KernelSupport, WhatNeverComesUpIsFound) {
  KernelOptions o;
  o.support.layouts = {KvLayout::kNhd, KvLayout::kStackedNhd};
  o.support.head_dims = {{16, 8}};  // not in one tensor
  o.support.max_kv_len = 20, o.calls = 200;
  const Kernel kernel = {
      .paged = [](const PagedAttention& c) { TiledKernel(c, Slip::kNone).run(); }, .ragged = {}};
  EXPECT_EQ(check(o, kernel).to_string(),
            "test.nothing: support.layouts is none, expected a call with stacked_nhd");
  o.calls = 1;
  EXPECT_FALSE(check(o, kernel).ok());
}

TEST(KernelSupport, TermsThatExcludeEachOtherAreNamed) {
  KernelOptions o;
  o.support.always = {Term::kHeadScales};
  o.support.terms = {Term::kRequestHeadScales, Term::kMaskOfHeads, Term::kPaddedRows};
  EXPECT_EQ(
      check(o, kEngine).to_string(),
      "test.options: support.terms is k_scales of requests, expected no k_scales of requests: "
      "every call has k_scales instead\n"
      "test.options: support.terms is neither, expected custom_mask bool or custom_mask "
      "packed, as there is custom_mask heads\n"
      "test.options: support.terms is seqused_q, expected no seqused_q: a decode has none");
  o.support = {};
  o.support.always = {Term::kPackedMask}, o.support.terms = {Term::kBoolMask};
  EXPECT_EQ(check(o, kEngine).to_string(),
            "test.options: support.terms is custom_mask bool, expected no custom_mask bool: every "
            "call has custom_mask packed instead");
  o.support.always = {};
  o.support.terms = {Term::kPackedMask, Term::kBoolMask, Term::kMaskOfHeads, Term::kHeadScales,
                     Term::kRequestHeadScales};
  o.support.max_kv_len = 40, o.calls = 400;
  EXPECT_EQ(check(o, kEngine).to_string(), "ok");
}

TEST(KernelSupport, BadOptionsAreFoundAtOnce) {
  KernelOptions o;
  o.support.calls = {KernelCall::kRagged};
  o.support.page_sizes = {16, 0};
  o.support.group_sizes = {};
  o.support.types = {{DType::kI8, DType::kF64, DType::kF32}};
  o.support.arithmetic = "plain_f23";
  o.calls = 0;
  EXPECT_EQ(check(o, {}).to_string(),
            "test.options: calls is 0, expected >= 1\n"
            "test.options: support.group_sizes is 0, expected >= 1\n"
            "test.options: support.page_sizes is 0, expected >= 1\n"
            "test.options: support.types.q is i8, expected f32, f16 or bf16\n"
            "test.options: support.types.kv is f64, expected a type of a cache\n"
            "test.options: kernel.ragged is none, expected a function, as support.calls says\n"
            "test.options: support.arithmetic is plain_f23, expected a name of `list arithmetics`; "
            "did you mean plain_f32?");
  o = {};
  o.choices = "1.2.x";
  EXPECT_EQ(ids(check(o, kEngine)), Ids{"test.options"});
}

TEST(KernelSupport, AnArithmeticHoldsOnlyItsOwnKernel) {
  KernelOptions o;
  o.support.types = {{DType::kF16, DType::kF16, DType::kF32}};
  o.support.max_kv_len = 100, o.calls = 100;
  const auto rounded = [](const PagedAttention& c) {
    TiledKernel(c, Slip::kNone).run();
    for (int64_t i = 0; i < c.out.numel(); ++i) {
      const float value = load_float(c.out.data, DType::kF32, i);
      store_float(c.out.data, DType::kF32, i, value * (1 + 0x1p-13f));
    }
  };
  const Kernel kernel = {.paged = rounded, .ragged = {}};
  EXPECT_FALSE(check(o, kernel).ok()) << "plain f32 arithmetic is closer";
}

TEST(KernelSupport, AnLseOfADeclaredBase) {
  KernelOptions o;
  o.support.max_kv_len = 40, o.calls = 100;
  o.support.lse_base = LseBase::kLog2;
  const auto kernel = [](Slip slip) {
    return Kernel{.paged = [slip](const PagedAttention& c) { TiledKernel(c, slip).run(); },
                  .ragged = {}};
  };
  EXPECT_EQ(check(o, kernel(Slip::kLseInBase2)).to_string(), "ok");
  EXPECT_EQ(ids(check(o, kernel(Slip::kNone))), Ids{"num.lse_bound"});
}

TEST(KernelSupport, AKernelsOwnMarkOfEmptyRows) {
  KernelOptions o;
  o.support.max_kv_len = 40, o.calls = 300;
  const auto marked = [](const PagedAttention& c) {
    TiledKernel(c, Slip::kNone).run();
    for (int64_t b = 0; b < c.pages.batch(); ++b) {
      if (c.pages.cache_seqlens[static_cast<size_t>(b)] > 0 || !c.lse.defined()) continue;
      for (int64_t h = 0; h < c.params.num_qo_heads; ++h)
        store_float(c.lse.tensor.data, DType::kF32, c.lse.tensor.offset(b, h),
                    std::numeric_limits<float>::infinity());
    }
  };
  const Kernel kernel = {.paged = marked, .ragged = {}};
  EXPECT_EQ(ids(check(o, kernel)), Ids{"num.empty_row"});
  o.support.empty_row.lse = std::numeric_limits<double>::infinity();
  EXPECT_EQ(check(o, kernel).to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::testing::kernel_support_test
