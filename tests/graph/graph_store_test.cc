#include "graph/capture/graph_store.h"

#include <set>

#include "graph/store_fixture.h"

namespace shadowgraph::graph_store_test {
namespace {

using enum DeviceError;

class Graphs : public StoreTest {};

TEST_F(Graphs, HandlesAreNeverUsedTwice) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 3; ++i) {
    const GraphHandle g = graph();
    const NodeHandle n = add(g, {}, fill(1));
    const ExecHandle e = instantiate(g);
    for (uint64_t h : {g.value, n.value, e.value}) {
      EXPECT_TRUE(seen.insert(h).second);
      EXPECT_GE(h, 100u);
    }
    ASSERT_EQ(store_.exec_destroy(e), kSuccess);
    ASSERT_EQ(store_.destroy(g), kSuccess);
    EXPECT_EQ(store_.find(g), nullptr);
    EXPECT_EQ(store_.find_exec(e), nullptr);
    EXPECT_EQ(store_.graph_of(n), nullptr);
    EXPECT_EQ(store_.destroy(g), kInvalidValue);
    EXPECT_EQ(store_.exec_destroy(e), kInvalidValue);
  }
}

TEST_F(Graphs, NodesDependOnDistinctNodesOfTheirGraph) {
  const GraphHandle g = graph(), other = graph();
  const NodeHandle n = add(g, {}, EmptyParams{}), foreign = add(other, {}, EmptyParams{});
  EXPECT_EQ(try_add(g, {n, n}, EmptyParams{}), kInvalidValue);
  EXPECT_EQ(try_add(g, {foreign}, EmptyParams{}), kInvalidValue);
  EXPECT_EQ(try_add(g, {NodeHandle{7}}, EmptyParams{}), kInvalidValue);
  EXPECT_EQ(try_add(GraphHandle{}, {}, EmptyParams{}), kInvalidValue);
  EXPECT_EQ(try_add(g, {n}, EmptyParams{}), kSuccess);
  EXPECT_EQ(edges(g), (Pairs{{0, 1}}));
}

TEST_F(Graphs, EdgeDataIsKept) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1));
  NodeParams params = fill(2);
  NodeHandle m;
  const EdgeData programmatic{1, 0, 1};
  ASSERT_EQ(store_.add_node(g, {&n, 1}, {&programmatic, 1}, params, -1, &m), kSuccess);
  std::vector<GraphEdge> listed;
  ASSERT_EQ(store_.get_edges(g, &listed), kSuccess);
  EXPECT_EQ(listed[0].data, programmatic);
  EXPECT_EQ(unlink(g, n, m), kInvalidValue);  // names an edge without data
  EXPECT_EQ(store_.add_node(g, {}, {&programmatic, 1}, params, 0, &m), kInvalidValue);
}

TEST_F(Graphs, LaunchesHaveAShapeThatADeviceHas) {
  const GraphHandle g = graph();
  const auto shaped = [&](auto change) {
    KernelLaunch l = fill(1);
    change(l);
    return try_add(g, {}, l);
  };
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.kernel = nullptr; }), kInvalidDeviceFunction);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.grid.x = 0; }), kInvalidValue);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.block.z = 0; }), kInvalidValue);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.block.x = 2048; }), kInvalidValue);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.grid.y = 70000; }), kInvalidValue);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.shared_bytes = 1 << 20; }), kInvalidValue);
  EXPECT_EQ(shaped([](KernelLaunch& l) { l.block = {32, 32, 1}; }), kSuccess);
}

TEST_F(Graphs, CopiesAndSetsTouchSomething) {
  const GraphHandle g = graph();
  int host = 0;
  EXPECT_EQ(try_add(g, {}, copy(MemcpyKind::kDeviceToDevice, 0)), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, copy(MemcpyKind{9})), kInvalidMemcpyDirection);
  EXPECT_EQ(try_add(g, {}, MemcpyParams{nullptr, b_, 16}), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, MemcpyParams{a_, &host, 4, 1, 0, 0, MemcpyKind::kDeviceToDevice}),
            kInvalidValue);
  EXPECT_EQ(try_add(g, {}, MemcpyParams{a_, b_, 16, 2, 8, 16}), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, set(0)), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, set(1, 0)), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, set(4, 2, 8)), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, MemsetParams{a_, 0, 3, 1}), kInvalidValue);
  EXPECT_EQ(try_add(g, {}, HostParams{}), kInvalidValue);
  EXPECT_TRUE(store_.find(g)->nodes.empty());
  EXPECT_EQ(try_add(g, {}, copy()), kSuccess);
  EXPECT_EQ(try_add(g, {}, set(4)), kSuccess);
}

TEST_F(Graphs, EdgesAreDistinctAndLeadElsewhere) {
  const GraphHandle g = graph(), other = graph();
  const NodeHandle n = add(g, {}, EmptyParams{}), m = add(g, {}, EmptyParams{});
  const NodeHandle foreign = add(other, {}, EmptyParams{});
  EXPECT_EQ(link(g, n, m), kSuccess);
  EXPECT_EQ(link(g, n, m), kInvalidValue);
  EXPECT_EQ(link(g, n, n), kInvalidValue);
  EXPECT_EQ(link(g, n, foreign), kInvalidValue);
  EXPECT_EQ(unlink(g, m, n), kInvalidValue);
  const GraphEdge both[] = {{m, n, {}}, {n, m, {}}};  // the second is there: neither is added
  EXPECT_EQ(store_.add_dependencies(g, both), kInvalidValue);
  const GraphEdge gone[] = {{n, m, {}}, {m, n, {}}};
  EXPECT_EQ(store_.remove_dependencies(g, gone), kInvalidValue);
  EXPECT_EQ(edges(g), (Pairs{{0, 1}}));
  EXPECT_EQ(unlink(g, n, m), kSuccess);
  EXPECT_TRUE(edges(g).empty());
}

TEST_F(Graphs, EdgesAreListedNodeByNode) {
  const GraphHandle g = graph();
  NodeHandle n[6];
  for (int i = 0; i < 6; ++i)
    n[i] = i == 3 ? add(g, {n[2]}, EmptyParams{}) : add(g, {}, EmptyParams{});
  const GraphEdge more[] = {{n[5], n[0], {}}, {n[4], n[0], {}}, {n[3], n[1], {}}, {n[5], n[4], {}}};
  ASSERT_EQ(store_.add_dependencies(g, more), kSuccess);
  EXPECT_EQ(edges(g), (Pairs{{2, 3}, {3, 1}, {4, 0}, {5, 0}, {5, 4}}));
}

TEST_F(Graphs, ADestroyedNodeTakesItsEdgesAlong) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1)), m = add(g, {n}, fill(2)), o = add(g, {m}, fill(3));
  EXPECT_EQ(store_.destroy_node(m), kSuccess);
  EXPECT_EQ(store_.destroy_node(m), kInvalidValue);
  EXPECT_TRUE(edges(g).empty());
  EXPECT_EQ(ordinal(g, o), 1);
}

TEST_F(Graphs, ReachesFollowsEdgesForward) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1)), m = add(g, {n}, fill(2)), o = add(g, {m}, fill(3));
  const NodeHandle alone = add(g, {}, fill(4));
  EXPECT_TRUE(store_.reaches(n, {&o, 1}));
  EXPECT_TRUE(store_.reaches(o, {&o, 1}));
  EXPECT_FALSE(store_.reaches(o, {&n, 1}));
  EXPECT_FALSE(store_.reaches(alone, {&o, 1}));
}

TEST_F(Graphs, AChildIsClonedWhenItIsAdded) {
  const GraphHandle child = graph(), g = graph();
  const NodeHandle n = add(child, {}, fill(1));
  const NodeHandle outer = add(g, {}, ChildGraphParams{child});
  ASSERT_EQ(store_.set_params(n, fill(2)), kSuccess);
  add(child, {}, fill(3));
  NodeParams read;
  ASSERT_EQ(store_.get_params(outer, &read), kSuccess);
  const GraphHandle inner = std::get<ChildGraphParams>(read).graph;
  EXPECT_NE(inner, child);
  ASSERT_EQ(store_.find(inner)->nodes.size(), 1u);
  EXPECT_EQ(value_of(store_.find(inner)->nodes[0].params), 1);
  EXPECT_EQ(store_.destroy(inner), kInvalidValue);
  ASSERT_EQ(store_.destroy(g), kSuccess);
  EXPECT_EQ(store_.find(inner), nullptr);
  EXPECT_EQ(try_add(graph(), {}, ChildGraphParams{}), kInvalidValue);
}

TEST_F(Graphs, ACloneIsIndependent) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1)), m = add(g, {n}, fill(1));
  const NodeHandle o = add(g, {n}, fill(1));
  ASSERT_EQ(unlink(g, n, m), kSuccess);
  ASSERT_EQ(link(g, n, m), kSuccess);
  EXPECT_EQ(edges(g), (Pairs{{0, 2}, {0, 1}}));
  GraphHandle clone;
  ASSERT_EQ(store_.clone(g, &clone), kSuccess);
  EXPECT_EQ(edges(clone), (Pairs{{0, 1}, {0, 2}}));
  ASSERT_EQ(store_.set_params(n, fill(2)), kSuccess);
  NodeHandle found;
  ASSERT_EQ(store_.find_in_clone(n, clone, &found), kSuccess);
  EXPECT_EQ(ordinal(clone, found), 0);
  EXPECT_EQ(value_of(store_.find(clone)->nodes[0].params), 1);
  EXPECT_EQ(store_.find_in_clone(n, g, &found), kInvalidValue);
  EXPECT_EQ(store_.find_in_clone(found, clone, &found), kInvalidValue);
  ASSERT_EQ(store_.destroy(g), kSuccess);
  EXPECT_EQ(store_.find(clone)->nodes.size(), 3u);
  EXPECT_EQ(store_.destroy_node(o), kInvalidValue);
}

TEST_F(Graphs, ParametersKeepTheirType) {
  const GraphHandle g = graph();
  const NodeHandle k = add(g, {}, fill(1)), e = add(g, {}, EmptyParams{});
  EXPECT_EQ(store_.set_params(k, copy()), kInvalidValue);
  EXPECT_EQ(store_.set_params(e, EmptyParams{}), kInvalidValue);
  EXPECT_EQ(store_.set_params(NodeHandle{}, fill(1)), kInvalidValue);
  EXPECT_EQ(store_.set_params(k, launch(kAdd, b_, 2)), kSuccess);
  EXPECT_EQ(store_.find(g)->nodes[0].pointers[0].address, b_);
}

TEST_F(Graphs, KernelNodesHaveTheirStreamsPriority) {
  const GraphHandle g = graph();
  NodeParams params = fill(1);
  NodeHandle n;
  ASSERT_EQ(store_.add_node(g, {}, {}, params, -1, &n), kSuccess);
  int32_t priority = 0;
  EXPECT_EQ(store_.get_priority(n, &priority), kSuccess);
  EXPECT_EQ(priority, -1);
  EXPECT_EQ(store_.get_priority(add(g, {}, EmptyParams{}), &priority), kInvalidValue);
  EXPECT_EQ(store_.get_priority(n, nullptr), kInvalidValue);
  EXPECT_EQ(store_.get_priority(NodeHandle{}, &priority), kInvalidValue);
}

class MemoryNodes : public StoreTest {};

TEST_F(MemoryNodes, AFreeNamesAnAllocationThatItsGraphHasNotFreed) {
  const GraphHandle g = graph();
  NodeHandle allocation;
  void* p = add_allocation(g, {}, &allocation);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(try_add(g, {}, MemFreeParams{a_}), kInvalidValue);  // of cudaMalloc
  const NodeHandle freed = add(g, {allocation}, MemFreeParams{p});
  EXPECT_EQ(try_add(g, {freed}, MemFreeParams{p}), kInvalidValue);
  EXPECT_EQ(try_add(graph(), {}, MemFreeParams{p}), kInvalidValue);  // g frees it itself
  EXPECT_EQ(try_add(g, {}, MemAllocParams{}), kInvalidValue);
}

TEST_F(MemoryNodes, AnotherGraphMayFreeWhatIsLeft) {
  const GraphHandle g = graph(), other = graph();
  void* p = add_allocation(g, {});
  EXPECT_EQ(try_add(other, {}, MemFreeParams{p}), kSuccess);
  EXPECT_EQ(try_add(other, {}, MemFreeParams{p}), kInvalidValue);
}

TEST_F(MemoryNodes, TheirGraphsHaveNoCopiesAndLoseNothing) {
  const GraphHandle g = graph();
  NodeHandle allocation;
  void* p = add_allocation(g, {}, &allocation);
  const NodeHandle k = add(g, {allocation}, launch(kFill, p, 3));
  GraphHandle clone;
  EXPECT_EQ(store_.clone(g, &clone), kNotSupported);
  EXPECT_EQ(try_add(graph(), {}, ChildGraphParams{g}), kNotSupported);
  EXPECT_EQ(unlink(g, allocation, k), kNotSupported);
  EXPECT_EQ(store_.destroy_node(k), kNotSupported);
  const ExecHandle first = instantiate(g);
  try_instantiate(g);
  EXPECT_EQ(last_error_, kNotSupported);
  ASSERT_EQ(store_.exec_destroy(first), kSuccess);
  const ExecHandle second = instantiate(g);
  EXPECT_EQ(store_.find_exec(second)->allocations, std::vector<void*>{p});
}

TEST_F(MemoryNodes, AnAddressIsUsedAgainOnlyAfterItsFree) {
  const auto again = [&](bool ordered, size_t bytes = 64) {
    const GraphHandle g = graph();
    NodeHandle allocation, next;
    void* p = add_allocation(g, {}, &allocation);
    const NodeHandle freed = add(g, {allocation}, MemFreeParams{p});
    return add_allocation(g, {ordered ? freed : allocation}, &next, bytes) == p;
  };
  EXPECT_TRUE(again(true));
  EXPECT_FALSE(again(false));
  EXPECT_FALSE(again(true, 128));
  answer_ = 1;
  EXPECT_FALSE(again(true));
}

TEST_F(MemoryNodes, AReusedAddressIsInUse) {
  const GraphHandle g = graph();
  NodeHandle allocation;
  void* p = add_allocation(g, {}, &allocation);
  const NodeHandle freed = add(g, {allocation}, MemFreeParams{p});
  EXPECT_EQ(add_allocation(g, {freed}), p);
  EXPECT_NE(add_allocation(g, {freed}), p);
  EXPECT_EQ(store_.find_exec(instantiate(g))->allocations.size(), 2u);
}

class Conditionals : public StoreTest {};

TEST_F(Conditionals, HaveAsManyBodiesAsTheirTypeAllows) {
  const GraphHandle g = graph();
  const auto added = [&](ConditionalType type, uint32_t size) {
    ConditionalHandle h;
    EXPECT_EQ(store_.create_conditional(g, 0, 0, &h), kSuccess);
    return try_add(g, {}, ConditionalParams{h, type, size, {}});
  };
  EXPECT_EQ(added(ConditionalType::kIf, 0), kInvalidValue);
  EXPECT_EQ(added(ConditionalType::kIf, 3), kInvalidValue);
  EXPECT_EQ(added(ConditionalType::kWhile, 2), kInvalidValue);
  EXPECT_EQ(added(ConditionalType::kSwitch, 0), kInvalidValue);
  EXPECT_EQ(added(ConditionalType::kIf, 2), kSuccess);
  EXPECT_EQ(added(ConditionalType::kSwitch, 5), kSuccess);
  ConditionalHandle h;
  EXPECT_EQ(store_.create_conditional(g, 0, 2, &h), kInvalidValue);
}

TEST_F(Conditionals, AHandleBelongsToOneNodeOfItsGraphOrBodies) {
  const GraphHandle g = graph(), other = graph();
  ConditionalHandle h, inner;
  ASSERT_EQ(store_.create_conditional(g, 1, 0, &h), kSuccess);
  const GraphHandle body_graph = add_conditional(g, ConditionalType::kIf, 1, h)[0];
  const auto params = [](ConditionalHandle c) {
    return ConditionalParams{c, ConditionalType::kIf, 1, {}};
  };
  EXPECT_EQ(try_add(body_graph, {}, params(h)), kInvalidValue);
  ASSERT_EQ(store_.create_conditional(body_graph, 1, 0, &inner), kSuccess);
  EXPECT_EQ(try_add(other, {}, params(inner)), kInvalidValue);
  EXPECT_EQ(try_add(body_graph, {}, params(inner)), kSuccess);
  EXPECT_EQ(body(instantiate(g)).conditionals.size(), 2u);
}

TEST_F(Conditionals, TheirGraphsHaveNoCopies) {
  const GraphHandle g = graph();
  add_conditional(g, ConditionalType::kIf, 1);
  GraphHandle clone;
  EXPECT_EQ(store_.clone(g, &clone), kNotSupported);
  EXPECT_EQ(try_add(graph(), {}, ChildGraphParams{g}), kNotSupported);
  instantiate(g);
  try_instantiate(g);
  EXPECT_EQ(last_error_, kNotSupported);
}

TEST_F(Conditionals, BodiesHoldWhatADeviceCanRunByItself) {
  int host = 0;
  const auto result = [&](const NodeParams& params, bool in_child = false) {
    const GraphHandle g = graph();
    const GraphHandle inside = add_conditional(g, ConditionalType::kWhile, 1)[0];
    const GraphHandle child = graph();
    const NodeHandle node = add(in_child ? child : inside, {}, params);
    if (in_child) add(inside, {}, ChildGraphParams{child});
    const InstantiateParams told = try_instantiate(g);
    if (told.result != InstantiateResult::kSuccess) {
      EXPECT_EQ(last_error_, kInvalidValue);
      EXPECT_EQ(told.error_node == node, !in_child);  // in a child: its clone's node
    }
    return told.result;
  };
  using enum InstantiateResult;
  EXPECT_EQ(result(HostParams{[](void*) {}, nullptr}), kNodeOperationNotSupported);
  EXPECT_EQ(result(HostParams{[](void*) {}, nullptr}, true), kNodeOperationNotSupported);
  EXPECT_EQ(result(EventRecordParams{{9}}), kNodeOperationNotSupported);
  EXPECT_EQ(result(EventWaitParams{{9}}), kNodeOperationNotSupported);
  EXPECT_EQ(result(MemAllocParams{64, nullptr}), kNodeOperationNotSupported);
  EXPECT_EQ(result(MemcpyParams{a_, &host, 4, 1, 0, 0, MemcpyKind::kHostToDevice}),
            kMultipleDevicesNotSupported);
  for (const NodeParams& allowed :
       {NodeParams(fill(1)), NodeParams(copy()), NodeParams(set(1)), NodeParams(EmptyParams{}),
        NodeParams(ChildGraphParams{graph()})})
    EXPECT_EQ(result(allowed), InstantiateResult::kSuccess) << type_name(allowed);
}

TEST_F(Conditionals, AnUnusedHandleMayBeRefused) {
  const GraphHandle g = graph();
  ConditionalHandle h;
  ASSERT_EQ(store_.create_conditional(g, 0, 0, &h), kSuccess);
  EXPECT_EQ(try_instantiate(g).result, InstantiateResult::kConditionalHandleUnused);
  EXPECT_EQ(last_error_, kInvalidValue);
  answer_ = 1;
  EXPECT_EQ(try_instantiate(g).result, InstantiateResult::kSuccess);
}

class Instantiate : public StoreTest {};

TEST_F(Instantiate, TellsTheLastNodeOfACycle) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, EmptyParams{}), m = add(g, {n}, EmptyParams{});
  add(g, {m}, EmptyParams{});  // after the cycle, not on it
  ASSERT_EQ(link(g, m, n), kSuccess);
  const InstantiateParams told = try_instantiate(g);
  EXPECT_EQ(last_error_, kInvalidValue);
  EXPECT_EQ(told.result, InstantiateResult::kInvalidStructure);
  EXPECT_EQ(told.error_node, m);
  const GraphHandle outer = graph();
  add(outer, {}, ChildGraphParams{g});
  EXPECT_EQ(try_instantiate(outer).result, InstantiateResult::kInvalidStructure);
}

TEST_F(Instantiate, FlagsExcludeOneAnother) {
  const GraphHandle g = graph();
  add(g, {}, fill(1));
  EXPECT_EQ(try_instantiate(g, kAutoFreeOnLaunch | kDeviceLaunch).result,
            InstantiateResult::kError);
  EXPECT_EQ(try_instantiate(g, 16).result, InstantiateResult::kError);
  EXPECT_EQ(try_instantiate(GraphHandle{}).result, InstantiateResult::kError);
  uint64_t flags = 0;
  ASSERT_EQ(store_.exec_get_flags(
                instantiate(g, kAutoFreeOnLaunch | kInstantiateUpload | kUseNodePriority), &flags),
            kSuccess);
  EXPECT_EQ(flags, kAutoFreeOnLaunch);
}

TEST_F(Instantiate, ForTheDeviceHoldsWhatADeviceCanRunByItself) {
  const GraphHandle g = graph();
  EXPECT_EQ(try_instantiate(g, kDeviceLaunch).result, InstantiateResult::kError);
  add(g, {}, fill(1));
  EXPECT_EQ(try_instantiate(g, kDeviceLaunch).result, InstantiateResult::kSuccess);
  const NodeHandle empty = add(g, {}, EmptyParams{});
  const InstantiateParams told = try_instantiate(g, kDeviceLaunch);
  EXPECT_EQ(told.result, InstantiateResult::kNodeOperationNotSupported);
  EXPECT_EQ(told.error_node, empty);
}

TEST_F(Instantiate, AnExecOutlivesItsGraphAndItsEdits) {
  const GraphHandle g = graph();
  const NodeHandle n = add(g, {}, fill(1));
  const ExecHandle e = instantiate(g);
  ASSERT_EQ(store_.set_params(n, fill(2)), kSuccess);
  EXPECT_EQ(value_of(body(e).nodes[0].params), 1);
  ASSERT_EQ(store_.destroy(g), kSuccess);
  EXPECT_EQ(body(e).nodes[0].label, "kernel fill");
  EXPECT_EQ(store_.exec_destroy(e), kSuccess);
}

TEST_F(Instantiate, ABodyKnowsItsOrder) {
  const GraphHandle g = graph();
  NodeHandle n[70];  // more than one word of bits a row
  for (int i = 0; i < 70; ++i)
    n[i] = i < 2 ? add(g, {}, EmptyParams{}) : add(g, {n[i - 2]}, EmptyParams{});
  ASSERT_EQ(link(g, n[69], n[0]), kSuccess);  // the odd ones come first
  const GraphHandle roots = graph();
  for (int i = 0; i < 3; ++i) add(roots, {}, EmptyParams{});
  const ExecHandle e = instantiate(g);
  const ExecBody& b = body(e);
  EXPECT_EQ(b.order.front(), 1);
  EXPECT_EQ(b.order.back(), 68);
  EXPECT_EQ(body(instantiate(roots)).order, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(b.nodes[0].before, std::vector<int32_t>{69});
  EXPECT_EQ(b.nodes[69].after, std::vector<int32_t>{0});
  const auto rank = [](int32_t i) { return i % 2 == 1 ? i / 2 : 35 + i / 2; };
  for (int32_t i = 0; i < 70; ++i)
    for (int32_t j = 0; j < 70; ++j) EXPECT_EQ(b.ordered(i, j), rank(i) < rank(j)) << i << " " << j;
}

TEST_F(Instantiate, ASingleOperationIsABodyOfOneNode) {
  const NodeParams params = copy(MemcpyKind::kHostToDevice);
  const auto b = single_node_body(params, bake_pointers(memory_, {}, params));
  ASSERT_EQ(b->nodes.size(), 1u);
  EXPECT_EQ(b->order, std::vector<int32_t>{0});
  EXPECT_FALSE(b->ordered(0, 0));
  EXPECT_EQ(b->nodes[0].label, "memcpy H2D");
  EXPECT_EQ(b->nodes[0].pointers.size(), 2u);
}

TEST(DeviceNames, AreCudas) {
  EXPECT_EQ(name_of(kSuccess), "cudaSuccess");
  EXPECT_EQ(name_of(kStreamCaptureMerge), "cudaErrorStreamCaptureMerge");
  EXPECT_EQ(name_of(DeviceError{12345}), "cudaErrorUnknown");
  EXPECT_EQ(name_of(OtherCall::kMallocPitch), "cudaMallocPitch");
  EXPECT_EQ(type_name(EventWaitParams{}), "wait_event");
}

}  // namespace
}  // namespace shadowgraph::graph_store_test
