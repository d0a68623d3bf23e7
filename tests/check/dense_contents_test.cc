// K and V are a function of contents: equal where the tokens are, and only there.
#include "check/worlds/dense_contents.h"

#include <gtest/gtest.h>

#include <set>

#include "check/runs.h"
#include "core/float_formats.h"

namespace shadowgraph::dense_contents_test {
namespace {

std::vector<std::byte> bytes(std::span<const std::byte> b) { return {b.begin(), b.end()}; }

TEST(DenseContents, BytesDependOnTheTokensAndOnNothingElse) {
  const LayerKind kind = small_layer();
  const RunnerOptions options;
  DenseContents a(kind, options, {}, 7), b(kind, options, {}, 7), other(kind, options, {}, 8);
  const TokenContent first{11, 1, 0}, second{12, 1, 1}, again{11, 5, 0};
  const int32_t in_a = a.number(first);
  EXPECT_NE(a.number(second), in_a);
  EXPECT_EQ(a.number(again), in_a) << "the tokens are the same, whoever's they are";
  EXPECT_NE(b.number(second), b.number(first));  // in another order
  EXPECT_EQ(bytes(a.stored_k(in_a)), bytes(b.stored_k(b.number(first))));
  EXPECT_EQ(bytes(a.stored_v(in_a)), bytes(b.stored_v(b.number(first))));
  EXPECT_NE(bytes(a.stored_k(in_a)), bytes(a.stored_k(a.number(second))));
  EXPECT_NE(bytes(a.stored_v(in_a)), bytes(a.stored_v(a.number(second))));
  EXPECT_NE(bytes(a.stored_k(in_a)), bytes(other.stored_k(other.number(first)))) << "a layer";
}

TEST(DenseContents, ShiftedKeysBeginWithOneNumber) {
  const LayerKind kind = small_layer();
  RunnerOptions options;
  options.data = RunnerData::kShifted;
  DenseContents contents(kind, options, {}, 7);
  const auto dim = static_cast<size_t>(kind.params.head_dim_qk);
  const int32_t a = contents.number({11, 1, 0}), b = contents.number({12, 1, 1});
  for (size_t i = 0; i < contents.given_k(a).size(); ++i) {
    const bool begins = i % dim == 0;
    EXPECT_EQ(contents.given_k(a)[i] == contents.given_k(b)[i], begins) << i;
  }
}

TEST(DenseContents, WhatIsGivenIsWhatPoolsGiveBack) {
  const LayerKind kind = small_layer();
  RunnerOptions options;
  options.kv_dtype = DType::kE4M3;
  const LayerValues values{.k_scale = 0.25f, .v_scale = 4};
  DenseContents contents(kind, options, values, 7);
  const int32_t number = contents.number({11, 1, 0});
  const auto check = [&](std::span<const float> given, std::span<const std::byte> stored, float s) {
    for (size_t i = 0; i < given.size(); ++i)
      EXPECT_EQ(load_float(stored.data(), options.kv_dtype, static_cast<int64_t>(i)) * s, given[i]);
  };
  check(contents.given_k(number), contents.stored_k(number), values.k_scale);
  check(contents.given_v(number), contents.stored_v(number), values.v_scale);
}

TEST(DenseContents, NoTwoKeysBeginWithOneSelector) {
  const LayerKind kind = small_layer();
  RunnerOptions options;
  options.data = RunnerData::kSelector;
  DenseContents contents(kind, options, {}, 7);
  std::set<float> selectors;
  const auto dim = static_cast<size_t>(kind.params.head_dim_qk);
  size_t keys = 0;
  for (Chain chain = 0; chain < 3000; ++chain) {
    const std::span<const float> k = contents.given_k(contents.number({chain, 1, 0}));
    for (size_t i = 0; i < k.size(); i += dim, ++keys) selectors.insert(k[i]);
  }
  EXPECT_EQ(selectors.size(), keys);
}

}  // namespace
}  // namespace shadowgraph::dense_contents_test
