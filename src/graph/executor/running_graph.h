// A body while it runs: which nodes are ready, what suspended kernels keep, and the bodies that run
// inside its child-graph and conditional nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/executor/happens_before.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// A kernel whose body returned kWaiting.
struct Suspended {
  uint32_t calls = 0;
  int64_t state = 0;
  Footprint spans;
};

class RunningGraph {
 public:
  struct NodeState {
    size_t missing = 0;  // predecessors that are not done
    bool done = false;
    bool asleep = false;  // not to be called before something else moved
    std::unique_ptr<Suspended> suspended;
    std::unique_ptr<RunningGraph> nested;
  };

  RunningGraph(std::shared_ptr<const BodyRun> run, RunningGraph* parent);

  const std::shared_ptr<const BodyRun>& run() const { return run_; }
  const ExecBody& body() const { return *run_->body; }
  RunningGraph* parent() const { return parent_; }
  NodeRunId id(int32_t node) const { return {run_, node}; }
  NodeState& state(int32_t node) { return states_[static_cast<size_t>(node)]; }
  const NodeState& state(int32_t node) const { return states_[static_cast<size_t>(node)]; }

  /// Nodes whose predecessors are done and that are not, by ordinal.
  const std::vector<int32_t>& open() const { return open_; }
  bool finished() const { return remaining_ == 0; }
  void complete(int32_t node);
  /// Wakes every sleeping node, nested ones too.
  void wake();

 private:
  void make_open(int32_t node);

  std::shared_ptr<const BodyRun> run_;
  RunningGraph* parent_;
  std::vector<NodeState> states_;
  std::vector<int32_t> open_;
  size_t remaining_;
};

}  // namespace shadowgraph
