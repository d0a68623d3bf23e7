// Graphs and executable graphs as data: editing, cloning, instantiating, updating, by CUDA's rules.
// Knows nothing of streams, capture, or of when a call is allowed. See docs/graphs.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/memory/memory.h"
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

/// A node of a graph under construction.
struct Node {
  NodeHandle handle;
  NodeParams params;
  int32_t priority = 0;                // of the stream that captured it
  std::vector<BakedPointer> pointers;  // what its device addresses pointed into when they were set
  std::shared_ptr<const void> reservation;  // of a memory node: keeps its address
};

struct ConditionalInfo {
  ConditionalHandle handle;
  uint32_t default_value = 0;
  bool assign_default = false;
  bool used = false;  // some conditional node has it
};

struct StoredGraph {
  GraphHandle handle;
  std::vector<Node> nodes;                    // in order of insertion
  std::vector<GraphEdge> edges;               // in order of insertion
  std::vector<ConditionalInfo> conditionals;  // of all its bodies too: kept by the outermost graph
  NodeHandle owner;  // the child or conditional node that this is the graph of
  int live_execs = 0;
  std::map<NodeHandle, NodeHandle> clone_of;  // original -> here
};

struct ExecBody;

/// A node as a launch runs it.
struct ExecNode {
  NodeParams params;
  std::vector<BakedPointer> pointers;
  std::shared_ptr<const void> reservation;
  NodeHandle source;
  bool enabled = true;
  std::string_view label;              // "kernel fill", "memcpy H2D"; lives for ever
  std::vector<int32_t> before, after;  // direct predecessors and successors, by ordinal
  std::vector<std::shared_ptr<const ExecBody>> bodies;  // child graph: one; conditional: its size
};

/// What a launch runs. Never changed once a launch may hold it: an update makes another.
struct ExecBody {
  std::vector<ExecNode> nodes;                // in order of insertion
  std::vector<int32_t> order;                 // one topological order
  std::vector<ConditionalInfo> conditionals;  // of all its bodies too: the outermost body has them
  /// Is node a before node b by edges?
  bool ordered(int32_t a, int32_t b) const {
    const size_t bit = static_cast<size_t>(a) * nodes.size() + static_cast<size_t>(b);
    return (reach[bit / 64] >> (bit % 64) & 1) != 0;
  }
  std::vector<uint64_t> reach;
  /// The first node that the update which made this paired with one of another ordinal, or whose
  /// own body has such a node; -1: none.
  int32_t misplaced = -1;
};

struct Exec {
  ExecHandle handle;
  GraphHandle source;         // instantiated from
  GraphHandle parameters_of;  // whose parameters it holds: source, or the last successful update's
  std::shared_ptr<const ExecBody> body;
  uint64_t flags = 0;              // as cudaGraphExecGetFlags tells them
  std::vector<void*> allocations;  // that its launches make and do not free
};

/// One operation outside a graph is a body of one node.
std::shared_ptr<const ExecBody> single_node_body(NodeParams params,
                                                 std::vector<BakedPointer> pointers);
/// The number of the block of host memory that holds p (Annotations::host_block), or 0.
using HostBlockOf = std::function<uint64_t(const void* p)>;
/// The addresses among the parameters, baked now: a host address with its block's number as offset.
std::vector<BakedPointer> bake_pointers(const DeviceMemory& memory, const HostBlockOf& host_block,
                                        const NodeParams& params);
/// "kernel fill", "memcpy H2D"; lives for ever.
std::string_view label_of(const NodeParams& params);

/// Answers where CUDA leaves them open: 0 <= r < bound, 0 is the H200's.
using Freedom = std::function<uint32_t(uint32_t bound)>;

class GraphStore {
 public:
  GraphStore(DeviceMemory& memory, Freedom freedom, HostBlockOf host_block = {});

  StoredGraph* find(GraphHandle g);
  Exec* find_exec(ExecHandle exec);
  /// The graph that holds the node, or nullptr.
  StoredGraph* graph_of(NodeHandle node);

  // The calls of the same names in DeviceApi.
  DeviceError create(GraphHandle* g);
  DeviceError destroy(GraphHandle g);
  DeviceError clone(GraphHandle g, GraphHandle* clone);
  DeviceError find_in_clone(NodeHandle original, GraphHandle clone, NodeHandle* node);
  /// edge_data: empty, or one per dependency.
  DeviceError add_node(GraphHandle g, std::span<const NodeHandle> dependencies,
                       std::span<const EdgeData> edge_data, NodeParams& params, int32_t priority,
                       NodeHandle* node);
  DeviceError destroy_node(NodeHandle node);
  DeviceError add_dependencies(GraphHandle g, std::span<const GraphEdge> edges);
  DeviceError remove_dependencies(GraphHandle g, std::span<const GraphEdge> edges);
  DeviceError get_nodes(GraphHandle g, std::vector<NodeHandle>* nodes);
  DeviceError get_edges(GraphHandle g, std::vector<GraphEdge>* edges);
  DeviceError get_params(NodeHandle node, NodeParams* params);
  DeviceError set_params(NodeHandle node, const NodeParams& params);
  DeviceError get_priority(NodeHandle node, int32_t* priority);
  DeviceError create_conditional(GraphHandle g, uint32_t default_value, uint32_t flags,
                                 ConditionalHandle* h);
  DeviceError instantiate(GraphHandle g, InstantiateParams* params, ExecHandle* exec);
  DeviceError exec_destroy(ExecHandle exec);
  DeviceError exec_get_flags(ExecHandle exec, uint64_t* flags);
  DeviceError exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info);
  DeviceError exec_set_params(ExecHandle exec, NodeHandle node, const NodeParams& params);
  DeviceError set_enabled(ExecHandle exec, NodeHandle node, bool enabled);
  DeviceError get_enabled(ExecHandle exec, NodeHandle node, bool* enabled);

  /// Is node a before (or equal to) some node of the set, by edges of their graph?
  bool reaches(NodeHandle a, std::span<const NodeHandle> set);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shadowgraph
