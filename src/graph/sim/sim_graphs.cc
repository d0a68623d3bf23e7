// SimDevice: graphs and executable graphs.
#include <algorithm>

#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

DeviceError SimDevice::graph_create(GraphHandle* g) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.create(g); }, /*after_fault=*/true);
}
DeviceError SimDevice::graph_destroy(GraphHandle g) {
  return impl_->call([&](ThreadState&) {
    return impl_->captures.captures_into(g) ? kIllegalState : impl_->graphs.destroy(g);
  });
}
DeviceError SimDevice::graph_clone(GraphHandle g, GraphHandle* clone) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.clone(g, clone); });
}
DeviceError SimDevice::graph_node_find_in_clone(NodeHandle original, GraphHandle clone,
                                                NodeHandle* node) {
  return impl_->call(
      [&](ThreadState&) { return impl_->graphs.find_in_clone(original, clone, node); });
}
DeviceError SimDevice::graph_add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                                      NodeParams& params, NodeHandle* node) {
  return impl_->call(
      [&](ThreadState&) { return impl_->graphs.add_node(g, dependencies, {}, params, 0, node); });
}
DeviceError SimDevice::graph_destroy_node(NodeHandle node) {
  return impl_->call([&](ThreadState&) {
    const StoredGraph* home = impl_->graphs.graph_of(node);
    const bool captured = home != nullptr && impl_->captures.captures_into(home->handle);
    return captured ? kIllegalState : impl_->graphs.destroy_node(node);
  });
}
DeviceError SimDevice::graph_add_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.add_dependencies(g, edges); });
}
DeviceError SimDevice::graph_remove_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.remove_dependencies(g, edges); });
}
DeviceError SimDevice::graph_get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.get_nodes(g, nodes); });
}
DeviceError SimDevice::graph_get_edges(GraphHandle g, std::vector<GraphEdge>* edges) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.get_edges(g, edges); });
}
DeviceError SimDevice::graph_node_get_params(NodeHandle node, NodeParams* params) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.get_params(node, params); });
}
DeviceError SimDevice::graph_node_set_params(NodeHandle node, const NodeParams& params) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.set_params(node, params); });
}
DeviceError SimDevice::graph_kernel_node_get_priority(NodeHandle node, int32_t* priority) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.get_priority(node, priority); });
}
DeviceError SimDevice::graph_conditional_handle_create(GraphHandle g, uint32_t default_value,
                                                       uint32_t flags, ConditionalHandle* h) {
  return impl_->call(
      [&](ThreadState&) { return impl_->graphs.create_conditional(g, default_value, flags, h); });
}

DeviceError SimDevice::graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) {
  return impl_->call([&](ThreadState& t) {
    const DeviceError error = impl_->captures.enter_unsafe(t);
    if (error != kSuccess) return error;
    // Uploading needs a stream, which only the call with parameters names.
    if ((flags & kInstantiateUpload) != 0) return kInvalidValue;
    InstantiateParams params;
    params.flags = flags;
    return impl_->graphs.instantiate(g, &params, exec);
  });
}
DeviceError SimDevice::graph_instantiate_with_params(GraphHandle g, InstantiateParams* params,
                                                     ExecHandle* exec) {
  return impl_->call([&](ThreadState& t) {
    const DeviceError error = impl_->captures.enter_unsafe(t);
    if (error != kSuccess) return error;
    return params == nullptr ? kInvalidValue : impl_->graphs.instantiate(g, params, exec);
  });
}
DeviceError SimDevice::graph_exec_destroy(ExecHandle exec) {
  return impl_->call([&](ThreadState& t) {
    DeviceError error = impl_->captures.enter_unsafe(t);
    if (error == kSuccess) error = impl_->graphs.exec_destroy(exec);
    if (error == kSuccess) {
      impl_->execs.erase(exec);
      impl_->destroyed_execs.insert(exec);
    }
    return error;
  });
}
DeviceError SimDevice::graph_exec_get_flags(ExecHandle exec, uint64_t* flags) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.exec_get_flags(exec, flags); });
}
DeviceError SimDevice::graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) {
  return impl_->call([&](ThreadState&) {
    const DeviceError error = impl_->graphs.exec_update(exec, g, info);
    if (error != kSuccess) return error;
    judged("graph.update_order");
    const int32_t misplaced = impl_->graphs.find_exec(exec)->body->misplaced;
    if (misplaced >= 0) {
      impl_->add_finding("graph.update_order", "node " + std::to_string(misplaced),
                         "paired with the node of that number in the graph that updates the exec",
                         "another: the graph lists its nodes or edges in another order");
    }
    return error;
  });
}
DeviceError SimDevice::graph_exec_node_set_params(ExecHandle exec, NodeHandle node,
                                                  const NodeParams& params) {
  return impl_->call(
      [&](ThreadState&) { return impl_->graphs.exec_set_params(exec, node, params); });
}
DeviceError SimDevice::graph_node_set_enabled(ExecHandle exec, NodeHandle node, bool enabled) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.set_enabled(exec, node, enabled); });
}
DeviceError SimDevice::graph_node_get_enabled(ExecHandle exec, NodeHandle node, bool* enabled) {
  return impl_->call([&](ThreadState&) { return impl_->graphs.get_enabled(exec, node, enabled); });
}

DeviceError SimDevice::graph_upload(ExecHandle exec, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_uncapturable(*s);
    if (error != kSuccess) return error;
    return impl_->graphs.find_exec(exec) == nullptr ? kInvalidValue : kSuccess;
  });
}

/// What the launch allocates and frees beyond itself. InvalidValue: an allocation of an earlier
/// launch is still live, and the exec may not free it by itself.
DeviceError SimDevice::Impl::account_allocations(SimStream& s, const Exec& exec) {
  const auto live = [&](void* p) { return live_graph_allocations.contains(p); };
  if (std::any_of(exec.allocations.begin(), exec.allocations.end(), live)) {
    if ((exec.flags & kAutoFreeOnLaunch) == 0) return kInvalidValue;
    for (void* p : exec.allocations)
      if (live_graph_allocations.erase(p) > 0) enqueue(s, MemFreeParams{p});
  }
  std::set<void*> live_then = live_graph_allocations;
  // In an order of the graph: one address may be allocated, freed and allocated again.
  for (const int32_t i : exec.body->order) {
    const NodeParams& params = exec.body->nodes[static_cast<size_t>(i)].params;
    if (const auto* a = std::get_if<MemAllocParams>(&params)) live_then.insert(a->address);
    if (const auto* f = std::get_if<MemFreeParams>(&params))
      if (live_then.erase(f->address) == 0) return kInvalidValue;
  }
  live_graph_allocations = std::move(live_then);
  return kSuccess;
}

/// External event records stand, from the launch on, for their nodes of this launch.
void SimDevice::Impl::point_events(const ExecBody& body, uint64_t serial) {
  for (const ExecNode& node : body.nodes) {
    if (const auto* record = std::get_if<EventRecordParams>(&node.params)) {
      if (SimEvent* e = event(record->event); e != nullptr) {
        e->state = SimEvent::State::kRecorded;
        e->marker = {serial, node.source};
      }
    }
    for (const auto& inner : node.bodies) point_events(*inner, serial);
  }
}

DeviceError SimDevice::graph_launch(ExecHandle handle, StreamHandle stream_handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(stream_handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    DeviceError error = impl_->captures.enter_uncapturable(*s);
    if (error != kSuccess) return error;
    const Exec* exec = impl_->graphs.find_exec(handle);
    judged("mem.use_after_free");
    if (exec == nullptr) {
      if (impl_->destroyed_execs.contains(handle))
        impl_->add_finding("mem.use_after_free", "graph exec", "an exec that lives",
                           "an exec that was destroyed");
      return kInvalidValue;
    }
    auto& state = impl_->execs[handle];
    if (state.expected) judged("mem.stale_generation");
    if (state.expected && state.expected != exec->parameters_of) {
      impl_->add_finding("mem.stale_generation", "graph exec",
                         "the parameters of the graph that the launch is meant for",
                         "another graph's parameters: the update was left out");
    }
    error = impl_->account_allocations(*s, *exec);
    if (error != kSuccess) return error;
    // Launches of one exec never overlap, whatever their streams.
    state.last = impl_->enqueue(*s, exec->body, Phase::kReplay, {state.last});
    impl_->point_events(*exec->body, state.last.serial);
    return kSuccess;
  });
}

}  // namespace shadowgraph
