// A GraphStore over a small memory, and the few lines that every test of it needs.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "graph/capture/graph_store.h"

namespace shadowgraph {

class StoreTest : public ::testing::Test {
 protected:
  using Error = DeviceError;
  using Pairs = std::vector<std::pair<int, int>>;

  StoreTest() : a_(memory_.allocate(64, AllocKind::kMalloc)), b_(allocate()) {}

  void* allocate() { return memory_.allocate(64, AllocKind::kMalloc); }
  GraphHandle graph() {
    GraphHandle g;
    EXPECT_EQ(store_.create(&g), Error::kSuccess);
    return g;
  }
  Error try_add(GraphHandle g, std::initializer_list<NodeHandle> after, NodeParams params) {
    NodeHandle node;
    return store_.add_node(g, std::vector(after), {}, params, 0, &node);
  }
  NodeHandle add(GraphHandle g, std::initializer_list<NodeHandle> after, NodeParams params) {
    return add_in_place(g, after, params);
  }
  /// params is completed.
  NodeHandle add_in_place(GraphHandle g, std::initializer_list<NodeHandle> after,
                          NodeParams& params) {
    NodeHandle node;
    EXPECT_EQ(store_.add_node(g, std::vector(after), {}, params, 0, &node), Error::kSuccess);
    return node;
  }
  void* add_allocation(GraphHandle g, std::initializer_list<NodeHandle> after,
                       NodeHandle* node = nullptr, size_t bytes = 64) {
    NodeParams params = MemAllocParams{bytes, nullptr};
    const NodeHandle added = add_in_place(g, after, params);
    if (node != nullptr) *node = added;
    return std::get<MemAllocParams>(params).address;
  }
  std::vector<GraphHandle> add_conditional(GraphHandle g, ConditionalType type, uint32_t size,
                                           ConditionalHandle h = {}) {
    if (!h) {
      EXPECT_EQ(store_.create_conditional(g, 1, kCondAssignDefault, &h), Error::kSuccess);
    }
    NodeParams params = ConditionalParams{h, type, size, {}};
    add_in_place(g, {}, params);
    return std::get<ConditionalParams>(params).bodies;
  }
  Error link(GraphHandle g, NodeHandle from, NodeHandle to) {
    const GraphEdge edge{from, to, {}};
    return store_.add_dependencies(g, {&edge, 1});
  }
  Error unlink(GraphHandle g, NodeHandle from, NodeHandle to) {
    const GraphEdge edge{from, to, {}};
    return store_.remove_dependencies(g, {&edge, 1});
  }
  /// Edges by ordinal, as they are listed.
  Pairs edges(GraphHandle g) {
    std::vector<GraphEdge> listed;
    EXPECT_EQ(store_.get_edges(g, &listed), Error::kSuccess);
    Pairs pairs;
    for (const GraphEdge& e : listed) pairs.emplace_back(ordinal(g, e.from), ordinal(g, e.to));
    return pairs;
  }
  int ordinal(GraphHandle g, NodeHandle node) {
    std::vector<NodeHandle> nodes;
    EXPECT_EQ(store_.get_nodes(g, &nodes), Error::kSuccess);
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i] == node) return static_cast<int>(i);
    return -1;
  }
  InstantiateParams try_instantiate(GraphHandle g, uint64_t flags = 0) {
    InstantiateParams params;
    params.flags = flags;
    ExecHandle exec;
    last_error_ = store_.instantiate(g, &params, &exec);
    EXPECT_EQ(static_cast<bool>(exec), last_error_ == Error::kSuccess);
    return params;
  }
  ExecHandle instantiate(GraphHandle g, uint64_t flags = 0) {
    InstantiateParams params;
    params.flags = flags;
    ExecHandle exec;
    EXPECT_EQ(store_.instantiate(g, &params, &exec), Error::kSuccess);
    return exec;
  }
  const ExecBody& body(ExecHandle exec) { return *store_.find_exec(exec)->body; }

  static KernelLaunch launch(const Kernel& kernel, void* p, int32_t value) {
    KernelLaunch l{&kernel, {}, {}, 0, {}, false};
    l.args.pointer(p).scalar(value);
    return l;
  }
  KernelLaunch fill(int32_t value) { return launch(kFill, a_, value); }
  KernelLaunch add_kernel(int32_t value) { return launch(kAdd, a_, value); }
  static int32_t value_of(const NodeParams& params) {
    return std::get<KernelLaunch>(params).args.get<int32_t>(1);
  }
  MemcpyParams copy(MemcpyKind kind = MemcpyKind::kDeviceToDevice, size_t width = 16) {
    return {a_, b_, width, 1, 0, 0, kind};
  }
  MemsetParams set(size_t width, size_t height = 1, size_t pitch = 0) {
    return {a_, 3, 4, width, height, pitch};
  }

  static inline const Kernel kFill{"fill"}, kAdd{"add"};
  DeviceMemory memory_{MemoryOptions{.capacity = size_t{1} << 26}};
  uint32_t answer_ = 0;  // what every open question is answered; 0 is the H200's
  GraphStore store_{memory_, [this](uint32_t bound) { return answer_ % bound; }};
  void *a_, *b_;
  Error last_error_ = Error::kSuccess;
};

}  // namespace shadowgraph
