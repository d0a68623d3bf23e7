// Graphs and executable graphs as launches show them: what an update, a disabled node, a clone and
// a live allocation do to what runs.
#include <gtest/gtest.h>

#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::exec_calls_test {
namespace {

using enum DeviceError;

class ExecCalls : public CaptureTest {
 public:
  NodeHandle node(GraphHandle to, NodeParams params, const std::vector<NodeHandle>& after = {}) {
    NodeHandle made_node;
    EXPECT_EQ(api->graph_add_node(to, after, params, &made_node), kSuccess);
    return made_node;
  }
  GraphHandle graph() {
    GraphHandle made_graph;
    EXPECT_EQ(api->graph_create(&made_graph), kSuccess);
    return made_graph;
  }
  ExecHandle instantiate(GraphHandle from, uint64_t flags = 0) {
    ExecHandle exec_of;
    EXPECT_EQ(api->graph_instantiate(from, flags, &exec_of), kSuccess);
    return exec_of;
  }
  /// What a launch adds to the counter.
  int32_t launched(ExecHandle exec_of) {
    const int32_t before = read();
    EXPECT_EQ(api->graph_launch(exec_of, kLegacyStream), kSuccess);
    return read() - before;
  }
};

TEST_F(ExecCalls, ARefusedUpdateChangesNoNode) {
  const GraphHandle before = graph(), after = graph();
  // Sinks are paired first: the update meets the node that it may change, then the one it may not.
  node(before, adds(1), {node(before, adds(10))});
  node(after, adds(100), {node(after, MemsetParams{.dst = p + 4, .width = 4})});
  const ExecHandle exec_of = instantiate(before);
  UpdateInfo info;
  EXPECT_EQ(api->graph_exec_update(exec_of, after, &info), kGraphExecUpdateFailure);
  EXPECT_EQ(info.result, UpdateResult::kNodeTypeChanged);
  EXPECT_EQ(launched(exec_of), 11);
}

TEST_F(ExecCalls, ADisabledNodeIsEmptyUntilItIsEnabled) {
  for (const bool checked : {true, false}) {
    SimOptions options;
    options.checked = checked;
    make(options);
    const GraphHandle from = graph();
    const NodeHandle first = node(from, adds(1));
    node(from, adds(10), {first});
    const ExecHandle exec_of = instantiate(from);
    EXPECT_EQ(launched(exec_of), 11);
    EXPECT_EQ(api->graph_node_set_enabled(exec_of, first, false), kSuccess);
    EXPECT_EQ(launched(exec_of), 10);
    EXPECT_EQ(api->graph_exec_node_set_params(exec_of, first, adds(2)), kSuccess);
    EXPECT_EQ(launched(exec_of), 10);
    EXPECT_EQ(api->graph_node_set_enabled(exec_of, first, true), kSuccess);
    EXPECT_EQ(launched(exec_of), 12);
  }
}

TEST_F(ExecCalls, ACloneHasItsOwnChildren) {
  const GraphHandle inside = graph(), original = graph();
  node(inside, adds(1));
  const NodeHandle child = node(original, ChildGraphParams{inside});
  GraphHandle clone;
  ASSERT_EQ(api->graph_clone(original, &clone), kSuccess);

  NodeParams params;
  std::vector<NodeHandle> inner;
  ASSERT_EQ(api->graph_node_get_params(child, &params), kSuccess);
  ASSERT_EQ(api->graph_get_nodes(std::get<ChildGraphParams>(params).graph, &inner), kSuccess);
  ASSERT_EQ(api->graph_node_set_params(inner.at(0), adds(2)), kSuccess);
  EXPECT_EQ(launched(instantiate(original)), 2);
  EXPECT_EQ(launched(instantiate(clone)), 1);
}

TEST_F(ExecCalls, AnAllocationThatIsLeftLiveIsFreedByTheNextLaunchOnlyIfItMay) {
  for (const uint64_t flags : {uint64_t{0}, kAutoFreeOnLaunch}) {
    const GraphHandle from = graph();
    node(from, MemAllocParams{64, nullptr});
    const ExecHandle exec_of = instantiate(from, flags);
    EXPECT_EQ(api->graph_launch(exec_of, kLegacyStream), kSuccess);
    EXPECT_EQ(api->graph_launch(exec_of, kLegacyStream), flags == 0 ? kInvalidValue : kSuccess);
  }
}

TEST_F(ExecCalls, WaitingForOneStreamOrdersNothingAfterAnother) {
  const StreamHandle a = stream(), b = stream();
  EXPECT_EQ(add(b, 1), kSuccess);
  KernelLaunch elsewhere = adds(1);
  elsewhere.args = k::args(p + 1, 1, 1);
  EXPECT_EQ(api->launch_kernel(elsewhere, a), kSuccess);
  EXPECT_EQ(api->stream_synchronize(a), kSuccess);
  EXPECT_EQ(found(), "");
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(found(), "mem.race");
}

}  // namespace
}  // namespace shadowgraph::exec_calls_test
