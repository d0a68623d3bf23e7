// All orders of a graph: a result that depends on the order is a race that names both nodes.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "conformance/kernels.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::every_order_test {
namespace {

/// A graph of single-int kernels over one buffer of 8, on as many independent roots as wanted.
class EveryOrder : public ::testing::Test {
 protected:
  EveryOrder() {
    void* p = nullptr;
    device_.malloc(8 * sizeof(int32_t), &p);
    cells_ = static_cast<int32_t*>(p);
    device_.name_buffer(p, "cells");
    device_.memset({.dst = p, .width = 8 * sizeof(int32_t)});
    device_.stream_create_with_flags(kStreamNonBlocking, &stream_);
    device_.graph_create(&graph_);
    device_.device_synchronize();
  }
  NodeHandle add(const Kernel& kernel, int cell, int32_t value,
                 std::vector<NodeHandle> after = {}) {
    KernelLaunch launch;
    launch.kernel = &kernel;
    launch.args.pointer(cells_ + cell).scalar(value).scalar(int32_t{1});
    NodeParams params = launch;
    NodeHandle node;
    EXPECT_EQ(device_.graph_add_node(graph_, after, params, &node), DeviceError::kSuccess);
    return node;
  }
  uint64_t run() {
    ExecHandle exec;
    EXPECT_EQ(device_.graph_instantiate(graph_, 0, &exec), DeviceError::kSuccess);
    return device_.launch_every_order(exec, stream_);
  }
  std::array<int32_t, 8> cells() {
    std::array<int32_t, 8> values{};
    device_.device_synchronize();
    device_.memcpy({.dst = values.data(), .src = cells_, .width = sizeof values});
    return values;
  }
  int races_that_name_both() {
    int races = 0;
    const Status found = device_.take_findings();
    for (const Finding& f : found.findings()) {
      EXPECT_EQ(f.id, "mem.race") << f.to_string();
      races += f.expected == "the same bytes in every order" &&
               f.got.find("node 0") != f.got.npos && f.got.find("node 1") != f.got.npos;
    }
    return races;
  }

  SimDevice device_;
  int32_t* cells_ = nullptr;
  StreamHandle stream_;
  GraphHandle graph_;
};

TEST_F(EveryOrder, NodesThatTouchNothingInCommonHaveOneOrder) {
  for (int i = 0; i < 6; ++i) add(k::add, i, i + 1);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(cells(), (std::array<int32_t, 8>{1, 2, 3, 4, 5, 6, 0, 0}));
  EXPECT_EQ(device_.take_findings().to_string(), "ok");
}

TEST_F(EveryOrder, AResultThatDependsOnTheOrderNamesBothNodes) {
  add(k::fill, 0, 1);
  add(k::fill, 0, 2);
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(races_that_name_both(), 1);
  EXPECT_EQ(cells()[0], 2) << "what the plain order leaves";
}

TEST_F(EveryOrder, AnEdgeLeavesOneOrder) {
  const NodeHandle first = add(k::fill, 0, 1);
  add(k::fill, 0, 2, {first});
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(cells()[0], 2);
  EXPECT_EQ(device_.take_findings().to_string(), "ok");
}

TEST_F(EveryOrder, EachOrderStartsFromTheSameMemory) {
  for (int i = 0; i < 3; ++i) add(k::add, 0, 1);
  EXPECT_EQ(run(), 6) << "additions commute, but they touch the same cell";
  EXPECT_EQ(cells()[0], 3);
  const Status found = device_.take_findings();
  for (const Finding& f : found.findings()) EXPECT_NE(f.expected, "the same bytes in every order");
}

TEST_F(EveryOrder, TheNumberOfOrdersIsBounded) {
  for (int i = 0; i < 5; ++i) add(k::fill, 0, i);
  ExecHandle exec;
  ASSERT_EQ(device_.graph_instantiate(graph_, 0, &exec), DeviceError::kSuccess);
  EXPECT_EQ(device_.launch_every_order(exec, stream_, 7), 7);
}

}  // namespace
}  // namespace shadowgraph::every_order_test
