// Nodes: added, destroyed, listed, their parameters read and changed.
#include <algorithm>

#include "graph/capture/check_params.h"
#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

using enum DeviceError;

bool is_settable(const NodeParams& params) {
  return std::holds_alternative<KernelLaunch>(params) ||
         std::holds_alternative<MemcpyParams>(params) ||
         std::holds_alternative<MemsetParams>(params) ||
         std::holds_alternative<HostParams>(params) ||
         std::holds_alternative<EventRecordParams>(params) ||
         std::holds_alternative<EventWaitParams>(params);
}

DeviceError GraphStore::Impl::check(const NodeParams& params) const {
  if (const auto* launch = std::get_if<KernelLaunch>(&params)) return check_launch(*launch);
  // Nodes of no bytes do not exist.
  if (const auto* copy = std::get_if<MemcpyParams>(&params))
    return copy->width == 0 || copy->height == 0 ? kInvalidValue : check_copy(memory, *copy);
  if (const auto* set = std::get_if<MemsetParams>(&params))
    return set->width == 0 || set->height == 0 ? kInvalidValue : check_set(*set);
  if (const auto* host = std::get_if<HostParams>(&params))
    return host->fn == nullptr ? kInvalidValue : kSuccess;
  if (const auto* record = std::get_if<EventRecordParams>(&params))
    return record->event ? kSuccess : kInvalidResourceHandle;
  if (const auto* wait = std::get_if<EventWaitParams>(&params))
    return wait->event ? kSuccess : kInvalidResourceHandle;
  return kSuccess;
}

DeviceError GraphStore::Impl::add_conditional(StoredGraph& g, Node* node) {
  auto& params = std::get<ConditionalParams>(node->params);
  const uint32_t size = params.size;
  const bool fits = params.type == ConditionalType::kIf      ? size == 1 || size == 2
                    : params.type == ConditionalType::kWhile ? size == 1
                                                             : size >= 1;
  auto& known = outermost(g).conditionals;
  const auto info = std::find_if(known.begin(), known.end(), [&](const ConditionalInfo& c) {
    return c.handle == params.handle;
  });
  if (!fits || info == known.end() || info->used) return kInvalidValue;
  info->used = true;
  params.bodies.clear();
  for (uint32_t i = 0; i < size; ++i) params.bodies.push_back(make_graph(node->handle).handle);
  return kSuccess;
}

DeviceError GraphStore::add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                                 std::span<const EdgeData> edge_data, NodeParams& params,
                                 int32_t priority, NodeHandle* node) {
  StoredGraph* graph = find(g);
  if (graph == nullptr || node == nullptr) return kInvalidValue;
  if (!edge_data.empty() && edge_data.size() != dependencies.size()) return kInvalidValue;
  std::vector<NodeHandle> distinct(dependencies.begin(), dependencies.end());
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) return kInvalidValue;
  for (NodeHandle d : dependencies)
    if (graph_of(d) != graph) return kInvalidValue;
  DeviceError error = impl_->check(params);
  if (error != kSuccess) return error;

  Node added{impl_->make_handle<NodeHandle>(), params, priority, {}, nullptr};
  const bool in_child = graph->owner && !impl_->is_body(*graph);
  if (in_child && (std::holds_alternative<MemAllocParams>(params) ||
                   std::holds_alternative<MemFreeParams>(params))) {
    error = kNotSupported;
  } else if (auto* allocation = std::get_if<MemAllocParams>(&added.params)) {
    error = impl_->allocate(*graph, dependencies, allocation);
  } else if (const auto* release = std::get_if<MemFreeParams>(&added.params)) {
    error = impl_->may_free(*graph, release->address) ? kSuccess : kInvalidValue;
  } else if (auto* child = std::get_if<ChildGraphParams>(&added.params)) {
    const StoredGraph* original = find(child->graph);
    if (original == nullptr) return kInvalidValue;
    if (impl_->is_unique(*original)) return kNotSupported;
    child->graph = impl_->copy(*original, added.handle).handle;
  } else if (std::holds_alternative<ConditionalParams>(added.params)) {
    error = impl_->add_conditional(*graph, &added);
  }
  if (error != kSuccess) return error;
  if (!std::holds_alternative<ChildGraphParams>(params)) params = added.params;

  *node = added.handle;
  added.pointers = bake_pointers(impl_->memory, impl_->host_block, added.params);
  added.reservation = impl_->reserve(added.params);
  impl_->home[added.handle] = g;
  for (size_t i = 0; i < dependencies.size(); ++i)
    graph->edges.push_back(
        {dependencies[i], added.handle, edge_data.empty() ? EdgeData{} : edge_data[i]});
  graph->nodes.push_back(std::move(added));
  return kSuccess;
}

DeviceError GraphStore::destroy_node(NodeHandle node) {
  StoredGraph* graph = nullptr;
  const Node* found = impl_->find(node, &graph);
  if (found == nullptr) return kInvalidValue;
  if (has_memory_nodes(*graph)) return kNotSupported;
  if (const auto* params = std::get_if<ConditionalParams>(&found->params))
    for (ConditionalInfo& c : impl_->outermost(*graph).conditionals)
      if (c.handle == params->handle) c.used = false;
  impl_->drop_inside(found->params);
  std::erase_if(graph->edges, [&](const GraphEdge& e) { return e.from == node || e.to == node; });
  graph->nodes.erase(graph->nodes.begin() + ordinal_of(*graph, node));
  impl_->home.erase(node);
  return kSuccess;
}

DeviceError GraphStore::get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes) {
  const StoredGraph* graph = find(g);
  if (graph == nullptr || nodes == nullptr) return kInvalidValue;
  nodes->clear();
  for (const Node& n : graph->nodes) nodes->push_back(n.handle);
  return kSuccess;
}

DeviceError GraphStore::get_params(NodeHandle node, NodeParams* params) {
  const Node* found = impl_->find(node);
  if (found == nullptr || params == nullptr) return kInvalidValue;
  *params = found->params;
  return kSuccess;
}

DeviceError GraphStore::set_params(NodeHandle node, const NodeParams& params) {
  Node* found = impl_->find(node);
  if (found == nullptr || found->params.index() != params.index() || !is_settable(params))
    return kInvalidValue;
  const DeviceError error = impl_->check(params);
  if (error != kSuccess) return error;
  found->params = params;
  found->pointers = bake_pointers(impl_->memory, impl_->host_block, params);
  return kSuccess;
}

DeviceError GraphStore::get_priority(NodeHandle node, int32_t* priority) {
  const Node* found = impl_->find(node);
  if (found == nullptr || priority == nullptr ||
      !std::holds_alternative<KernelLaunch>(found->params))
    return kInvalidValue;
  *priority = found->priority;
  return kSuccess;
}

}  // namespace shadowgraph
