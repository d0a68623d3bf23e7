// Graphs as a whole: made, destroyed, cloned.
#include "graph/capture/graph_store.h"

#include <algorithm>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

using enum DeviceError;

int32_t ordinal_of(const StoredGraph& g, NodeHandle node) {
  // Handles ascend in order of insertion.
  const auto found = std::lower_bound(g.nodes.begin(), g.nodes.end(), node,
                                      [](const Node& n, NodeHandle h) { return n.handle < h; });
  if (found == g.nodes.end() || found->handle != node) return -1;
  return static_cast<int32_t>(found - g.nodes.begin());
}

bool has_memory_nodes(const StoredGraph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return std::holds_alternative<MemAllocParams>(n.params) ||
           std::holds_alternative<MemFreeParams>(n.params);
  });
}

/// Holds, at any depth, nodes that there can be only one of.
bool GraphStore::Impl::is_unique(const StoredGraph& g) {
  if (has_memory_nodes(g)) return true;
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    if (std::holds_alternative<ConditionalParams>(n.params)) return true;
    const auto* child = std::get_if<ChildGraphParams>(&n.params);
    return child != nullptr && is_unique(*find(child->graph));
  });
}

bool GraphStore::Impl::is_body(const StoredGraph& g) {
  return std::holds_alternative<ConditionalParams>(find(g.owner)->params);
}

StoredGraph& GraphStore::Impl::make_graph(NodeHandle owner) {
  const auto handle = make_handle<GraphHandle>();
  StoredGraph& g = graphs[handle];
  g.handle = handle;
  g.owner = owner;
  return g;
}

StoredGraph* GraphStore::Impl::find(GraphHandle g) {
  const auto found = graphs.find(g);
  return found == graphs.end() ? nullptr : &found->second;
}

Node* GraphStore::Impl::find(NodeHandle node, StoredGraph** graph) {
  const auto found = home.find(node);
  if (found == home.end()) return nullptr;
  StoredGraph* g = find(found->second);
  if (graph != nullptr) *graph = g;
  return &g->nodes[static_cast<size_t>(ordinal_of(*g, node))];
}

StoredGraph& GraphStore::Impl::copy(const StoredGraph& from, NodeHandle owner) {
  StoredGraph& to = make_graph(owner);
  for (const Node& original : from.nodes) {
    Node node = original;
    node.handle = make_handle<NodeHandle>();
    if (auto* child = std::get_if<ChildGraphParams>(&node.params))
      child->graph = copy(*find(child->graph), node.handle).handle;
    to.clone_of[original.handle] = node.handle;
    home[node.handle] = to.handle;
    to.nodes.push_back(std::move(node));
  }
  // As an H200 does it: node by node, the edges that lead there.
  to.edges = from.edges;
  std::stable_sort(to.edges.begin(), to.edges.end(),
                   [](const GraphEdge& a, const GraphEdge& b) { return a.to < b.to; });
  for (GraphEdge& e : to.edges) e = {to.clone_of[e.from], to.clone_of[e.to], e.data};
  return to;
}

void GraphStore::Impl::drop_inside(const NodeParams& params) {
  for (GraphHandle inside : graphs_inside(params)) drop(inside);
}

void GraphStore::Impl::drop(GraphHandle g) {
  for (const Node& node : find(g)->nodes) {
    drop_inside(node.params);
    home.erase(node.handle);
  }
  graphs.erase(g);
}

StoredGraph& GraphStore::Impl::outermost(StoredGraph& g) {
  return g.owner ? outermost(*find(home.at(g.owner))) : g;
}

GraphStore::GraphStore(DeviceMemory& memory, Freedom freedom, HostBlockOf host_block)
    : impl_(std::make_shared<Impl>(memory, std::move(freedom), std::move(host_block))) {}

StoredGraph* GraphStore::find(GraphHandle g) { return impl_->find(g); }

Exec* GraphStore::find_exec(ExecHandle exec) {
  const auto found = impl_->execs.find(exec);
  return found == impl_->execs.end() ? nullptr : &found->second;
}

StoredGraph* GraphStore::graph_of(NodeHandle node) {
  const auto found = impl_->home.find(node);
  return found == impl_->home.end() ? nullptr : find(found->second);
}

DeviceError GraphStore::create(GraphHandle* g) {
  if (g == nullptr) return kInvalidValue;
  *g = impl_->make_graph({}).handle;
  return kSuccess;
}

DeviceError GraphStore::destroy(GraphHandle g) {
  const StoredGraph* graph = find(g);
  if (graph == nullptr || graph->owner) return kInvalidValue;
  impl_->drop(g);
  return kSuccess;
}

DeviceError GraphStore::clone(GraphHandle g, GraphHandle* clone) {
  const StoredGraph* graph = find(g);
  if (graph == nullptr || clone == nullptr) return kInvalidValue;
  if (impl_->is_unique(*graph)) return kNotSupported;
  *clone = impl_->copy(*graph, {}).handle;
  return kSuccess;
}

DeviceError GraphStore::find_in_clone(NodeHandle original, GraphHandle clone, NodeHandle* node) {
  const StoredGraph* graph = find(clone);
  if (graph == nullptr || node == nullptr) return kInvalidValue;
  const auto found = graph->clone_of.find(original);
  if (found == graph->clone_of.end() || ordinal_of(*graph, found->second) < 0) return kInvalidValue;
  *node = found->second;
  return kSuccess;
}

DeviceError GraphStore::create_conditional(GraphHandle g, uint32_t default_value, uint32_t flags,
                                           ConditionalHandle* h) {
  StoredGraph* graph = find(g);
  if (graph == nullptr || h == nullptr || flags > kCondAssignDefault) return kInvalidValue;
  *h = impl_->make_handle<ConditionalHandle>();
  impl_->outermost(*graph).conditionals.push_back(
      {*h, default_value, flags == kCondAssignDefault, false});
  return kSuccess;
}

}  // namespace shadowgraph
