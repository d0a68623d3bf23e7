// Graphs and executable graphs at their edges: parameters that no device takes, graphs inside
// graphs, addresses that are used again, and updates that pair nodes twice.
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "graph/capture/check_params.h"
#include "graph/store_fixture.h"

namespace shadowgraph::graph_store_corners_test {
namespace {

using enum DeviceError;

class GraphCorners : public StoreTest {
 protected:
  static constexpr size_t kHuge = (size_t{1} << 47) + 1;

  GraphHandle inside(NodeHandle node) {
    NodeParams params;
    EXPECT_EQ(store_.get_params(node, &params), kSuccess);
    return std::get<ChildGraphParams>(params).graph;
  }
  static HostParams host_node() {
    return {[](void*) {}, nullptr};
  }
};

// Parameters.

TEST_F(GraphCorners, NoCopyOrSetIsLargerThanAnAddressSpace) {
  const MemcpyParams copies[] = {{a_, b_, kHuge},
                                 {a_, b_, kHuge, 2, kHuge, kHuge},
                                 {a_, b_, 16, 2, kHuge, 16},
                                 {a_, b_, 16, 2, 16, kHuge},
                                 {a_, b_, 16, 2, ~size_t{0}, 16},
                                 {a_, b_, 16, ~size_t{0}, 16, 16},
                                 {a_, b_, 16, size_t{1} << 46, 16, 16}};
  for (const MemcpyParams& c : copies) EXPECT_EQ(check_copy(memory_, c), kInvalidValue);
  const MemsetParams sets[] = {{a_, 0, 1, kHuge},
                               {a_, 0, 4, kHuge / 2},
                               {a_, 0, 1, 16, 2, kHuge},
                               {a_, 0, 1, 16, ~size_t{0}, 16},
                               {a_, 0, 1, kHuge, 2, kHuge}};
  for (const MemsetParams& s : sets) EXPECT_EQ(check_set(s), kInvalidValue);
  EXPECT_EQ(check_set({a_, 0, 1, 16, 2, 16}), kSuccess);
}

TEST_F(GraphCorners, RowsFitIntoTheirPitchesAndSidesIntoTheirAllocations) {
  EXPECT_EQ(check_copy(memory_, {a_, b_, 16, 2, 16, 16}), kSuccess);
  EXPECT_EQ(check_copy(memory_, {a_, b_, 16, 2, 8, 16}), kInvalidValue);
  EXPECT_EQ(check_copy(memory_, {a_, b_, 16, 2, 16, 8}), kInvalidValue);
  EXPECT_EQ(check_copy(memory_, {a_, b_, 16, 4, 16, 16}), kSuccess) << "all of the 64 bytes";
  EXPECT_EQ(check_copy(memory_, {a_, b_, 16, 4, 17, 16}), kInvalidValue);
  EXPECT_EQ(check_copy(memory_, {a_, nullptr, 16}), kInvalidValue);
  EXPECT_EQ(check_copy(memory_, {nullptr, b_, 16}), kInvalidValue);
}

TEST_F(GraphCorners, ADirectionSaysWhoseMemoryItIs) {
  using enum MemcpyKind;
  int32_t host = 0, other_host = 0;
  void* pinned = memory_.allocate(64, AllocKind::kPinned);
  void* managed = memory_.allocate(64, AllocKind::kManaged);
  void* ended = memory_.allocate(64, AllocKind::kMalloc);
  memory_.release(ended);
  const auto takes = [&](const void* src, void* dst) {
    std::vector<MemcpyKind> kinds;
    for (const MemcpyKind kind :
         {kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault})
      if (check_copy(memory_, {dst, src, 4, 1, 0, 0, kind}) == kSuccess) kinds.push_back(kind);
    return kinds;
  };
  using Kinds = std::vector<MemcpyKind>;
  EXPECT_EQ(takes(&host, &other_host), (Kinds{kHostToHost, kDefault}));
  EXPECT_EQ(takes(&host, a_), (Kinds{kHostToDevice, kDefault}));
  EXPECT_EQ(takes(a_, &host), (Kinds{kDeviceToHost, kDefault}));
  EXPECT_EQ(takes(a_, b_), (Kinds{kDeviceToDevice, kDefault}));
  EXPECT_EQ(takes(pinned, a_), (Kinds{kHostToDevice, kDeviceToDevice, kDefault}));
  EXPECT_EQ(takes(managed, pinned).size(), 5u) << "both sides' memory";
  EXPECT_EQ(takes(ended, a_), Kinds{});
  EXPECT_EQ(check_copy(memory_, {a_, b_, 4, 1, 0, 0, MemcpyKind{-1}}), kInvalidMemcpyDirection);
}

TEST_F(GraphCorners, LaunchesAreBoundedInEveryDimension) {
  const std::pair<Dim3, Dim3> fits[] = {{{1, 65535, 65535}, {1024, 1, 1}}, {{1, 1, 1}, {8, 8, 16}}};
  const std::pair<Dim3, Dim3> too_large[] = {
      {{1, 65536, 1}, {}}, {{1, 1, 65536}, {}}, {{}, {32, 33, 1}}, {{}, {1, 1, 1025}}};
  KernelLaunch l = fill(1);
  for (const auto& [grid, block] : fits) {
    l.grid = grid, l.block = block;
    EXPECT_EQ(check_launch(l), kSuccess);
  }
  for (const auto& [grid, block] : too_large) {
    l.grid = grid, l.block = block;
    EXPECT_EQ(check_launch(l), kInvalidValue);
  }
}

TEST_F(GraphCorners, ParametersAreCheckedWhereverTheyAreSet) {
  const GraphHandle g = graph();
  const NodeHandle c = add(g, {}, copy()), s = add(g, {}, set(4)), h = add(g, {}, host_node());
  const NodeHandle r = add(g, {}, EventRecordParams{{5}}), w = add(g, {}, EventWaitParams{{5}});
  const std::vector<std::tuple<NodeHandle, NodeParams, DeviceError>> changes = {
      {c, copy(MemcpyKind::kDeviceToDevice, 0), kInvalidValue},
      {c, MemcpyParams{a_, b_, 16, 0}, kInvalidValue},
      {c, copy(MemcpyKind{9}), kInvalidMemcpyDirection},
      {s, set(4, 0), kInvalidValue},
      {h, HostParams{}, kInvalidValue},
      {r, EventRecordParams{}, kInvalidResourceHandle},
      {w, EventWaitParams{}, kInvalidResourceHandle}};
  const ExecHandle e = instantiate(g);
  for (const auto& [node, params, error] : changes) {
    NodeParams before, after;
    ASSERT_EQ(store_.get_params(node, &before), kSuccess);
    EXPECT_EQ(store_.set_params(node, params), error) << type_name(params);
    EXPECT_EQ(store_.exec_set_params(e, node, params), error) << type_name(params);
    EXPECT_EQ(try_add(g, {}, params), error) << type_name(params);
    ASSERT_EQ(store_.get_params(node, &after), kSuccess);
    EXPECT_EQ(before, after);
  }
  EXPECT_EQ(store_.find(g)->nodes.size(), 5u);
  const std::pair<NodeHandle, NodeParams> taken[] = {{c, copy(MemcpyKind::kDefault)},
                                                     {s, set(8)},
                                                     {h, HostParams{[](void*) {}, a_}},
                                                     {r, EventRecordParams{{6}}},
                                                     {w, EventWaitParams{{6}}}};
  for (const auto& [node, params] : taken) {
    NodeParams after;
    EXPECT_EQ(store_.set_params(node, params), kSuccess) << type_name(params);
    ASSERT_EQ(store_.get_params(node, &after), kSuccess);
    EXPECT_EQ(after, params);
  }
}

// Graphs in graphs.

TEST_F(GraphCorners, AChildGraphHoldsNoMemoryNodes) {
  const GraphHandle g = graph();
  const NodeHandle child = add(g, {}, ChildGraphParams{graph()});
  void* p = add_allocation(graph(), {});
  EXPECT_EQ(try_add(inside(child), {}, MemAllocParams{64, nullptr}), kNotSupported);
  EXPECT_EQ(try_add(inside(child), {}, MemFreeParams{p}), kNotSupported);
  EXPECT_EQ(try_add(inside(child), {}, fill(1)), kSuccess);
  EXPECT_EQ(store_.find(inside(child))->nodes.size(), 1u);
}

TEST_F(GraphCorners, TheHandleOfADestroyedConditionalIsFreeAgain) {
  const GraphHandle g = graph();
  ConditionalHandle h, other;
  ASSERT_EQ(store_.create_conditional(g, 0, 0, &h), kSuccess);
  ASSERT_EQ(store_.create_conditional(g, 0, 0, &other), kSuccess);
  const auto params = [](ConditionalHandle c) {
    return ConditionalParams{c, ConditionalType::kIf, 1, {}};
  };
  add(g, {}, params(other));
  const NodeHandle n = add(g, {}, params(h));
  EXPECT_EQ(try_add(g, {}, params(h)), kInvalidValue);
  const GraphHandle body_graph =
      std::get<ConditionalParams>(store_.find(g)->nodes[1].params).bodies.at(0);
  EXPECT_EQ(store_.destroy_node(n), kSuccess);
  EXPECT_EQ(store_.find(body_graph), nullptr) << "its body went with it";
  EXPECT_EQ(try_add(g, {}, params(other)), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, params(h)), kSuccess);
}

TEST_F(GraphCorners, ACloneForgetsWhatIsDestroyedInIt) {
  const GraphHandle g = graph();
  const NodeHandle first = add(g, {}, fill(1)), last = add(g, {}, fill(2));
  GraphHandle clone;
  NodeHandle found;
  ASSERT_EQ(store_.clone(g, &clone), kSuccess);
  for (const NodeHandle original : {first, last}) {
    ASSERT_EQ(store_.find_in_clone(original, clone, &found), kSuccess);
    ASSERT_EQ(store_.destroy_node(found), kSuccess);
    const NodeHandle before = found;
    EXPECT_EQ(store_.find_in_clone(original, clone, &found), kInvalidValue);
    EXPECT_EQ(found, before) << "nothing is written";
  }
}

TEST_F(GraphCorners, EveryWayThroughADiamondReachesItsEnd) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1)), m = add(g, {n}, fill(2)), o = add(g, {n}, fill(3));
  const NodeHandle p = add(g, {m, o}, fill(4)), q = add(g, {p}, fill(5));
  const NodeHandle alone = add(g, {}, fill(6));
  EXPECT_TRUE(store_.reaches(n, {&q, 1}));
  EXPECT_FALSE(store_.reaches(n, {&alone, 1}));
  EXPECT_FALSE(store_.reaches(NodeHandle{7}, {&q, 1}));
}

TEST_F(GraphCorners, OfAGraphWithMemoryNodesNoEdgesAreRemovedIfAny) {
  const GraphHandle g = graph();
  NodeHandle n;
  add_allocation(g, {}, &n);
  const NodeHandle m = add(g, {n}, fill(1));
  EXPECT_EQ(store_.remove_dependencies(g, {}), kSuccess);
  EXPECT_EQ(unlink(g, n, m), kNotSupported);
  EXPECT_EQ(edges(g), (Pairs{{0, 1}}));
}

// Memory nodes.

TEST_F(GraphCorners, AnAddressIsUsedAgainBehindEveryWayToItsFree) {
  const GraphHandle g = graph(), other = graph();
  NodeHandle n;
  void* p = add_allocation(g, {}, &n);
  const NodeHandle left = add(g, {n}, fill(1)), right = add(g, {n}, fill(2));
  const NodeHandle freed = add(g, {left, right}, MemFreeParams{p});
  const NodeHandle a = add(g, {freed}, fill(3)), b = add(g, {freed}, fill(4));
  EXPECT_EQ(add_allocation(g, {a, b}), p);
  // Memory of another graph is not this one's to use again.
  NodeHandle made;
  void* foreign = add_allocation(graph(), {}, &made);
  const NodeHandle foreign_free = add(other, {}, MemFreeParams{foreign});
  EXPECT_NE(add_allocation(other, {foreign_free}), foreign);
}

TEST_F(GraphCorners, WithoutMemoryThereIsNoNode) {
  const GraphHandle g = graph();
  EXPECT_EQ(try_add(g, {}, MemAllocParams{size_t{1} << 40, nullptr}), kMemoryAllocation);
  EXPECT_TRUE(store_.find(g)->nodes.empty());
}

TEST_F(GraphCorners, WhatNoGraphAllocatedIsNotFreedByOne) {
  const GraphHandle g = graph();
  int host = 0;
  void* pool = memory_.allocate(64, AllocKind::kPool);
  for (void* wrong : {pool, static_cast<void*>(&host), static_cast<void*>(nullptr)})
    EXPECT_EQ(try_add(g, {}, MemFreeParams{wrong}), kInvalidValue);
  // An address that was a graph's and is somebody else's now.
  const GraphHandle gone = graph();
  void* p = add_allocation(gone, {});
  ASSERT_EQ(store_.destroy(gone), kSuccess);
  EXPECT_EQ(try_add(g, {}, MemFreeParams{p}), kInvalidValue) << "given up with its graph";
  ASSERT_EQ(memory_.allocate(64, AllocKind::kMalloc), p);
  EXPECT_EQ(try_add(g, {}, MemFreeParams{p}), kInvalidValue);
}

// Executable graphs.

TEST_F(GraphCorners, NodesAtAnyDepthAreFoundAndChanged) {
  const GraphHandle deep = graph(), beside = graph(), middle = graph(), g = graph();
  add(deep, {}, set(4));
  add(deep, {}, fill(1));
  add(beside, {}, fill(2));
  add(middle, {}, ChildGraphParams{beside});
  add(middle, {}, ChildGraphParams{deep});
  const NodeHandle outer = add(g, {}, ChildGraphParams{middle});
  const ExecHandle e = instantiate(g);
  const auto launched = store_.find_exec(e)->body;
  std::vector<NodeHandle> in_middle, in_deep;
  ASSERT_EQ(store_.get_nodes(inside(outer), &in_middle), kSuccess);
  ASSERT_EQ(store_.get_nodes(inside(in_middle[1]), &in_deep), kSuccess);
  const auto deep_node = [](const ExecBody& b, size_t i) -> const ExecNode& {
    return b.nodes[0].bodies[0]->nodes[1].bodies[0]->nodes[i];
  };
  EXPECT_EQ(store_.exec_set_params(e, in_deep[1], fill(9)), kSuccess);
  EXPECT_EQ(store_.set_enabled(e, in_deep[0], false), kSuccess);
  EXPECT_EQ(value_of(deep_node(body(e), 1).params), 9);
  EXPECT_FALSE(deep_node(body(e), 0).enabled);
  EXPECT_EQ(value_of(deep_node(*launched, 1).params), 1) << "a launch keeps what it has";
  EXPECT_TRUE(deep_node(*launched, 0).enabled);
  EXPECT_EQ(store_.set_enabled(e, NodeHandle{7}, false), kInvalidValue);
}

TEST_F(GraphCorners, ACopyOfPageableMemoryIsNotTheDevicesToLaunch) {
  int host = 0;
  const auto result = [&](const MemcpyParams& params) {
    const GraphHandle g = graph();
    add(g, {}, params);
    return try_instantiate(g, kDeviceLaunch).result;
  };
  using enum MemcpyKind;
  EXPECT_EQ(result({&host, a_, 4, 1, 0, 0, kDeviceToHost}),
            InstantiateResult::kMultipleDevicesNotSupported);
  EXPECT_EQ(result({a_, &host, 4, 1, 0, 0, kHostToDevice}),
            InstantiateResult::kMultipleDevicesNotSupported);
  EXPECT_EQ(result(copy()), InstantiateResult::kSuccess);
}

TEST_F(GraphCorners, TheFirstBodyThatIsRefusedIsTold) {
  const GraphHandle g = graph();
  const auto bodies = add_conditional(g, ConditionalType::kIf, 2);
  const NodeHandle first = add(bodies[0], {}, host_node());
  add(bodies[1], {}, EventRecordParams{{5}});
  const InstantiateParams told = try_instantiate(g);
  EXPECT_EQ(told.result, InstantiateResult::kNodeOperationNotSupported);
  EXPECT_EQ(told.error_node, first);
}

TEST_F(GraphCorners, AGraphForTheDeviceHasChildrenForTheDevice) {
  const GraphHandle child = graph(), g = graph();
  add(child, {}, fill(1));
  const NodeHandle n = add(g, {}, ChildGraphParams{child});
  EXPECT_EQ(try_instantiate(g, kDeviceLaunch).result, InstantiateResult::kSuccess);
  const NodeHandle wrong = add(inside(n), {}, EmptyParams{});
  const InstantiateParams told = try_instantiate(g, kDeviceLaunch);
  EXPECT_EQ(told.result, InstantiateResult::kNodeOperationNotSupported);
  EXPECT_EQ(told.error_node, wrong);
}

// Updates.

class UpdateCorners : public GraphCorners {
 protected:
  /// Updates an exec of what build(false) makes from what build(true) makes.
  UpdateResult updated(const std::function<void(GraphHandle, bool)>& build) {
    const GraphHandle before = graph(), after = graph();
    build(before, false);
    build(after, true);
    exec_ = instantiate(before);
    UpdateInfo info;
    last_error_ = store_.exec_update(exec_, after, &info);
    error_node_ = ordinal(after, info.error_node);
    return info.result;
  }
  ExecHandle exec_;
  int error_node_ = -1;  // by ordinal; -1: none
};

TEST_F(UpdateCorners, ANodeIsNotPairedWithTwo) {
  // The newer sink pairs node 0 with node 1 of the graph, the older one would with its node 0.
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              const NodeHandle n = add(g, {}, fill(1)), m = add(g, {}, fill(2));
              add(g, {n, m}, fill(3));
              add(g, {now ? m : n}, fill(4));
            }),
            UpdateResult::kTopologyChanged);
  EXPECT_EQ(last_error_, kGraphExecUpdateFailure);
  EXPECT_EQ(error_node_, 0);
}

TEST_F(UpdateCorners, NorAreTwoWithOne) {
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              const NodeHandle n = add(g, {}, fill(1)), m = add(g, {}, fill(2));
              add(g, {n}, fill(3));
              add(g, {now ? n : m}, fill(4));
              if (now) link(g, m, n);
            }),
            UpdateResult::kTopologyChanged);
  EXPECT_EQ(error_node_, 0);
}

TEST_F(UpdateCorners, WhatIsMisplacedInsideAChildIsTheChild) {
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              add(g, {}, fill(0));
              const GraphHandle child = graph();
              const NodeHandle n = add(child, {}, fill(1)), m = add(child, {}, fill(2));
              const NodeHandle sink = add(child, {}, fill(3));
              link(child, now ? m : n, sink);
              link(child, now ? n : m, sink);
              add(g, {}, ChildGraphParams{child});
            }),
            UpdateResult::kSuccess);
  EXPECT_EQ(body(exec_).misplaced, 1);
}

TEST_F(UpdateCorners, NodesThatTradePlacesWithTheirTypesAreNoOtherOrder) {
  answer_ = 1;  // another order of the same would be refused
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              const NodeHandle n = add(g, {}, now ? NodeParams(set(4)) : fill(1));
              const NodeHandle m = add(g, {}, now ? NodeParams(fill(2)) : set(4));
              const NodeHandle sink = add(g, {}, fill(3));
              link(g, now ? m : n, sink);
              link(g, now ? n : m, sink);
            }),
            UpdateResult::kSuccess);
}

TEST_F(UpdateCorners, RectanglesStayAsTheyAre) {
  const MemcpyParams square{a_, b_, 8, 2, 16, 16, MemcpyKind::kDeviceToDevice};
  MemcpyParams elsewhere = square;
  elsewhere.dst = b_, elsewhere.src = a_;
  const auto becomes = [&](const NodeParams& from, const NodeParams& to) {
    return updated([&](GraphHandle g, bool now) { add(g, {}, now ? to : from); });
  };
  EXPECT_EQ(becomes(square, square), UpdateResult::kSuccess);
  EXPECT_EQ(becomes(square, elsewhere), UpdateResult::kParametersChanged);
  EXPECT_EQ(becomes(square, copy()), UpdateResult::kParametersChanged);
  EXPECT_EQ(becomes(copy(), square), UpdateResult::kParametersChanged);
  const MemsetParams rows{a_, 3, 4, 2, 2, 8};
  MemsetParams narrow = rows;
  narrow.element_size = 2;
  EXPECT_EQ(becomes(rows, rows), UpdateResult::kSuccess);
  EXPECT_EQ(becomes(rows, narrow), UpdateResult::kParametersChanged);
  answer_ = 1;  // nothing is stretched
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, rows);
  MemsetParams other = rows;
  other.dst = b_;
  EXPECT_EQ(store_.exec_set_params(instantiate(g), n, other), kSuccess);
}

// Names.

TEST_F(GraphCorners, CopiesAreNamedByTheirDirection) {
  using enum MemcpyKind;
  const std::pair<MemcpyKind, std::string_view> names[] = {{kHostToHost, "memcpy H2H"},
                                                           {kHostToDevice, "memcpy H2D"},
                                                           {kDeviceToHost, "memcpy D2H"},
                                                           {kDeviceToDevice, "memcpy D2D"},
                                                           {kDefault, "memcpy"}};
  for (const auto& [kind, name] : names) EXPECT_EQ(label_of(copy(kind)), name);
  EXPECT_EQ(label_of(MemFreeParams{}), "mem_free");
  EXPECT_EQ(name_of(OtherCall{255}), "");
}

}  // namespace
}  // namespace shadowgraph::graph_store_corners_test
