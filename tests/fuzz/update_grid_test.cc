// The grid of updates: a clean device keeps the law, and each slip of a device is found.
#include "fuzz/device/update_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>

namespace shadowgraph::update_grid_test {
namespace {

UpdateGridResult run(const MakeSimDevice& make = {}, const CaseRange& range = {}) {
  const std::atomic<bool> stop = false;
  return run_update_grid(
      2, update_cases().size(), [](uint64_t, uint64_t) {}, stop, range, {}, make);
}

/// The cases of one kind of node.
CaseRange cases_of(std::string_view kind) {
  const auto is_of = [&](const UpdateCase& c) { return c.kind == kind; };
  const std::span<const UpdateCase> all = update_cases();
  const auto first = std::ranges::find_if(all, is_of);
  return {static_cast<uint64_t>(first - all.begin()),
          static_cast<uint64_t>(std::ranges::count_if(all, is_of))};
}

TEST(UpdateGrid, EveryFieldOfEveryNodeKeepsTheLaw) {
  const UpdateGridResult all = run();
  EXPECT_EQ(all.findings.to_string(), "ok");
  EXPECT_EQ(all.cases, update_cases().size());
  int64_t counted = 0;
  for (const auto& [kind, n] : all.counts) {
    counted += n;
    std::printf("  %-32s %6lld\n", kind.c_str(), static_cast<long long>(n));
  }
  EXPECT_EQ(counted, static_cast<int64_t>(all.cases));
  for (const char* kind : {"kernel", "memcpy d2d", "memset", "host", "event_record", "wait_event"})
    EXPECT_GT(all.counts.at(kind + std::string(" taken")), 0) << kind;
  for (const char* kind : {"memcpy rows", "memset rows", "graph", "conditional", "mem_alloc"})
    EXPECT_GT(all.counts.at(kind + std::string(" refused")), 0) << kind;
}

TEST(UpdateGrid, HasEveryTypeOfNode) {
  std::set<std::string> types;
  for (const UpdateCase& c : update_cases())
    types.insert(std::string(c.kind.substr(0, c.kind.find(' '))));
  // An empty node has no field.
  EXPECT_EQ(types.size() + 1, std::variant_size_v<NodeParams>);
}

TEST(UpdateGrid, RangesAreTheGrid) {
  EXPECT_EQ(run({}, {7, 5}).cases, 5u);
  EXPECT_EQ(run({}, {update_cases().size() - 3, 100}).cases, 3u);
}

/// A device does this wrong with an update.
struct Sloppy : SimDevice {
  using SimDevice::SimDevice;

  /// The nodes of a graph, those inside of its children and bodies too, in one order.
  std::vector<NodeHandle> nodes_of(GraphHandle g) {
    std::vector<NodeHandle> nodes, all;
    SimDevice::graph_get_nodes(g, &nodes);
    for (const NodeHandle n : nodes) {
      all.push_back(n);
      const NodeParams params = params_of(n);
      std::vector<GraphHandle> inside;
      if (const auto* child = std::get_if<ChildGraphParams>(&params)) inside = {child->graph};
      if (const auto* conditional = std::get_if<ConditionalParams>(&params))
        inside = conditional->bodies;
      for (const GraphHandle i : inside)
        for (const NodeHandle n_inside : nodes_of(i)) all.push_back(n_inside);
    }
    return all;
  }
  NodeParams params_of(NodeHandle n) {
    NodeParams params;
    SimDevice::graph_node_get_params(n, &params);
    return params;
  }
  DeviceError graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) override {
    const DeviceError error = SimDevice::graph_instantiate(g, flags, exec);
    sources[*exec] = g;
    for (const NodeHandle n : nodes_of(g)) instantiated[n] = params_of(n);
    return error;
  }
  /// Pairs nodes by number: fn(the exec's node, its own parameters, the other graph's).
  template <class Fn>
  void each_pair(ExecHandle exec, GraphHandle g, Fn fn) {
    const std::vector<NodeHandle> own = nodes_of(sources[exec]), others = nodes_of(g);
    for (size_t i = 0; i < std::min(own.size(), others.size()); ++i)
      fn(own[i], instantiated[own[i]], params_of(others[i]));
  }

  std::map<ExecHandle, GraphHandle> sources;
  std::map<NodeHandle, NodeParams> instantiated;
};

/// An update that leaves a field as it was.
template <class Params, class Field>
struct Forgets : Sloppy {
  using Sloppy::Sloppy;
  static inline Field Params::*field;

  DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) override {
    const DeviceError error = SimDevice::graph_exec_update(exec, g, info);
    if (error != DeviceError::kSuccess) return error;
    each_pair(exec, g, [&](NodeHandle node, const NodeParams& old, NodeParams now) {
      auto* to = std::get_if<Params>(&now);
      const auto* from = std::get_if<Params>(&old);
      if (to == nullptr || from == nullptr || to->*field == from->*field) return;
      to->*field = from->*field;
      SimDevice::graph_exec_node_set_params(exec, node, now);
    });
    return error;
  }
};

/// Is a change of that field of the kind found where updates forget it?
template <class Params, class Field>
bool finds(std::string_view kind, const std::string& text, Field Params::*field) {
  Forgets<Params, Field>::field = field;
  const UpdateGridResult all = run(
      [](const SimOptions& options) { return std::make_unique<Forgets<Params, Field>>(options); },
      cases_of(kind));
  return std::ranges::any_of(all.findings.findings(), [&](const Finding& f) {
    return f.where.field.starts_with(std::string(kind) + ' ' + text) && f.id == "device.update";
  });
}

TEST(UpdateGrid, AFieldThatAnUpdateForgetsIsFoundAndNamed) {
  EXPECT_TRUE(finds("kernel", "kernel = another", &KernelLaunch::kernel));
  EXPECT_TRUE(finds("kernel", "args = [0]", &KernelLaunch::args));
  EXPECT_TRUE(finds("kernel", "args = [2]", &KernelLaunch::args));
  EXPECT_TRUE(finds("kernel", "grid.y", &KernelLaunch::grid));
  EXPECT_TRUE(finds("kernel", "block.z", &KernelLaunch::block));
  EXPECT_TRUE(finds("kernel", "shared_bytes", &KernelLaunch::shared_bytes));
  EXPECT_TRUE(finds("kernel", "programmatic", &KernelLaunch::programmatic));
  EXPECT_TRUE(finds("memcpy d2d", "dst", &MemcpyParams::dst));
  EXPECT_TRUE(finds("memcpy h2d", "src", &MemcpyParams::src));
  EXPECT_TRUE(finds("memcpy d2h", "width", &MemcpyParams::width));
  EXPECT_TRUE(finds("memset", "dst", &MemsetParams::dst));
  EXPECT_TRUE(finds("memset", "value", &MemsetParams::value));
  EXPECT_TRUE(finds("memset rows", "value", &MemsetParams::value));
  EXPECT_TRUE(finds("host", "fn", &HostParams::fn));
  EXPECT_TRUE(finds("host", "user_data", &HostParams::user_data));
  EXPECT_TRUE(finds("event_record", "event", &EventRecordParams::event));
  EXPECT_TRUE(finds("wait_event", "event", &EventWaitParams::event));
}

/// A refused update that has changed the kernels which it met before.
struct HalfApplies : Sloppy {
  using Sloppy::Sloppy;
  DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) override {
    const DeviceError error = SimDevice::graph_exec_update(exec, g, info);
    if (error == DeviceError::kSuccess) return error;
    each_pair(exec, g, [&](NodeHandle node, const NodeParams&, const NodeParams& now) {
      if (std::holds_alternative<KernelLaunch>(now))
        SimDevice::graph_exec_node_set_params(exec, node, now);
    });
    return error;
  }
};

/// A setter that writes the node before it refuses.
struct WritesFirst : Sloppy {
  using Sloppy::Sloppy;
  DeviceError graph_exec_node_set_params(ExecHandle exec, NodeHandle node,
                                         const NodeParams& params) override {
    const DeviceError error = SimDevice::graph_exec_node_set_params(exec, node, params);
    const auto* set = std::get_if<MemsetParams>(&params);
    if (error == DeviceError::kSuccess || set == nullptr) return error;
    NodeParams old = instantiated[node];
    std::get<MemsetParams>(old).value += 1;
    SimDevice::graph_exec_node_set_params(exec, node, old);
    return error;
  }
};

/// A device that takes whatever it is given.
struct TakesAll : Sloppy {
  using Sloppy::Sloppy;
  DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) override {
    SimDevice::graph_exec_update(exec, g, info);
    info->result = UpdateResult::kSuccess;
    return DeviceError::kSuccess;
  }
};

template <class Device>
Status found_by(std::string_view kind) {
  return run([](const SimOptions& options) { return std::make_unique<Device>(options); },
             cases_of(kind))
      .findings;
}

TEST(UpdateGrid, ARefusalThatChangesSomethingIsFound) {
  const Status half = found_by<HalfApplies>("memcpy d2d"),
               first = found_by<WritesFirst>("memset rows");
  ASSERT_FALSE(half.ok() || first.ok());
  EXPECT_EQ(half.findings()[0].id, "device.update");
  EXPECT_NE(half.findings()[0].where.field.find("what it did before"), std::string::npos);
  EXPECT_NE(half.findings()[0].case_id.find("beside"), std::string::npos);
  EXPECT_NE(first.findings()[0].where.field.find("what it did before"), std::string::npos);
}

TEST(UpdateGrid, WhatMustBeRefusedIsNotTaken) {
  const Status taken = found_by<TakesAll>("memcpy rows");
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.findings()[0].where.field.find("the answer"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::update_grid_test
