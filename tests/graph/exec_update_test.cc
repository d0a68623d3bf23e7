#include <functional>

#include "graph/store_fixture.h"

namespace shadowgraph::exec_update_test {
namespace {

using enum DeviceError;

class ExecUpdate : public StoreTest {
 protected:
  UpdateInfo update(ExecHandle exec, GraphHandle g) {
    UpdateInfo info;
    last_error_ = store_.exec_update(exec, g, &info);
    EXPECT_EQ(last_error_ == kSuccess, info.result == UpdateResult::kSuccess);
    EXPECT_FALSE(info.error_from_node);
    return info;
  }
  /// Updates an exec of what build(false) makes from what build(true) makes; the ordinal of the
  /// error node, -1 for none.
  std::pair<UpdateResult, int> updated(const std::function<void(GraphHandle, bool)>& build) {
    const GraphHandle before = graph(), after = graph();
    build(before, false);
    build(after, true);
    exec_ = instantiate(before);
    const auto kept = store_.find_exec(exec_)->body;
    const UpdateInfo info = update(exec_, after);
    EXPECT_EQ(kept == store_.find_exec(exec_)->body, last_error_ != kSuccess);
    EXPECT_EQ(store_.find_exec(exec_)->parameters_of, last_error_ == kSuccess ? after : before);
    return {info.result, ordinal(after, info.error_node)};
  }
  /// One node.
  std::pair<UpdateResult, int> changed(const NodeParams& from, const NodeParams& to) {
    return updated([&](GraphHandle g, bool now) { add(g, {}, now ? to : from); });
  }

  ExecHandle exec_;
  const std::pair<UpdateResult, int> ok_{UpdateResult::kSuccess, -1};
  const std::pair<UpdateResult, int> topology_{UpdateResult::kTopologyChanged, -1};
};

TEST_F(ExecUpdate, TakesOverEveryParameterOfKernelsHostFunctionsAndEvents) {
  EXPECT_EQ(changed(fill(1), fill(2)), ok_);
  EXPECT_EQ(value_of(body(exec_).nodes[0].params), 2);
  KernelLaunch other = launch(kAdd, b_, 3);
  other.grid = {4, 1, 1};
  EXPECT_EQ(changed(fill(1), other), ok_);
  EXPECT_EQ(body(exec_).nodes[0].params, NodeParams(other));
  EXPECT_EQ(body(exec_).nodes[0].pointers[0].address, b_);
  EXPECT_EQ(body(exec_).nodes[0].label, "kernel add");
  EXPECT_EQ(changed(EventRecordParams{{5}}, EventRecordParams{{6}}), ok_);
  EXPECT_EQ(changed(EventWaitParams{{5}}, EventWaitParams{{6}}), ok_);
  EXPECT_EQ(changed(HostParams{[](void*) {}, a_}, HostParams{[](void*) {}, b_}), ok_);
}

TEST_F(ExecUpdate, NodesKeepTheirType) {
  const std::pair type_changed{UpdateResult::kNodeTypeChanged, 0};
  EXPECT_EQ(changed(fill(1), set(4)), type_changed);
  EXPECT_EQ(last_error_, kGraphExecUpdateFailure);
  EXPECT_EQ(changed(EmptyParams{}, fill(1)), type_changed);
}

TEST_F(ExecUpdate, CopiesKeepTheirDirection) {
  const std::pair parameters_changed{UpdateResult::kParametersChanged, 0};
  using enum MemcpyKind;
  int32_t host[4] = {};
  EXPECT_EQ(changed(MemcpyParams{a_, host, 16, 1, 0, 0, kHostToDevice},
                    MemcpyParams{host, a_, 16, 1, 0, 0, kDeviceToHost}),
            parameters_changed);
  EXPECT_EQ(changed(copy(), copy(kDefault)), parameters_changed);
  EXPECT_EQ(changed(copy(), copy(kDeviceToDevice, 32)), ok_);
  EXPECT_EQ(changed(copy(), MemcpyParams{b_, a_, 16, 1, 0, 0, kDeviceToDevice}), ok_);
  EXPECT_EQ(changed(copy(), MemcpyParams{a_, b_, 8, 2, 16, 16, kDeviceToDevice}),
            parameters_changed);
}

TEST_F(ExecUpdate, SetsKeepTheirShape) {
  const std::pair parameters_changed{UpdateResult::kParametersChanged, 0};
  EXPECT_EQ(changed(set(4), set(8)), ok_);
  EXPECT_EQ(changed(set(4), MemsetParams{b_, 9, 1, 4}), ok_);
  EXPECT_EQ(changed(set(4), set(2, 2, 8)), parameters_changed);
  EXPECT_EQ(changed(set(2, 2, 8), set(4)), parameters_changed);
  EXPECT_EQ(changed(set(2, 2, 8), set(2, 3, 8)), parameters_changed);
  EXPECT_EQ(changed(set(2, 2, 8), set(1, 2, 8)), parameters_changed);
  EXPECT_EQ(changed(set(2, 2, 8), set(2, 2, 16)), parameters_changed);
  EXPECT_EQ(changed(set(2, 2, 8), MemsetParams{b_, 9, 4, 2, 2, 8}), ok_);
}

TEST_F(ExecUpdate, AGraphOfAnotherSizeIsRefused) {
  const auto longer = [&](GraphHandle g, bool now) {
    const NodeHandle n = add(g, {}, fill(1));
    if (now) add(g, {n}, fill(2));
  };
  EXPECT_EQ(updated(longer), topology_);
  answer_ = 1;
  EXPECT_EQ(updated(longer), std::pair(UpdateResult::kNotSupported, -1));
}

TEST_F(ExecUpdate, EdgesStay) {
  const auto edge = [&](bool when) {
    return [this, when](GraphHandle g, bool now) {
      const NodeHandle n = add(g, {}, fill(now)), m = add(g, {}, fill(now));
      if (now == when) link(g, n, m);
    };
  };
  EXPECT_EQ(updated(edge(true)), topology_);
  EXPECT_EQ(updated(edge(false)), std::pair(UpdateResult::kTopologyChanged, 0));
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              const NodeHandle n = add(g, {}, fill(1)), m = add(g, {n}, fill(2));
              add(g, {now ? m : n}, fill(3));
            }),
            topology_);
}

TEST_F(ExecUpdate, NoNodeIsPairedTwice) {
  const auto three_sinks = [&](GraphHandle g, bool now) {
    NodeHandle n[3];
    for (NodeHandle& node : n) node = add(g, {}, fill(1));
    for (int i = 0; i < 3; ++i) add(g, {n[now ? 0 : i]}, fill(2));
    if (now) link(g, n[1], n[2]);
    if (now) link(g, n[2], n[1]);
  };
  EXPECT_EQ(updated(three_sinks).first, UpdateResult::kTopologyChanged);
}

TEST_F(ExecUpdate, NodesArePairedFromTheSinks) {
  // The same chain, inserted the other way round.
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              if (!now) {
                const NodeHandle k = add(g, {}, fill(1));
                add(g, {k}, set(4));
              } else {
                const NodeHandle m = add(g, {}, set(8)), k = add(g, {}, fill(2));
                link(g, k, m);
              }
            }),
            ok_);
  EXPECT_EQ(value_of(body(exec_).nodes[0].params), 2);
  EXPECT_EQ(std::get<MemsetParams>(body(exec_).nodes[1].params).width, 8u);
}

TEST_F(ExecUpdate, TheFirstPairThatDiffersIsTold) {
  const auto type_changed = [](int node) {
    return std::pair(UpdateResult::kNodeTypeChanged, node);
  };
  const auto swapped = [&](bool chain, bool sink) {
    return [this, chain, sink](GraphHandle g, bool now) {
      const NodeParams k = fill(1), m = set(4);
      const NodeHandle first = add(g, {}, now ? m : k);
      const NodeHandle second = chain ? add(g, {first}, now ? k : m) : add(g, {}, now ? k : m);
      if (sink) add(g, {first, second}, add_kernel(1));
    };
  };
  EXPECT_EQ(updated(swapped(false, false)), type_changed(1));
  EXPECT_EQ(updated(swapped(true, false)), type_changed(1));
  EXPECT_EQ(updated(swapped(false, true)), type_changed(0));
}

TEST_F(ExecUpdate, EdgesInAnotherOrderMayBeRefused) {
  const auto reordered = [&](GraphHandle g, bool now) {
    const NodeHandle n = add(g, {}, fill(now ? 11 : 1)), m = add(g, {}, add_kernel(now ? 12 : 2));
    const NodeHandle sink = add(g, {}, fill(3));
    link(g, now ? m : n, sink);
    link(g, now ? n : m, sink);
  };
  EXPECT_EQ(updated(reordered), ok_);
  EXPECT_EQ(value_of(body(exec_).nodes[0].params), 12);
  answer_ = 1;
  EXPECT_EQ(updated(reordered), topology_);
  // Nodes in another order, their edges in the same: that is promised.
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              NodeHandle n, m;
              if (!now) n = add(g, {}, fill(1));
              m = add(g, {}, add_kernel(2));
              if (now) n = add(g, {}, fill(1));
              const NodeHandle sink = add(g, {}, fill(3));
              link(g, n, sink);
              link(g, m, sink);
            }),
            ok_);
}

TEST_F(ExecUpdate, GoesIntoChildren) {
  const auto child = [&](const NodeParams& from, const NodeParams& to, bool longer = false) {
    return updated([&, longer](GraphHandle g, bool now) {
      const GraphHandle inside = graph();
      const NodeHandle n = add(inside, {}, now ? to : from);
      if (longer && now) add(inside, {n}, fill(9));
      add(g, {}, ChildGraphParams{inside});
    });
  };
  EXPECT_EQ(child(fill(1), add_kernel(2)), ok_);
  EXPECT_EQ(value_of(body(exec_).nodes[0].bodies[0]->nodes[0].params), 2);
  EXPECT_EQ(child(fill(1), set(4)).first, UpdateResult::kNodeTypeChanged);
  EXPECT_EQ(child(set(4), set(2, 2, 8)).first, UpdateResult::kParametersChanged);
  EXPECT_EQ(child(fill(1), fill(2), true), topology_);
}

TEST_F(ExecUpdate, GoesIntoBodies) {
  using enum ConditionalType;
  const auto conditional = [&](ConditionalType type, uint32_t size, bool longer) {
    return updated([&, longer](GraphHandle g, bool now) {
      const auto bodies = add_conditional(g, now ? type : kIf, now ? size : 1);
      const NodeHandle n = add(bodies[0], {}, fill(now));
      if (longer && now) add(bodies[0], {n}, fill(9));
    });
  };
  EXPECT_EQ(conditional(kIf, 1, false), ok_);
  const ExecBody& b = body(exec_);
  EXPECT_EQ(value_of(b.nodes[0].bodies[0]->nodes[0].params), 1);
  EXPECT_EQ(b.conditionals[0].handle, std::get<ConditionalParams>(b.nodes[0].params).handle);
  EXPECT_EQ(conditional(kSwitch, 1, false), std::pair(UpdateResult::kNotSupported, 0));
  EXPECT_EQ(conditional(kIf, 2, false), std::pair(UpdateResult::kNotSupported, 0));
  EXPECT_EQ(conditional(kIf, 1, true), topology_);
}

TEST_F(ExecUpdate, TakesOverAllocations) {
  void* now_at = nullptr;
  EXPECT_EQ(updated([&](GraphHandle g, bool now) {
              now_at = add_allocation(g, {}, nullptr, now ? 4096 : 64);
            }),
            ok_);
  EXPECT_EQ(store_.find_exec(exec_)->allocations, std::vector<void*>{now_at});
}

TEST_F(ExecUpdate, ARunningLaunchKeepsItsParameters) {
  const GraphHandle g1 = graph(), g2 = graph();
  const NodeHandle n = add(g1, {}, fill(1));
  add(g2, {}, fill(2));
  const ExecHandle e = instantiate(g1);
  const auto launched = store_.find_exec(e)->body;
  ASSERT_EQ(store_.set_enabled(e, n, false), kSuccess);
  update(e, g2);
  ASSERT_EQ(store_.exec_set_params(e, n, fill(3)), kSuccess);
  EXPECT_EQ(value_of(launched->nodes[0].params), 1);
  EXPECT_TRUE(launched->nodes[0].enabled);
  EXPECT_EQ(value_of(body(e).nodes[0].params), 3);
  EXPECT_FALSE(body(e).nodes[0].enabled);  // the update left it
}

TEST_F(ExecUpdate, NeedsAnExecAndAGraph) {
  const GraphHandle g = graph();
  EXPECT_EQ(update(ExecHandle{}, g).result, UpdateResult::kError);
  EXPECT_EQ(last_error_, kInvalidValue);
  EXPECT_EQ(update(instantiate(g), GraphHandle{}).result, UpdateResult::kError);
  EXPECT_EQ(last_error_, kInvalidValue);
}

class ExecNodes : public StoreTest {};

TEST_F(ExecNodes, TakeOtherParametersOfTheirType) {
  const GraphHandle g = graph();
  const NodeHandle k = add(g, {}, fill(1)), c = add(g, {}, copy());
  const ExecHandle e = instantiate(g);
  EXPECT_EQ(store_.exec_set_params(e, k, launch(kAdd, b_, 7)), kSuccess);
  EXPECT_EQ(value_of(body(e).nodes[0].params), 7);
  EXPECT_EQ(body(e).nodes[0].label, "kernel add");
  EXPECT_EQ(value_of(store_.find(g)->nodes[0].params), 1);
  EXPECT_EQ(store_.exec_set_params(e, k, copy()), kInvalidValue);
  EXPECT_EQ(store_.exec_set_params(e, NodeHandle{5}, fill(1)), kInvalidValue);
  EXPECT_EQ(store_.exec_set_params(e, c, copy(MemcpyKind::kDeviceToDevice, 0)), kInvalidValue);
  EXPECT_EQ(store_.exec_set_params(e, c, copy(MemcpyKind::kDefault)), kInvalidValue);
  EXPECT_EQ(store_.exec_set_params(e, c, copy(MemcpyKind::kDeviceToDevice, 32)), kSuccess);
}

TEST_F(ExecNodes, ASetStretchesAsFarAsTheDriverLikes) {
  const auto becomes = [&](const MemsetParams& from, const MemsetParams& to) {
    const GraphHandle g = graph();
    const NodeHandle n = add(g, {}, from);
    return store_.exec_set_params(instantiate(g), n, to);
  };
  for (uint32_t answer : {0u, 1u}) {
    answer_ = answer;
    EXPECT_EQ(becomes(set(2), set(1)), kSuccess);
    EXPECT_EQ(becomes(set(2), MemsetParams{b_, 8, 4, 2}), kSuccess);
    EXPECT_EQ(becomes(set(2, 2, 16), set(2, 3, 16)), kInvalidValue);
    EXPECT_EQ(becomes(set(2, 2, 16), set(3, 2, 16)), kInvalidValue);
    EXPECT_EQ(becomes(set(2), set(2, 2, 16)), kInvalidValue);
    EXPECT_EQ(becomes(set(2), set(3)), answer == 0 ? kSuccess : kInvalidValue);
    EXPECT_EQ(becomes(set(2), MemsetParams{a_, 3, 1, 2}), answer == 0 ? kSuccess : kInvalidValue);
  }
}

TEST_F(ExecNodes, InsideAChildAreChangedToo) {
  const GraphHandle child = graph(), g = graph();
  add(child, {}, fill(1));
  const NodeHandle outer = add(g, {}, ChildGraphParams{child});
  const ExecHandle e = instantiate(g);
  const NodeHandle inner = body(e).nodes[0].bodies[0]->nodes[0].source;
  EXPECT_EQ(store_.exec_set_params(e, inner, fill(2)), kSuccess);
  EXPECT_EQ(value_of(body(e).nodes[0].bodies[0]->nodes[0].params), 2);
  EXPECT_EQ(store_.exec_set_params(e, outer, ChildGraphParams{child}), kInvalidValue);
}

TEST_F(ExecNodes, KernelsCopiesAndSetsCanBeDisabled) {
  const GraphHandle g = graph();
  for (const NodeParams& can : {NodeParams(fill(1)), NodeParams(copy()), NodeParams(set(1))})
    add(g, {}, can);
  for (const NodeParams& cannot :
       {NodeParams(EmptyParams{}), NodeParams(HostParams{[](void*) {}, nullptr}),
        NodeParams(EventRecordParams{{9}}), NodeParams(ChildGraphParams{graph()})})
    add(g, {}, cannot);
  const ExecHandle e = instantiate(g);
  std::vector<NodeHandle> nodes;
  ASSERT_EQ(store_.get_nodes(g, &nodes), kSuccess);
  for (size_t i = 0; i < nodes.size(); ++i) {
    bool enabled = true;
    const DeviceError expected = i < 3 ? kSuccess : kInvalidValue;
    EXPECT_EQ(store_.set_enabled(e, nodes[i], false), expected) << i;
    EXPECT_EQ(store_.get_enabled(e, nodes[i], &enabled), expected) << i;
    EXPECT_EQ(enabled, i >= 3);
  }
  EXPECT_EQ(store_.exec_set_params(e, nodes[0], fill(7)), kSuccess);
  EXPECT_FALSE(body(e).nodes[0].enabled);
  EXPECT_EQ(store_.set_enabled(e, nodes[0], true), kSuccess);
  EXPECT_TRUE(body(e).nodes[0].enabled);
}

}  // namespace
}  // namespace shadowgraph::exec_update_test
