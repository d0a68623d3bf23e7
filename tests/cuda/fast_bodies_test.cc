// The fast bodies against the oracle, run by fibers: within their arithmetic's bound, whatever
// blocks share a request's keys, or its queries.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "bench/gpu/small_call.h"
#include "check/bounds/compare.h"
#include "cuda/gpu_on_cpu.h"
#include "launch/attention_launch.h"
#include "launch/merge_launch.h"
#include "launch/ragged_launch.h"

namespace shadowgraph::fast_bodies_test {
namespace {

void run_fast(const PagedAttention& call, int preference = 99) {
  const int64_t before = fast_gpu_bodies_run();
  use_fast_gpu_bodies(true, preference);
  ASSERT_TRUE(run_gpu_body(attention_launch(call)));
  use_fast_gpu_bodies(false);
  EXPECT_EQ(fast_gpu_bodies_run(), before + 1);
}

Judgement judged(const small::Shape& shape, const PagedAttention& call) {
  return judge(call, {call.out, call.lse.tensor}, *find_arithmetic(small::arithmetic_of(shape)),
               {.bounded = true});
}

void expect_bounds(int preference) {
  for (const auto& [name, shape] : small::shapes()) {
    if (preference == 0 && shape.q_lens.empty()) continue;
    small::Call c(shape);
    run_fast(c.call, preference);
    const Judgement j = judged(shape, c.call);
    EXPECT_TRUE(j.findings.ok()) << name << '\n' << j.findings.to_string();
  }
}

TEST(FastBodies, LieWithinTheirBounds) { expect_bounds(99); }

// Prefill by single warps, and decode with two tiles in shared memory instead of three.
TEST(FastBodies, ForOtherGpusLieWithinTheirBounds) {
  for (const int preference : {0, 4}) expect_bounds(preference);
}

TEST(FastBodies, LieWithinTheirBoundsWhereAWarpHasManyRequests) {
  set_gpu_room(2);
  expect_bounds(99);
  set_gpu_room(132);
}

TEST(FastBodies, RaggedKeysLieWithinTheBound) {
  const small::Shape shape{.lens = {70, 9}, .q_lens = {40, 9}, .group = 2};
  small::Call c(shape);
  const PagedAttention& paged = c.call;
  // The pool's first tokens, one request after the other.
  const std::vector<int32_t> cu_seqlens_k = {0, 70, 79};
  const auto tokens = [&](const KvPlane& p) {
    return TensorView(p.data, p.dtype, {79, paged.cache.num_kv_heads, p.head_dim});
  };
  RaggedAttention call;
  call.q = paged.q, call.out = paged.out, call.lse = paged.lse, call.params = paged.params;
  call.k = tokens(paged.cache.k), call.v = tokens(paged.cache.v);
  call.cu_seqlens_q = paged.cu_seqlens_q, call.cu_seqlens_k = cu_seqlens_k;
  const int64_t before = fast_gpu_bodies_run();
  use_fast_gpu_bodies(true);
  ASSERT_TRUE(run_gpu_body(ragged_launch(call)));
  use_fast_gpu_bodies(false);
  EXPECT_EQ(fast_gpu_bodies_run(), before + 1);
  const Judgement j = judge(call, {call.out, call.lse.tensor},
                            *find_arithmetic(small::arithmetic_of(shape)), {.bounded = true});
  EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
}

TEST(FastBodies, AMergeHasTheBitsOfTheCpu) {
  constexpr int64_t kRows = 3, kHeads = 2, kDim = 32;
  Rng rng(11);
  std::vector<uint16_t> a(kRows * kHeads * kDim), b(a.size()), here(a.size()), there(a.size());
  std::vector<float> s_a(kRows * kHeads), s_b(s_a.size()), lse_here(s_a.size()),
      lse_there(s_a.size());
  for (auto* values : {&a, &b}) {
    for (size_t i = 0; i < values->size(); ++i)
      store_float(reinterpret_cast<std::byte*>(values->data()), DType::kBF16,
                  static_cast<int64_t>(i), rng.signed_unit());
  }
  for (auto* values : {&s_a, &s_b})
    for (float& x : *values) x = rng.below(4) == 0 ? -INFINITY : 5 * rng.signed_unit();
  const auto call = [&](std::vector<uint16_t>& out, std::vector<float>& lse) {
    const auto rows = [](auto& of) {
      return TensorView(of.data(), DType::kBF16, {kRows, kHeads, kDim});
    };
    const auto lses = [](auto& of) { return TensorView(of.data(), DType::kF32, {kRows, kHeads}); };
    return MergeState<LseBase::kNatural>{
        rows(a), lses(s_a), rows(b), lses(s_b), rows(out), NaturalLse(lses(lse)), {}};
  };
  ASSERT_TRUE(merge_state(call(here, lse_here)).ok());
  const int64_t before = fast_gpu_bodies_run();
  use_fast_gpu_bodies(true);
  ASSERT_TRUE(run_gpu_body(merge_launch(call(there, lse_there))));
  use_fast_gpu_bodies(false);
  EXPECT_EQ(fast_gpu_bodies_run(), before + 1);
  EXPECT_EQ(there, here);
  EXPECT_EQ(lse_there, lse_here);
}

TEST(FastBodies, AKeyTooFewIsFound) {
  const small::Shape shape{.lens = {17}};
  small::Call c(shape);
  const_cast<int32_t&>(c.call.pages.cache_seqlens[0]) = 16;
  run_fast(c.call);
  const_cast<int32_t&>(c.call.pages.cache_seqlens[0]) = 17;
  EXPECT_FALSE(judged(shape, c.call).findings.ok());
}

// One NaN is in all logits of its token and head; in a request without others there is no number
// to be the largest.
TEST(FastBodies, ANaNIsNotLost) {
  for (const bool prefill : {false, true}) {
    for (const std::vector<int32_t>& lens : {std::vector{1}, std::vector{40}, std::vector{1100}}) {
      small::Shape shape{.lens = lens, .dim = 128};
      if (prefill) shape.q_lens = {1};
      small::Call c(shape);
      const KvPlane& k = c.call.cache.k;
      const int64_t page = c.call.pages.page_table[0];
      store_float(const_cast<std::byte*>(k.data), k.dtype, page * k.page_stride, NAN);
      run_fast(c.call);
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t dim = 0; dim < 128; ++dim)
          EXPECT_TRUE(std::isnan(load_float(c.call.out.at(0, head), DType::kF32, dim)));
        EXPECT_TRUE(std::isnan(load_float(c.call.lse.tensor.at(0, head), DType::kF32, 0)));
        EXPECT_FALSE(std::isnan(load_float(c.call.out.at(0, 4 + head), DType::kF32, 0)));
      }
    }
  }
}

// One block, and several blocks, one of which has the page.
TEST(FastBodies, APageThatIsNotInThePoolLosesTheRow) {
  for (const std::vector<int32_t>& lens : {std::vector{40, 40}, std::vector{1100, 600}}) {
    small::Call c({.lens = lens, .group = 9});
    const_cast<int32_t&>(c.call.pages.page_table[1]) = 999;
    run_fast(c.call);
    for (int64_t head = 0; head < 18; ++head) {
      uint32_t bits = 0;
      std::memcpy(&bits, c.call.out.at(0, head), 4);
      EXPECT_EQ(bits, 0xffffffffu) << head;
      std::memcpy(&bits, c.call.out.at(1, head), 4);
      EXPECT_NE(bits, 0xffffffffu) << head;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::fast_bodies_test
