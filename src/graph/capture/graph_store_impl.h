// The inside of GraphStore: state, and what its files share. graph_store.cc: graphs as a whole;
// graph_store_nodes.cc, _edges.cc, _memory.cc: editing; graph_store_exec.cc: executable graphs;
// exec_body.cc: what a launch runs; exec_update.cc: other parameters for it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/capture/graph_store.h"

namespace shadowgraph {

struct GraphStore::Impl {
  Impl(DeviceMemory& m, Freedom f, HostBlockOf h)
      : memory(m), freedom(std::move(f)), host_block(std::move(h)) {}

  template <class H>
  H make_handle() {
    return H{++last_handle};
  }
  StoredGraph& make_graph(NodeHandle owner);
  StoredGraph* find(GraphHandle g);
  Node* find(NodeHandle node, StoredGraph** home = nullptr);
  /// The graph and everything in it, children renumbered; bodies and allocations have no copies.
  StoredGraph& copy(const StoredGraph& from, NodeHandle owner);
  void drop(GraphHandle g);
  bool is_unique(const StoredGraph& g);
  /// Is a graph inside a node the body of a conditional node?
  bool is_body(const StoredGraph& g);
  void drop_inside(const NodeParams& params);
  /// The graph that is nobody's child or body: it keeps the conditional handles.
  StoredGraph& outermost(StoredGraph& g);

  DeviceError check(const NodeParams& params) const;
  DeviceError allocate(const StoredGraph& g, std::span<const NodeHandle> dependencies,
                       MemAllocParams* params);
  bool may_free(const StoredGraph& g, void* address);
  bool is_graph_allocation(const void* address) const;
  /// Keeps the address that a memory node names; null: no memory node.
  std::shared_ptr<const void> reserve(const NodeParams& params);
  DeviceError add_conditional(StoredGraph& g, Node* node);

  DeviceMemory& memory;
  Freedom freedom;
  HostBlockOf host_block;
  uint64_t last_handle = 99;  // one counter for all kinds: a handle is never used twice
  std::map<GraphHandle, StoredGraph> graphs;
  std::map<ExecHandle, Exec> execs;
  std::map<NodeHandle, GraphHandle> home;
  /// Graph allocations and the graph that made them: contents may outlive it and its execs.
  std::map<void*, GraphHandle> allocations;
};

/// By ordinal, in order of insertion of the edges.
struct Links {
  std::vector<std::vector<int32_t>> before, after;
};
Links links_of(const StoredGraph& g);
/// -1: not in the graph.
int32_t ordinal_of(const StoredGraph& g, NodeHandle node);
bool has_memory_nodes(const StoredGraph& g);
/// A child node's graph, a conditional node's bodies.
std::vector<GraphHandle> graphs_inside(const NodeParams& params);
/// Nodes of this type take other parameters one by one.
bool is_settable(const NodeParams& params);

/// Lowest ordinal first; shorter than the graph if that has a cycle.
std::vector<int32_t> topological_order(const Links& links);
/// The last node of a cycle of the graph or of one inside it; none: there is no cycle.
NodeHandle find_cycle(GraphStore& store, const StoredGraph& g);
std::shared_ptr<const ExecBody> build_body(GraphStore& store, const StoredGraph& g);
std::vector<void*> unfreed_allocations(const ExecBody& body);

/// May a node of an executable graph take these parameters instead? They have the same type.
bool may_become(const NodeParams& old, const NodeParams& params);
/// The body with g's parameters, or nullptr: info says why not.
std::shared_ptr<const ExecBody> update_body(GraphStore& store, const Freedom& freedom,
                                            const ExecBody& body, const StoredGraph& g,
                                            UpdateInfo* info);

}  // namespace shadowgraph
