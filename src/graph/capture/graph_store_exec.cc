// Executable graphs: instantiated, updated, their nodes changed and disabled.
#include <algorithm>

#include "graph/capture/graph_store_impl.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

struct Refusal {
  NodeHandle node;
  InstantiateResult result = InstantiateResult::kSuccess;
};

/// Who starts the graph: the device does what it can do by itself.
enum class Launcher : uint8_t { kHost, kDevice, kConditional };

InstantiateResult judge(const DeviceMemory& memory, const NodeParams& params, Launcher launcher) {
  if (launcher == Launcher::kHost) return InstantiateResult::kSuccess;
  if (const auto* copy = std::get_if<MemcpyParams>(&params)) {
    const bool pageable = !memory.mapped(copy->dst, 1) || !memory.mapped(copy->src, 1);
    return pageable ? InstantiateResult::kMultipleDevicesNotSupported : InstantiateResult::kSuccess;
  }
  bool allowed = std::holds_alternative<KernelLaunch>(params) ||
                 std::holds_alternative<MemsetParams>(params) ||
                 std::holds_alternative<ChildGraphParams>(params);
  if (launcher == Launcher::kConditional)
    allowed = allowed || std::holds_alternative<EmptyParams>(params) ||
              std::holds_alternative<ConditionalParams>(params);
  return allowed ? InstantiateResult::kSuccess : InstantiateResult::kNodeOperationNotSupported;
}

Refusal find_refused_node(GraphStore& store, const DeviceMemory& memory, const StoredGraph& g,
                          Launcher launcher) {
  for (const Node& node : g.nodes) {
    Refusal refused{node.handle, judge(memory, node.params, launcher)};
    const bool conditional = std::holds_alternative<ConditionalParams>(node.params);
    for (GraphHandle inside : graphs_inside(node.params)) {
      if (refused.result != InstantiateResult::kSuccess) break;
      refused = find_refused_node(store, memory, *store.find(inside),
                                  conditional ? Launcher::kConditional : launcher);
    }
    if (refused.result != InstantiateResult::kSuccess) return refused;
  }
  return {};
}

Refusal find_refusal(GraphStore& store, const DeviceMemory& memory, const Freedom& freedom,
                     const StoredGraph& g, uint64_t flags) {
  if (const NodeHandle node = find_cycle(store, g))
    return {node, InstantiateResult::kInvalidStructure};
  const bool device = (flags & kDeviceLaunch) != 0;
  if (device && g.nodes.empty()) return {{}, InstantiateResult::kError};
  const Refusal refused =
      find_refused_node(store, memory, g, device ? Launcher::kDevice : Launcher::kHost);
  const bool unused = std::any_of(g.conditionals.begin(), g.conditionals.end(),
                                  [](const ConditionalInfo& c) { return !c.used; });
  if (refused.result == InstantiateResult::kSuccess && unused && freedom(2) == 0)
    return {{}, InstantiateResult::kConditionalHandleUnused};
  return refused;
}

const ExecNode* find_node(const ExecBody& body, NodeHandle source) {
  for (const ExecNode& node : body.nodes) {
    if (node.source == source) return &node;
    for (const auto& inside : node.bodies)
      if (const ExecNode* found = find_node(*inside, source)) return found;
  }
  return nullptr;
}

/// The node, in a body that nobody else holds: launches keep the one that they have.
ExecNode* find_own_node(std::shared_ptr<const ExecBody>& body, NodeHandle source) {
  if (find_node(*body, source) == nullptr) return nullptr;
  if (body.use_count() > 1) body = std::make_shared<ExecBody>(*body);
  for (ExecNode& node : const_cast<ExecBody&>(*body).nodes) {
    if (node.source == source) return &node;
    for (auto& inside : node.bodies)
      if (ExecNode* found = find_own_node(inside, source)) return found;
  }
  return nullptr;
}

/// Only the driver knows how far it can stretch a one-dimensional memset.
bool is_stretched(const NodeParams& old, const NodeParams& params) {
  const auto* set = std::get_if<MemsetParams>(&params);
  if (set == nullptr || set->height != 1) return false;
  const auto& before = std::get<MemsetParams>(old);
  return set->width > before.width || set->element_size != before.element_size;
}

bool can_be_disabled(const ExecNode* node) {
  return node != nullptr && (std::holds_alternative<KernelLaunch>(node->params) ||
                             std::holds_alternative<MemcpyParams>(node->params) ||
                             std::holds_alternative<MemsetParams>(node->params));
}

}  // namespace

DeviceError GraphStore::instantiate(GraphHandle g, InstantiateParams* params, ExecHandle* exec) {
  if (params == nullptr || exec == nullptr) return kInvalidValue;
  *exec = {};
  params->error_node = {};
  params->result = InstantiateResult::kError;
  StoredGraph* graph = find(g);
  constexpr uint64_t kAll =
      kAutoFreeOnLaunch | kInstantiateUpload | kDeviceLaunch | kUseNodePriority;
  const uint64_t told = params->flags & (kAutoFreeOnLaunch | kDeviceLaunch);
  if (graph == nullptr || (params->flags & ~kAll) != 0 ||
      told == (kAutoFreeOnLaunch | kDeviceLaunch))
    return kInvalidValue;
  if (graph->live_execs > 0 && impl_->is_unique(*graph)) return kNotSupported;
  const Refusal refused = find_refusal(*this, impl_->memory, impl_->freedom, *graph, params->flags);
  params->result = refused.result;
  params->error_node = refused.node;
  if (refused.result != InstantiateResult::kSuccess) return kInvalidValue;

  *exec = impl_->make_handle<ExecHandle>();
  ++graph->live_execs;
  const auto body = build_body(*this, *graph);
  impl_->execs[*exec] = {*exec, g, g, body, told, unfreed_allocations(*body)};
  return kSuccess;
}

DeviceError GraphStore::exec_destroy(ExecHandle exec) {
  const Exec* found = find_exec(exec);
  if (found == nullptr) return kInvalidValue;
  if (StoredGraph* source = find(found->source)) --source->live_execs;
  impl_->execs.erase(exec);
  return kSuccess;
}

DeviceError GraphStore::exec_get_flags(ExecHandle exec, uint64_t* flags) {
  const Exec* found = find_exec(exec);
  if (found == nullptr || flags == nullptr) return kInvalidValue;
  *flags = found->flags;
  return kSuccess;
}

DeviceError GraphStore::exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) {
  if (info == nullptr) return kInvalidValue;
  *info = {UpdateResult::kError, {}, {}};
  Exec* found = find_exec(exec);
  const StoredGraph* graph = find(g);
  if (found == nullptr || graph == nullptr) return kInvalidValue;
  auto body = update_body(*this, impl_->freedom, *found->body, *graph, info);
  if (body == nullptr) return kGraphExecUpdateFailure;
  found->allocations = unfreed_allocations(*body);
  found->body = std::move(body);
  found->parameters_of = g;
  info->result = UpdateResult::kSuccess;
  return kSuccess;
}

DeviceError GraphStore::exec_set_params(ExecHandle exec, NodeHandle node,
                                        const NodeParams& params) {
  Exec* found = find_exec(exec);
  const ExecNode* old = found == nullptr ? nullptr : find_node(*found->body, node);
  if (old == nullptr || old->params.index() != params.index()) return kInvalidValue;
  if (!is_settable(params)) return kInvalidValue;
  const DeviceError error = impl_->check(params);
  if (error != kSuccess) return error;
  if (!may_become(old->params, params)) return kInvalidValue;
  if (is_stretched(old->params, params) && impl_->freedom(2) != 0) return kInvalidValue;
  ExecNode& own = *find_own_node(found->body, node);
  own.params = params;
  own.pointers = bake_pointers(impl_->memory, impl_->host_block, params);
  own.label = label_of(params);
  return kSuccess;
}

DeviceError GraphStore::set_enabled(ExecHandle exec, NodeHandle node, bool enabled) {
  Exec* found = find_exec(exec);
  if (found == nullptr || !can_be_disabled(find_node(*found->body, node))) return kInvalidValue;
  find_own_node(found->body, node)->enabled = enabled;
  return kSuccess;
}

DeviceError GraphStore::get_enabled(ExecHandle exec, NodeHandle node, bool* enabled) {
  const Exec* found = find_exec(exec);
  const ExecNode* n = found == nullptr ? nullptr : find_node(*found->body, node);
  if (!can_be_disabled(n) || enabled == nullptr) return kInvalidValue;
  *enabled = n->enabled;
  return kSuccess;
}

}  // namespace shadowgraph
