// Executor: one body in an order that is given.
#include "graph/executor/executor_impl.h"

namespace shadowgraph {

std::vector<Footprint> Executor::run_in_order(std::shared_ptr<const ExecBody> body,
                                              const WorkInfo& info,
                                              std::span<const int32_t> order) {
  wait_all();
  Impl& d = *impl_;
  if (d.sticky != DeviceError::kSuccess) return {};
  std::vector<Footprint> accessed(body->nodes.size());
  d.push(std::move(body), info, d.next_origin(info.phase));
  Impl::Operation& op = d.operations.back();
  d.start_ready();
  for (const int32_t node : order) {
    d.spans.clear();
    const Impl::Step step{&op, op.graph.get(), node};
    // Nothing else runs: what waits waits in vain, and is told so.
    for (d.stalled = false; !op.done && !op.graph->state(node).done; d.stalled = true) {
      d.run(step);
      if (accessed[static_cast<size_t>(node)].empty())
        accessed[static_cast<size_t>(node)] = d.spans;
    }
  }
  d.stalled = false;
  wait_all();
  if (d.sticky != DeviceError::kSuccess) return {};
  return accessed;
}

}  // namespace shadowgraph
