#include "graph/executor/running_graph.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {

RunningGraph::RunningGraph(std::shared_ptr<const BodyRun> run, RunningGraph* parent)
    : run_(std::move(run)),
      parent_(parent),
      states_(run_->body->nodes.size()),
      remaining_(states_.size()) {
  for (int32_t i = 0; i < static_cast<int32_t>(states_.size()); ++i) {
    state(i).missing = body().nodes[static_cast<size_t>(i)].before.size();
    if (state(i).missing == 0) open_.push_back(i);
  }
}

void RunningGraph::make_open(int32_t node) {
  open_.insert(std::lower_bound(open_.begin(), open_.end(), node), node);
}

void RunningGraph::complete(int32_t node) {
  NodeState& done = state(node);
  done.done = true;
  done.suspended.reset();
  done.nested.reset();
  open_.erase(std::lower_bound(open_.begin(), open_.end(), node));
  --remaining_;
  for (const int32_t next : body().nodes[static_cast<size_t>(node)].after)
    if (--state(next).missing == 0) make_open(next);
}

void RunningGraph::wake() {
  for (const int32_t node : open_) {
    state(node).asleep = false;
    if (state(node).nested != nullptr) state(node).nested->wake();
  }
}

}  // namespace shadowgraph
