#include "shadowgraph/tensor_view.h"

#include <gtest/gtest.h>

namespace shadowgraph::tensor_view_test {
namespace {

TEST(TensorView, IsRowMajorWithoutStrides) {
  std::byte memory[2 * 3 * 4 * 2];
  const TensorView t(memory, DType::kF16, {2, 3, 4});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.numel(), 24);
  int64_t next = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k, ++next) {
        EXPECT_EQ(t.offset(i, j, k), next);
        EXPECT_EQ(t.at(i, j, k), memory + 2 * next);
      }
    }
  }
}

TEST(TensorView, StridesCountElements) {
  std::byte memory[400];
  const TensorView t(memory + 200, DType::kF32, {2, 3}, {-10, 4});
  EXPECT_EQ(t.offset(1, 2), -2);
  EXPECT_EQ(t.at(1, 2), memory + 200 - 8);
}

TEST(TensorView, MissingIndicesAreZero) {
  std::byte memory[64];
  const TensorView t(memory, DType::kU8, {4, 4, 4});
  EXPECT_EQ(t.at(2), memory + 32);
  EXPECT_EQ(t.at(2, 1), memory + 36);
}

TEST(TensorView, AWritableViewIsAReadOnlyOne) {
  std::byte memory[64];
  const TensorView t(memory, DType::kBF16, {4, 5}, {6, 1});
  const ConstTensorView c = t;
  EXPECT_EQ(c.data, t.data);
  EXPECT_EQ(c.dtype, t.dtype);
  EXPECT_EQ(c.rank, t.rank);
  EXPECT_EQ(c.shape, t.shape);
  EXPECT_EQ(c.stride, t.stride);
  static_assert(!std::is_convertible_v<ConstTensorView, TensorView>);
}

TEST(TensorView, OnlyAViewWithARankIsDefined) {
  EXPECT_FALSE(TensorView().defined());
  EXPECT_TRUE(TensorView(nullptr, DType::kF32, {0}).defined());
  EXPECT_EQ(TensorView(nullptr, DType::kF32, {3, 0}).numel(), 0);
}

TEST(TensorView, StridesOfAbsurdShapesWrapInsteadOfOverflowing) {
  const TensorView t(nullptr, DType::kF32, {2, INT64_MAX, INT64_MAX});
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.stride[1], INT64_MAX);
  EXPECT_EQ(t.stride[0], 1);  // (2^63 - 1)^2 modulo 2^64
}

}  // namespace
}  // namespace shadowgraph::tensor_view_test
