// Memory nodes: which address an allocation gets, and what a free may name.
#include <algorithm>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

struct Uses {
  size_t bytes = 0;
  int32_t allocations = 0;
  std::vector<NodeHandle> frees;
};

std::map<void*, Uses> uses_of(const StoredGraph& g) {
  std::map<void*, Uses> uses;
  for (const Node& node : g.nodes) {
    if (const auto* allocation = std::get_if<MemAllocParams>(&node.params)) {
      uses[allocation->address].bytes = allocation->bytes;
      ++uses[allocation->address].allocations;
    } else if (const auto* release = std::get_if<MemFreeParams>(&node.params)) {
      uses[release->address].frees.push_back(node.handle);
    }
  }
  return uses;
}

bool has_unfreed(const Uses& u) { return u.frees.size() < static_cast<size_t>(u.allocations); }

/// All nodes from which the set can be reached by edges, the set included.
std::vector<bool> ancestors(const StoredGraph& g, std::span<const NodeHandle> set) {
  const Links links = links_of(g);
  std::vector<bool> seen(g.nodes.size());
  std::vector<int32_t> todo;
  for (NodeHandle node : set) todo.push_back(ordinal_of(g, node));
  while (!todo.empty()) {
    const auto at = static_cast<size_t>(todo.back());
    todo.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    todo.insert(todo.end(), links.before[at].begin(), links.before[at].end());
  }
  return seen;
}

}  // namespace

DeviceError GraphStore::Impl::allocate(const StoredGraph& g,
                                       std::span<const NodeHandle> dependencies,
                                       MemAllocParams* params) {
  if (params->bytes == 0) return kInvalidValue;
  // An address of this graph may be used again where its last free is before the new node.
  const std::vector<bool> before = ancestors(g, dependencies);
  const auto is_before = [&](NodeHandle n) {
    return before[static_cast<size_t>(ordinal_of(g, n))];
  };
  void* again = nullptr;
  for (const auto& [address, u] : uses_of(g)) {
    if (u.bytes == params->bytes && !has_unfreed(u) &&
        std::all_of(u.frees.begin(), u.frees.end(), is_before))
      again = address;
  }
  const bool reuse = again != nullptr && freedom(2) == 0;
  params->address = reuse ? again : memory.allocate(params->bytes, AllocKind::kGraph);
  if (params->address == nullptr) return kMemoryAllocation;
  std::erase_if(allocations, [&](const auto& a) { return !is_graph_allocation(a.first); });
  allocations[params->address] = g.handle;
  return kSuccess;
}

bool GraphStore::Impl::is_graph_allocation(const void* address) const {
  const DeviceMemory::Allocation* a = memory.find_allocation(address);
  return a != nullptr && a->kind == AllocKind::kGraph;
}

std::shared_ptr<const void> GraphStore::Impl::reserve(const NodeParams& params) {
  if (const auto* made = std::get_if<MemAllocParams>(&params)) return memory.reserve(made->address);
  const auto* ended = std::get_if<MemFreeParams>(&params);
  return ended != nullptr ? memory.reserve(ended->address) : nullptr;
}

bool GraphStore::Impl::may_free(const StoredGraph& g, void* address) {
  const auto made = allocations.find(address);
  if (made == allocations.end() || !is_graph_allocation(address)) return false;
  std::map<void*, Uses> uses = uses_of(g);
  if (made->second == g.handle) return has_unfreed(uses[address]);
  // Another graph's allocation, which that leaves to others.
  const StoredGraph* maker = find(made->second);
  return uses[address].frees.empty() && (maker == nullptr || has_unfreed(uses_of(*maker)[address]));
}

}  // namespace shadowgraph
