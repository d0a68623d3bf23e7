// Edges: added, removed, listed, followed.
#include <algorithm>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

auto find_edge(std::vector<GraphEdge>& edges, const GraphEdge& e) {
  return std::find_if(edges.begin(), edges.end(),
                      [&](const GraphEdge& f) { return f.from == e.from && f.to == e.to; });
}

}  // namespace

Links links_of(const StoredGraph& g) {
  Links links;
  links.before.resize(g.nodes.size());
  links.after.resize(g.nodes.size());
  for (const GraphEdge& e : g.edges) {
    const int32_t from = ordinal_of(g, e.from), to = ordinal_of(g, e.to);
    links.before[static_cast<size_t>(to)].push_back(from);
    links.after[static_cast<size_t>(from)].push_back(to);
  }
  return links;
}

DeviceError GraphStore::add_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  StoredGraph* graph = find(g);
  if (graph == nullptr) return kInvalidValue;
  std::vector<GraphEdge> all = graph->edges;
  for (const GraphEdge& e : edges) {
    if (e.from == e.to || graph_of(e.from) != graph || graph_of(e.to) != graph ||
        find_edge(all, e) != all.end())
      return kInvalidValue;
    all.push_back(e);
  }
  graph->edges = std::move(all);
  return kSuccess;
}

DeviceError GraphStore::remove_dependencies(GraphHandle g, std::span<const GraphEdge> edges) {
  StoredGraph* graph = find(g);
  if (graph == nullptr) return kInvalidValue;
  if (!edges.empty() && has_memory_nodes(*graph)) return kNotSupported;
  std::vector<GraphEdge> left = graph->edges;
  for (const GraphEdge& e : edges) {
    const auto found = find_edge(left, e);
    if (found == left.end() || found->data != e.data) return kInvalidValue;
    left.erase(found);
  }
  graph->edges = std::move(left);
  return kSuccess;
}

DeviceError GraphStore::get_edges(GraphHandle g, std::vector<GraphEdge>* edges) {
  const StoredGraph* graph = find(g);
  if (graph == nullptr || edges == nullptr) return kInvalidValue;
  // As an H200 lists them: node by node, the edges that lead away from it.
  *edges = graph->edges;
  std::stable_sort(edges->begin(), edges->end(),
                   [](const GraphEdge& a, const GraphEdge& b) { return a.from < b.from; });
  return kSuccess;
}

bool GraphStore::reaches(NodeHandle a, std::span<const NodeHandle> set) {
  const StoredGraph* graph = graph_of(a);
  if (graph == nullptr) return false;
  if (std::find(set.begin(), set.end(), a) != set.end()) return true;
  const Links links = links_of(*graph);
  std::vector<bool> seen(graph->nodes.size());
  std::vector<int32_t> todo = {ordinal_of(*graph, a)};
  while (!todo.empty()) {
    const auto at = static_cast<size_t>(todo.back());
    todo.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    if (std::find(set.begin(), set.end(), graph->nodes[at].handle) != set.end()) return true;
    todo.insert(todo.end(), links.after[at].begin(), links.after[at].end());
  }
  return false;
}

}  // namespace shadowgraph
