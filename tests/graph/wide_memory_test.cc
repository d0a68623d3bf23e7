// Addresses and strides beyond 32 bits: copies and sets of rows that lie far apart, and buffers
// whose rows do, cost only what they touch.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "graph/memory/memory.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::wide_memory_test {
namespace {

using enum DeviceError;

/// Why the tests below skip themselves without kHasWideMemory.
constexpr const char* kTooWide =
    "a sanitizer takes a byte of its own for every 8 of a mapping: 2 GiB and more for these";

constexpr size_t kPitch = (size_t{1} << 32) + 64, kRows = 4, kWidth = 16;

class WideRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHasWideMemory) GTEST_SKIP() << kTooWide;
    ASSERT_EQ(device_.malloc(kPitch * kRows, &far_), kSuccess);
    ASSERT_EQ(device_.malloc(kWidth * kRows, &near_), kSuccess);
    ASSERT_EQ(device_.graph_create(&graph_), kSuccess);
  }
  std::byte* row(size_t r) const { return static_cast<std::byte*>(far_) + r * kPitch; }
  /// The findings of a graph of one node.
  std::string found(NodeParams params) {
    NodeHandle node;
    EXPECT_EQ(device_.graph_add_node(graph_, {}, params, &node), kSuccess);
    ExecHandle exec;
    EXPECT_EQ(device_.graph_instantiate(graph_, 0, &exec), kSuccess);
    EXPECT_EQ(device_.graph_launch(exec, kLegacyStream), kSuccess);
    EXPECT_EQ(device_.device_synchronize(), kSuccess);
    Status status = device_.take_findings();
    return status.ok() ? "" : status.findings()[0].id;
  }

  SimDevice device_;
  void *far_ = nullptr, *near_ = nullptr;
  GraphHandle graph_;
};

TEST_F(WideRows, ASetOfThemWritesEachAndNothingElse) {
  EXPECT_EQ(found(MemsetParams{far_, 7, 1, kWidth, kRows, kPitch}), "");
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(row(r)[0], std::byte{7});
    EXPECT_EQ(row(r)[kWidth - 1], std::byte{7});
    if (r > 0) {
      EXPECT_EQ(row(r)[kWidth], std::byte{0}) << "untouched";
      EXPECT_EQ(row(r)[-64], std::byte{0}) << "where a pitch of 32 bits leads to";
    }
  }
}

TEST_F(WideRows, ACopyOfThemTakesEach) {
  for (size_t r = 0; r < kRows; ++r)
    ASSERT_EQ(device_.memset({row(r), static_cast<uint32_t>(r + 1), 1, kWidth, 1, 0}), kSuccess);
  EXPECT_EQ(
      found(MemcpyParams{near_, far_, kWidth, kRows, kWidth, kPitch, MemcpyKind::kDeviceToDevice}),
      "");
  const auto* got = static_cast<const std::byte*>(near_);
  for (size_t r = 0; r < kRows; ++r) EXPECT_EQ(got[r * kWidth], static_cast<std::byte>(r + 1)) << r;
}

TEST_F(WideRows, ARowBehindTheAllocationIsFound) {
  EXPECT_EQ(found(MemsetParams{row(1), 7, 1, kWidth, kRows, kPitch}), "mem.red_zone");
}

TEST(WideBuffer, ItsRowsLieApartAndItsElementsCountWhatIsBetween) {
  Buffer b;
  b.dtype = DType::kF16, b.shape = {5, 2, 4}, b.row_stride = int64_t{1} << 31;
  EXPECT_EQ(b.numel(), (int64_t{4} << 31) + 8);
  EXPECT_EQ(b.bytes() / 2, static_cast<size_t>(b.numel()));
  EXPECT_EQ(b.rows(3, 1).first, int64_t{3} << 31);
  EXPECT_EQ(b.rows(3, 1).count, 8);
  EXPECT_EQ(b.rows(1, 2).count, b.row_stride + 8);
  EXPECT_EQ(b.rows(1, 0).count, 0);
  const TensorView v = b.view();
  EXPECT_EQ(v.stride[0], b.row_stride);
  EXPECT_EQ(v.stride[1], 4);
  EXPECT_EQ(v.offset(4, 1), (int64_t{4} << 31) + 4);
  b.shape[0] = 0;
  EXPECT_EQ(b.numel(), 0);
}

TEST(WideBuffer, AnArenaBindsItWritesItAndJudgesItsRows) {
  if (!kHasWideMemory) GTEST_SKIP() << kTooWide;
  SimDevice device({.choose = {}, .memory_bytes = size_t{1} << 39});
  Stream stream(device);
  Arena arena(device, size_t{1} << 38);
  std::vector<Buffer> bound;
  const BufferSpec wide{"wide", DType::kF32, {6, 4}, Lifetime::kPersistent, 4, int64_t{1} << 32};
  const BufferSpec behind{"behind", DType::kF32, {4}, Lifetime::kPersistent, 4};
  ASSERT_EQ(arena.bind(std::vector{wide, behind}, &bound).to_string(), "ok");
  EXPECT_GE(bound[1].data, bound[0].data + bound[0].bytes());
  for (int64_t r = 0; r < 6; ++r) stream.fill(bound[0].data + bound[0].rows(r, 1).first * 4, 1, 16);
  stream.synchronize();
  stream.copy(bound[1].data, bound[0].data + bound[0].rows(5, 1).first * 4, 16);
  stream.synchronize();
  EXPECT_EQ(device.take_findings().to_string(), "ok");
  stream.copy(bound[1].data, bound[0].data + bound[0].rows(5, 1).first * 4 - 16, 16);
  stream.synchronize();
  EXPECT_EQ(device.take_findings().findings()[0].id, "mem.uninit_read") << "between rows";
  stream.copy(bound[1].data, bound[0].data + bound[0].bytes(), 16);
  stream.synchronize();
  EXPECT_EQ(device.take_findings().findings()[0].id, "mem.red_zone");
}

TEST(WideBuffer, WhatOverflowsIsRefused) {
  SimDevice device({.choose = {}, .memory_bytes = size_t{1} << 20});
  const Arena arena(device, 1 << 16);
  constexpr int64_t kHuge = int64_t{1} << 62;
  int bound_so_far = 0;
  const auto refused = [&](std::vector<int64_t> shape, int64_t granule, int64_t row_stride) {
    std::vector<Buffer> bound;
    Arena scope = arena.scope(std::to_string(bound_so_far++));
    const BufferSpec spec{"b",     DType::kF32, std::move(shape), Lifetime::kPersistent,
                          granule, row_stride};
    const Status status = scope.bind({&spec, 1}, &bound);
    return status.ok() ? std::string() : status.findings()[0].id;
  };
  EXPECT_EQ(refused({4, 4}, 4, 0), "");
  EXPECT_EQ(refused({kHuge, 2}, 1, 0), "input.shape") << "elements";
  EXPECT_EQ(refused({kHuge}, 1, 0), "input.shape") << "bytes";
  EXPECT_EQ(refused({3, 4}, 4, kHuge), "input.shape") << "rows apart";
  EXPECT_EQ(refused({3, 4}, 4, 6), "input.shape") << "granules";
  EXPECT_EQ(refused({3, 4}, 1, 3), "input.shape") << "rows that overlap";
  EXPECT_EQ(refused({1 << 20}, 1, 0), "input.memory");
}

}  // namespace
}  // namespace shadowgraph::wide_memory_test
