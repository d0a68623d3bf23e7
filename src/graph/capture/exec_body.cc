// What a launch runs, built from a graph: nodes, one order, and who is before whom.
#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

namespace {

/// Bit [a * n + b]: b can be reached from a.
std::vector<uint64_t> reach_of(const Links& links, const std::vector<int32_t>& order) {
  const size_t n = order.size(), words = (n + 63) / 64;
  std::vector<uint64_t> rows(n * words), reach((n * n + 63) / 64);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    uint64_t* row = &rows[static_cast<size_t>(*it) * words];
    for (int32_t next : links.after[static_cast<size_t>(*it)]) {
      const auto b = static_cast<size_t>(next);
      row[b / 64] |= uint64_t{1} << (b % 64);
      for (size_t w = 0; w < words; ++w) row[w] |= rows[b * words + w];
    }
  }
  for (size_t i = 0; i < n * words; ++i) {
    for (uint64_t left = rows[i]; left != 0; left &= left - 1) {
      const auto b = i % words * 64 + static_cast<size_t>(std::countr_zero(left));
      const size_t bit = i / words * n + b;
      reach[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }
  return reach;
}

}  // namespace

std::vector<GraphHandle> graphs_inside(const NodeParams& params) {
  if (const auto* child = std::get_if<ChildGraphParams>(&params)) return {child->graph};
  if (const auto* conditional = std::get_if<ConditionalParams>(&params)) return conditional->bodies;
  return {};
}

std::vector<int32_t> topological_order(const Links& links) {
  std::vector<size_t> missing;
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (size_t i = 0; i < links.before.size(); ++i) {
    missing.push_back(links.before[i].size());
    if (missing[i] == 0) ready.push(static_cast<int32_t>(i));
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (int32_t next : links.after[static_cast<size_t>(node)])
      if (--missing[static_cast<size_t>(next)] == 0) ready.push(next);
  }
  return order;
}

NodeHandle find_cycle(GraphStore& store, const StoredGraph& g) {
  Links links = links_of(g);
  std::vector<bool> acyclic(g.nodes.size());
  // What is left over by both directions is on a cycle or between two.
  for (int direction = 0; direction < 2; ++direction) {
    for (int32_t node : topological_order(links)) acyclic[static_cast<size_t>(node)] = true;
    std::swap(links.before, links.after);
  }
  const auto last = std::find(acyclic.rbegin(), acyclic.rend(), false);
  if (last != acyclic.rend()) return g.nodes[static_cast<size_t>(acyclic.rend() - last) - 1].handle;
  for (const Node& node : g.nodes)
    for (GraphHandle inside : graphs_inside(node.params))
      if (const NodeHandle found = find_cycle(store, *store.find(inside))) return found;
  return {};
}

std::shared_ptr<const ExecBody> build_body(GraphStore& store, const StoredGraph& g) {
  const auto body = std::make_shared<ExecBody>();
  Links links = links_of(g);
  body->order = topological_order(links);
  body->reach = reach_of(links, body->order);
  body->conditionals = g.conditionals;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    ExecNode& e = body->nodes.emplace_back();
    e.params = node.params;
    e.pointers = node.pointers;
    e.reservation = node.reservation;
    e.source = node.handle;
    e.label = label_of(node.params);
    e.before = std::move(links.before[i]);
    e.after = std::move(links.after[i]);
    for (GraphHandle inside : graphs_inside(node.params))
      e.bodies.push_back(build_body(store, *store.find(inside)));
  }
  return body;
}

std::shared_ptr<const ExecBody> single_node_body(NodeParams params,
                                                 std::vector<BakedPointer> pointers) {
  const auto body = std::make_shared<ExecBody>();
  ExecNode& node = body->nodes.emplace_back();
  node.label = label_of(params);
  node.params = std::move(params);
  node.pointers = std::move(pointers);
  body->order = {0};
  body->reach = {0};
  return body;
}

std::vector<void*> unfreed_allocations(const ExecBody& body) {
  std::vector<void*> unfreed;
  for (const ExecNode& node : body.nodes)
    if (const auto* allocation = std::get_if<MemAllocParams>(&node.params))
      unfreed.push_back(allocation->address);
  for (const ExecNode& node : body.nodes) {
    if (const auto* release = std::get_if<MemFreeParams>(&node.params)) {
      const auto found = std::find(unfreed.begin(), unfreed.end(), release->address);
      if (found != unfreed.end()) unfreed.erase(found);
    }
  }
  return unfreed;
}

}  // namespace shadowgraph
