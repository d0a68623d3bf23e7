#include "kernels/sparse/index_lists.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/footprint_elements.h"
#include "kernels/small_indexer.h"
#include "oracle/indexer_oracle.h"

namespace shadowgraph::index_lists_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Choices among scores of one token and more.
struct SmallChoice {
  int64_t tokens = 1, width = 0, topk = 4;
  std::vector<int32_t> ks, ke;
  Bytes logits, indices;
  CallOptions options;

  SmallChoice(int64_t n, int64_t w, int64_t most) : tokens(n), width(w), topk(most) {
    ke.assign(static_cast<size_t>(n), static_cast<int32_t>(w));
    logits.resize(static_cast<size_t>(n * w) * 4);
    indices.assign(static_cast<size_t>(n * most) * 4, std::byte{0x7e});
  }
  SmallChoice(const std::vector<float>& scores, int64_t most)
      : SmallChoice(1, std::ssize(scores), most) {
    logits = bytes_of(scores);
  }
  SelectIndices call() {
    SelectIndices c;
    c.logits = ConstTensorView(logits.data(), DType::kF32, {tokens, width});
    c.ks = ks, c.ke = ke;
    c.indices = TensorView(indices.data(), DType::kI32, {tokens, topk});
    c.options = options;
    return c;
  }
  std::string run() { return select_indices(call()).to_string(); }
  std::vector<int32_t> chosen(int64_t token = 0) const {
    const auto all = values_of<int32_t>(indices);
    return {all.begin() + token * topk, all.begin() + (token + 1) * topk};
  }
};

using List = std::vector<int32_t>;

List chosen(const std::vector<float>& scores, int64_t most) {
  SmallChoice s(scores, most);
  EXPECT_EQ(s.run(), "ok");
  return s.chosen();
}

TEST(SelectIndices, TheLargestOfEqualOnesTheFirst) {
  EXPECT_EQ(chosen({1, 5, 3, 5, 2}, 2), (List{1, 3}));
  EXPECT_EQ(chosen({1, 5, 3, 5, 3}, 3), (List{1, 2, 3}));
  EXPECT_EQ(chosen({-1, -5, -3, 0, -0.F}, 1), (List{3}));
  EXPECT_EQ(chosen({-0.F, 0, -1e-40F}, 1), (List{0}));
  EXPECT_EQ(chosen({7, 7, 7, 7}, 2), (List{0, 1}));
  EXPECT_EQ(chosen({1, 2}, 4), (List{0, 1, -1, -1}));
  EXPECT_EQ(chosen({-kInf, 2, -kInf}, 2), (List{0, 1}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(chosen({nan, -nan, -1e38F, kInf}, 2), (List{2, 3}));
  EXPECT_EQ(chosen({nan, -kInf, nan, 1}, 2), (List{0, 3}));
  EXPECT_EQ(chosen({}, 2), (List{-1, -1}));
}

TEST(SelectIndices, AChoiceIsTheOracles) {
  Rng rng(9);
  for (int n = 0; n < 60; ++n) {
    const int64_t width = 1 + rng.below(300), topk = 1 + rng.below(64);
    SmallChoice s(5, width, topk);
    for (int64_t i = 0; i < 5 * width; ++i) {
      // A few values, neighbouring floats, and all magnitudes.
      const float x = n % 3 == 0 ? static_cast<float>(rng.below(4)) - 2
                      : n % 3 == 1
                          ? std::nextafter(1.F, static_cast<float>(rng.below(3)))
                          : std::ldexp(rng.signed_unit(), static_cast<int>(rng.below(90)) - 45);
      store_float(s.logits.data(), DType::kF32, i, x);
    }
    for (size_t t = 0; t < 5; ++t) {
      s.ks.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(width))));
      s.ke[t] =
          s.ks[t] + static_cast<int32_t>(rng.below(static_cast<uint32_t>(width - s.ks[t] + 1)));
    }
    s.options.num_threads = 1 + n % 3;
    ASSERT_EQ(s.run(), "ok");
    for (int64_t t = 0; t < 5; ++t) {
      std::vector<double> scores;
      for (int64_t i = s.ks[static_cast<size_t>(t)]; i < s.ke[static_cast<size_t>(t)]; ++i)
        scores.push_back(load_float(s.logits.data(), DType::kF32, t * width + i));
      List right = largest_places(scores, topk);
      right.resize(static_cast<size_t>(topk), -1);
      ASSERT_EQ(s.chosen(t), right) << n << ", " << t;
    }
  }
}

TEST(SelectIndices, ItReadsScoresWhereThereIsAChoice) {
  SmallChoice s(3, 10, 4);
  s.ks = {0, 3, 5}, s.ke = {4, 8, 10};
  const Footprint spans = select_indices_footprint(s.call());
  const auto read = elements(spans, s.logits, Access::kRead);
  EXPECT_EQ(read, (std::set<int64_t>{13, 14, 15, 16, 17, 25, 26, 27, 28, 29}));
  EXPECT_EQ(elements(spans, s.indices, Access::kWrite).size(), 12U);
  Rng rng(1);
  s.logits = random_f32(rng, 30);
  SmallChoice poisoned = s;
  poison_others(select_indices_footprint(poisoned.call()), &poisoned.logits, Access::kRead);
  ASSERT_EQ(s.run(), "ok");
  ASSERT_EQ(poisoned.run(), "ok");
  EXPECT_EQ(s.indices, poisoned.indices);
}

/// Two tokens of five chosen positions each.
struct SmallTransform {
  Bytes indices = bytes_of(List{3, -1, 0, 2, -7, -1, 1, 1, -1, 3});
  Bytes table = bytes_of(List{10, 11, 12, 13, 20, 21, 22, -1}), out = Bytes(40, std::byte{0x7e});
  List rows = {1, 0}, offsets;

  TransformIndices call() {
    TransformIndices c;
    c.indices = ConstTensorView(indices.data(), DType::kI32, {2, 5});
    if (offsets.empty()) {
      c.page_table_1 = ConstTensorView(table.data(), DType::kI32, {2, 4});
      c.rows = rows;
    }
    c.offsets = offsets;
    c.out = TensorView(out.data(), DType::kI32, {2, 5});
    return c;
  }
  List run() {
    EXPECT_EQ(transform_indices(call()).to_string(), "ok");
    return values_of<int32_t>(out);
  }
};

TEST(TransformIndices, PositionsBecomeSlotsAndNoneStaysNone) {
  SmallTransform s;
  EXPECT_EQ(s.run(), (List{-1, -1, 20, 22, -1, -1, 11, 11, -1, 13}));
  s.rows = {};
  EXPECT_EQ(s.run(), (List{13, -1, 10, 12, -1, -1, 21, 21, -1, -1}));
  s.offsets = {100, 200};
  EXPECT_EQ(s.run(), (List{103, -1, 100, 102, -1, -1, 201, 201, -1, 203}));
}

TEST(TransformIndices, ItReadsTheEntriesThatItNames) {
  SmallTransform s;
  const Footprint spans = transform_indices_footprint(s.call());
  EXPECT_EQ(elements(spans, s.table, Access::kRead), (std::set<int64_t>{1, 3, 4, 6, 7}));
  EXPECT_EQ(elements(spans, s.indices, Access::kRead).size(), 10U);
  EXPECT_EQ(elements(spans, s.out, Access::kWrite).size(), 10U);
}

TEST(CompactIndices, WhatIsThereInOrderAndNothingBehindIt) {
  SmallTransform s;
  List indptr = {0, 3, 6}, kv_indices(9, -7);
  CompactIndices c;
  c.indices = s.call().indices, c.kv_indptr = indptr, c.kv_indices = kv_indices;
  const Footprint spans = compact_indices_footprint(c);
  ASSERT_EQ(compact_indices(c).to_string(), "ok");
  EXPECT_EQ(kv_indices, (List{3, 0, 2, 1, 1, 3, -7, -7, -7}));
  int64_t written = 0;
  for (const AccessSpan& span : spans)
    if (span.access == Access::kWrite) written += span.count;
  EXPECT_EQ(written, 6);
}

}  // namespace
}  // namespace shadowgraph::index_lists_test
