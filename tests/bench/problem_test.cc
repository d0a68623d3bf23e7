#include "bench/problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "check/bounds/compare.h"
#include "core/float_formats.h"

namespace shadowgraph::bench::problem_test {
namespace {

constexpr int32_t kRagged[] = {17, 64, 3};

/// Small ones of every kind.
std::vector<Shape> small_shapes() {
  const DType f32 = DType::kF32, bf16 = DType::kBF16;
  std::vector<Shape> shapes = {decode(f32, 3, 40),
                               decode(DType::kF16, 2, 33).sequential(),
                               decode(bf16, 2, 48).nhd(),
                               decode(bf16, 2, 100).fast(),
                               decode(bf16, 2, 100).window(20),
                               prefill(f32, 37),
                               prefill(bf16, 50).fast(),
                               extend(f32, 5, 60),
                               verify_tree(f32, 9, 40),
                               ragged_decode(f32, kRagged),
                               decode(f32, 2, 32).in_cache(),
                               prefill(f32, 64).window(9)};
  for (Shape& s : shapes) s = s.heads(4, 2).dim(32);
  Shape mla = mla_decode(bf16, 2, 40).fast();
  mla.num_qo_heads = 8;
  shapes.push_back(mla);
  return shapes;
}

constexpr double kSmallPool = 1 << 18;

TEST(Problem, HasTheOraclesResultsOnEveryTable) {
  for (const Shape& shape : small_shapes()) {
    Problem problem(shape, 1, 2, kSmallPool);
    for (int64_t i = 0; i <= problem.num_tables(); ++i) {
      const Status status = problem.run();
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const Status checked = problem.check();
    EXPECT_TRUE(checked.ok()) << checked.to_string();
  }
}

TEST(Problem, AWrongElementOfAJudgedRowIsSeen) {
  for (const Shape& shape : small_shapes()) {
    Problem problem(shape, 1, 1, kSmallPool);
    ASSERT_TRUE(problem.run().ok());
    const TensorView& out = problem.call().out;
    const int64_t last = out.numel() - 1;  // last token of the last request
    store_float(out.data, out.dtype, last, load_float(out.data, out.dtype, last) + 1);
    EXPECT_FALSE(problem.check().ok());
  }
}

TEST(Problem, NoPageOfAColdPoolIsReadTwiceInARotation) {
  for (const Shape& shape : small_shapes()) {
    if (shape.hot) continue;
    Problem problem(shape, 1, 1, kSmallPool);
    EXPECT_GE(static_cast<double>(problem.num_tables()) * problem.kv_bytes(), kSmallPool);
    std::set<int32_t> read;
    for (int64_t i = 0; i < problem.num_tables(); ++i) {
      ASSERT_TRUE(problem.run().ok());
      const PageTable& pages = problem.call().pages;
      for (int32_t r = 0; r < shape.batch; ++r) {
        const int32_t keys = pages.cache_seqlens[static_cast<size_t>(r)];
        for (int32_t p = first_visible(shape, r) / kPageSize; p * kPageSize < keys; ++p)
          EXPECT_TRUE(
              read.insert(pages.page_table[static_cast<size_t>(r * pages.max_pages + p)]).second);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(read.size()), problem.call().cache.num_pages);
  }
}

TEST(Problem, PlainKeysAndValuesAreWhatTheCacheHolds) {
  Problem problem(prefill(DType::kF32, 37).heads(4, 2).dim(32), 1, 1, kSmallPool);
  ASSERT_TRUE(problem.run().ok());
  const auto k = problem.plain_keys(0), v = problem.plain_values(0);
  ASSERT_EQ(k.size(), 37u * 2 * 32);
  // The same keys, packed: the same bits.
  const PagedAttention& paged = problem.call();
  std::vector<float> out(static_cast<size_t>(paged.out.numel()));
  const std::vector<int32_t> indptr = {0, 37};
  RaggedAttention packed;
  packed.q = paged.q, packed.params = paged.params;
  packed.k = ConstTensorView(k.data(), DType::kF32, {37, 2, 32});
  packed.v = ConstTensorView(v.data(), DType::kF32, {37, 2, 32});
  packed.cu_seqlens_q = packed.cu_seqlens_k = indptr;
  packed.out = TensorView(out.data(), DType::kF32, {37, 4, 32});
  ASSERT_TRUE(attention_varlen(packed).ok());
  EXPECT_EQ(std::memcmp(out.data(), paged.out.data, out.size() * sizeof(float)), 0);
}

TEST(Shapes, CountVisiblePairsAndTheirOwnKeysOnly) {
  const double per_pair = 4 * 128 * 32, per_key = 2 * 128 * 8 * 4;
  EXPECT_EQ(flop_of(decode(DType::kF32, 8, 100)), 800 * per_pair);
  EXPECT_EQ(kv_bytes_of(decode(DType::kF32, 8, 100)), 800 * per_key);
  EXPECT_EQ(flop_of(prefill(DType::kF32, 4)), (1 + 2 + 3 + 4) * per_pair);
  EXPECT_EQ(flop_of(prefill(DType::kF32, 4).window(1)), (1 + 2 + 2 + 2) * per_pair);
  EXPECT_EQ(flop_of(extend(DType::kF32, 2, 10)), (11 + 12) * per_pair);
  EXPECT_EQ(kv_bytes_of(decode(DType::kF32, 1, 100).window(9)), 10 * per_key);
  EXPECT_EQ(kv_bytes_of(ragged_decode(DType::kBF16, kRagged)), (17 + 64 + 3) * per_key / 2);
  EXPECT_EQ(flop_of(mla_decode(DType::kBF16, 1, 10)), 10 * 2 * (576 + 512) * 128);
  EXPECT_EQ(kv_bytes_of(mla_decode(DType::kBF16, 1, 10)), 10 * 576 * 2);
}

TEST(Shapes, ATreesTokensSeeThePrefixTheirAncestorsAndThemselves) {
  // Counted from the mask that the call has.
  Problem problem(verify_tree(DType::kF32, 16, 40).heads(2, 1).dim(16), 1, 1, kSmallPool);
  const auto mask = problem.call().params.custom_mask.data;
  const auto seen = static_cast<double>(std::count(mask.begin(), mask.end(), 1));
  EXPECT_EQ(problem.flop(), seen * 4 * 16 * 2);
  EXPECT_LT(seen, 16 * 40 + 16 * 17 / 2);
  EXPECT_GT(seen, 16 * 41);
}

}  // namespace
}  // namespace shadowgraph::bench::problem_test
