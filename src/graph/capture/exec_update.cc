// Updating an executable graph from a graph. Nodes are paired as CUDA documents and an H200 shows
// it: sinks in order, then, edge by edge, what they depend on.
#include <algorithm>
#include <utility>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

namespace {

std::vector<int32_t> sinks_newest_first(size_t nodes, const auto& after) {
  std::vector<int32_t> sinks;
  for (size_t i = nodes; i-- > 0;)
    if (after(i).empty()) sinks.push_back(static_cast<int32_t>(i));
  return sinks;
}

const Kernel* kernel_of(const NodeParams& params) {
  const auto* launch = std::get_if<KernelLaunch>(&params);
  return launch == nullptr ? nullptr : launch->kernel;
}

class Update {
 public:
  Update(GraphStore& store, const Freedom& freedom, const ExecBody& body, const StoredGraph& g,
         UpdateInfo* info)
      : store_(store), freedom_(freedom), old_(body), g_(g), links_(links_of(g)), info_(*info) {}

  std::shared_ptr<const ExecBody> run() {
    if (old_.nodes.size() != g_.nodes.size()) {
      fail(freedom_(2) == 0 ? UpdateResult::kTopologyChanged : UpdateResult::kNotSupported);
      return nullptr;
    }
    partner_.assign(g_.nodes.size(), -1);
    paired_.assign(g_.nodes.size(), false);
    body_ = std::make_shared<ExecBody>(old_);
    body_->conditionals = g_.conditionals;
    body_->misplaced = -1;
    return pair_all() && accepts_order() ? body_ : nullptr;
  }

 private:
  bool pair_all() {
    const size_t n = g_.nodes.size();
    const auto old_after = [&](size_t i) -> auto& { return old_.nodes[i].after; };
    const auto new_after = [&](size_t i) -> auto& { return links_.after[i]; };
    if (!pair_lists(sinks_newest_first(n, old_after), sinks_newest_first(n, new_after)))
      return false;
    for (size_t i = 0; i < queue_.size(); ++i) {
      const auto [a, b] = queue_[i];
      if (!pair_lists(old_.nodes[a].before, links_.before[b])) return false;
    }
    return true;  // the exec has no cycle: all its nodes lead to sinks
  }

  bool pair_lists(const std::vector<int32_t>& old, const std::vector<int32_t>& now) {
    for (size_t i = 0; i < std::min(old.size(), now.size()); ++i)
      if (!pair(static_cast<size_t>(old[i]), static_cast<size_t>(now[i]))) return false;
    if (now.size() > old.size())
      return fail(UpdateResult::kTopologyChanged, handle(static_cast<size_t>(now[old.size()])));
    return now.size() == old.size() || fail(UpdateResult::kTopologyChanged);
  }

  bool pair(size_t a, size_t b) {
    if (partner_[a] == static_cast<int32_t>(b)) return true;
    if (partner_[a] >= 0 || paired_[b]) return fail(UpdateResult::kTopologyChanged, handle(b));
    partner_[a] = static_cast<int32_t>(b);
    paired_[b] = true;
    queue_.emplace_back(a, b);
    return take(body_->nodes[a], g_.nodes[b]);
  }

  /// The node takes over the graph's parameters.
  bool take(ExecNode& node, const Node& from) {
    if (node.params.index() != from.params.index())
      return fail(UpdateResult::kNodeTypeChanged, from.handle);
    if (!may_become(node.params, from.params))
      return fail(UpdateResult::kParametersChanged, from.handle);
    if (const auto* now = std::get_if<ConditionalParams>(&from.params)) {
      const auto& old = std::get<ConditionalParams>(node.params);
      if (old.type != now->type || old.size != now->size)
        return fail(UpdateResult::kNotSupported, from.handle);
    }
    const std::vector<GraphHandle> inside = graphs_inside(from.params);
    for (size_t i = 0; i < inside.size(); ++i) {
      auto body = update_body(store_, freedom_, *node.bodies[i], *store_.find(inside[i]), &info_);
      if (body == nullptr) return false;
      if (body->misplaced >= 0) body_->misplaced = ordinal_of(node);
      node.bodies[i] = std::move(body);
    }
    node.params = from.params;
    node.pointers = from.pointers;
    node.reservation = from.reservation;
    node.label = label_of(from.params);
    return true;
  }

  /// The same nodes in the same order, but edges in another: CUDA promises to pair such nodes only
  /// if the edges were added in one order.
  bool accepts_order() {
    bool identity = true, same = true;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const auto node = static_cast<int32_t>(i);
      if (identity && partner_[i] != node) identity = false, body_->misplaced = node;
      std::vector<int32_t> old = old_.nodes[i].before, now = links_.before[i];
      std::sort(old.begin(), old.end());
      std::sort(now.begin(), now.end());
      same = same && old == now && old_.nodes[i].params.index() == g_.nodes[i].params.index() &&
             kernel_of(old_.nodes[i].params) == kernel_of(g_.nodes[i].params);
    }
    if (identity || !same || freedom_(2) == 0) return true;
    return fail(UpdateResult::kTopologyChanged);
  }

  int32_t ordinal_of(const ExecNode& node) const {
    return static_cast<int32_t>(&node - body_->nodes.data());
  }
  NodeHandle handle(size_t b) const { return g_.nodes[b].handle; }
  bool fail(UpdateResult result, NodeHandle node = {}) {
    info_ = {result, node, {}};
    return false;
  }

  GraphStore& store_;
  const Freedom& freedom_;
  const ExecBody& old_;
  const StoredGraph& g_;
  const Links links_;
  UpdateInfo& info_;
  std::shared_ptr<ExecBody> body_;
  std::vector<int32_t> partner_;  // by ordinal in the exec, the ordinal in the graph; -1: none yet
  std::vector<bool> paired_;      // by ordinal in the graph
  std::vector<std::pair<size_t, size_t>> queue_;
};

}  // namespace

bool may_become(const NodeParams& old, const NodeParams& params) {
  if (const auto* copy = std::get_if<MemcpyParams>(&params)) {
    const auto& before = std::get<MemcpyParams>(old);
    return *copy == before ||
           (copy->kind == before.kind && copy->height == 1 && before.height == 1);
  }
  if (const auto* set = std::get_if<MemsetParams>(&params)) {
    const auto& before = std::get<MemsetParams>(old);
    return (set->height == 1 && before.height == 1) ||
           (set->width == before.width && set->height == before.height &&
            set->pitch == before.pitch && set->element_size == before.element_size);
  }
  return true;
}

std::shared_ptr<const ExecBody> update_body(GraphStore& store, const Freedom& freedom,
                                            const ExecBody& body, const StoredGraph& g,
                                            UpdateInfo* info) {
  return Update(store, freedom, body, g, info).run();
}

}  // namespace shadowgraph
