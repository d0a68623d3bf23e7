// Executor: what running one node does.
#include <algorithm>

#include "graph/executor/executor_impl.h"
#include "graph/memory/asan_guard.h"
#include "graph/memory/byte_range.h"
#include "graph/memory/footprint_trial.h"

namespace shadowgraph {

namespace {

constexpr int32_t kMaxIterations = 1 << 20;  // of a WHILE node; more never ends

void set_conditional(LaunchFrame& frame, uint64_t handle, uint32_t value) {
  static_cast<Conditionals*>(frame.context)->set({handle}, value);
}

}  // namespace

Origin Executor::Impl::origin_of(const Step& step) {
  Origin by = step.op->by;
  by.what = node_of(step).label;
  if (by.phase == Phase::kReplay) by.node = step.node;
  return by;
}

AccessRun Executor::Impl::access_run(const Step& step, bool transfer) const {
  return {step.op->order, step.graph->id(step.node), origin_of(step), node_of(step).source,
          transfer};
}

void Executor::Impl::use_owners(const Owners& next) {
  if (next == owners_in_use) return;
  owners_in_use = next;
  memory.set_row_owners(next == nullptr ? std::span<const OwnerId>() : *next);
}

/// Runs nodes that need no judgement in the body's order; returns how many got done. Unchecked and
/// with nothing else to run, this is all there is to a launch.
size_t Executor::Impl::run_plain(const ExecBody& body, std::optional<Suspended>* suspended) {
  for (size_t i = 0; i < body.order.size(); ++i) {
    const ExecNode& node = body.nodes[static_cast<size_t>(body.order[i])];
    if (!node.enabled) continue;
    if (const auto* launch = std::get_if<KernelLaunch>(&node.params)) {
      LaunchFrame frame{.launch = *launch};
      if (launch->kernel->body(frame) == Progress::kDone) continue;
      suspended->emplace(Suspended{1, frame.state, {}});
      return i;
    }
    if (const auto* copy = std::get_if<MemcpyParams>(&node.params)) {
      if (!is_mapped(memory, *copy)) return i;
      perform(*copy);
    } else if (const auto* set = std::get_if<MemsetParams>(&node.params)) {
      if (!is_mapped(memory, *set)) return i;
      perform(*set);
    } else if (!std::holds_alternative<EmptyParams>(node.params)) {
      return i;
    }
  }
  return body.order.size();
}

/// The newest operation goes on where run_plain stopped.
void Executor::Impl::resume_after(size_t done, std::optional<Suspended> suspended) {
  Operation& op = operations.back();
  start(op, lanes[op.order.position.lane]);
  const std::vector<int32_t>& order = op.run->body->order;
  for (size_t i = 0; i < done; ++i) op.graph->complete(order[i]);
  if (suspended)
    op.graph->state(order[done]).suspended = std::make_unique<Suspended>(std::move(*suspended));
}

bool Executor::Impl::run(const Step& step) {
  switch (run_node(step)) {
    case Outcome::kWaiting: step.graph->state(step.node).asleep = true; return false;
    case Outcome::kFault:
      sticky = DeviceError::kIllegalAddress;
      drop_all();
      return true;
    case Outcome::kNested: return true;
    case Outcome::kDone: break;
  }
  complete(*step.op, step.graph, step.node);
  return true;
}

Executor::Impl::Outcome Executor::Impl::run_node(const Step& step) {
  const ExecNode& node = node_of(step);
  if (!node.enabled) return Outcome::kDone;
  if (const auto* launch = std::get_if<KernelLaunch>(&node.params))
    return run_kernel(step, *launch);
  if (const auto* copy = std::get_if<MemcpyParams>(&node.params)) return run_copy(step, *copy);
  if (const auto* set = std::get_if<MemsetParams>(&node.params)) return run_set(step, *set);
  if (const auto* call = std::get_if<HostParams>(&node.params)) return run_host(*call);
  if (const auto* made = std::get_if<MemAllocParams>(&node.params))
    return run_allocation(step, made->address, false);
  if (const auto* ended = std::get_if<MemFreeParams>(&node.params))
    return run_allocation(step, ended->address, true);
  if (std::holds_alternative<EventRecordParams>(node.params)) return Outcome::kDone;
  if (std::holds_alternative<EventWaitParams>(node.params)) {
    for (const auto& [waiting, marker] : step.op->event_waits)
      if (waiting == &node && memory.checked())
        step.op->order.joins.push_back({step.graph->id(step.node), clock_after(marker)});
    return Outcome::kDone;
  }
  const bool entered = enter(*step.op, *step.graph, step.node, 0);
  return entered ? Outcome::kNested : Outcome::kDone;
}

/// Judges an access before it happens. False: it must not happen.
bool Executor::Impl::judge(const Step& step, const Footprint& accessed, bool transfer) {
  use_owners(step.op->owners);
  const Origin by = origin_of(step);
  Status found;
  const bool possible = memory.judge(by, node_of(step).pointers, accessed, &found);
  // Whether it is before, in or after the allocation's life is chance: the missing order says it.
  if (!possible || !lacks_order_with_memory_node(step, accessed)) findings->add(std::move(found));
  if (!possible) {
    memory.poison(accessed);
    return false;
  }
  if (memory.checked()) races.access(access_run(step, transfer), accessed);
  return true;
}

/// Does the graph allocate or free what is accessed without an order to this node?
bool Executor::Impl::lacks_order_with_memory_node(const Step& step, const Footprint& accessed) {
  if (!step.op->has_memory_nodes) return false;
  const ExecBody& body = step.graph->body();
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const auto* made = std::get_if<MemAllocParams>(&body.nodes[i].params);
    const auto* ended = std::get_if<MemFreeParams>(&body.nodes[i].params);
    if (made == nullptr && ended == nullptr) continue;
    const auto other = static_cast<int32_t>(i);
    if (body.ordered(other, step.node) || body.ordered(step.node, other)) continue;
    const void* p = made != nullptr ? made->address : ended->address;
    const DeviceMemory::Allocation* a = memory.find_allocation(p);
    if (a == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(p);
    for (const AccessSpan& span : accessed)
      if (byte_range(span).overlaps({begin, begin + a->bytes})) return true;
  }
  return false;
}

Executor::Impl::Outcome Executor::Impl::run_kernel(const Step& step, const KernelLaunch& launch) {
  RunningGraph::NodeState& state = step.graph->state(step.node);
  Suspended* suspended = state.suspended.get();
  LaunchFrame frame{.launch = launch, .stalled = stalled, .context = &step.op->conditionals};
  if (step.op->by.phase == Phase::kReplay) frame.set_conditional = set_conditional;
  if (suspended != nullptr) {
    frame.calls = suspended->calls;
    frame.state = suspended->state;
  } else {
    spans.clear();
    if (memory.checked() && launch.kernel->footprint != nullptr) {
      launch.kernel->footprint(frame, &spans);
      if (!judge(step, spans, false)) return Outcome::kFault;
      if (hooks.watch) hooks.watch(launch, spans);
    }
  }
  const Footprint& accessed = suspended != nullptr ? suspended->spans : spans;
  const bool rewrites = staged.are_written_by(accessed);
  if (rewrites) staged.note_changes();
  // A launch that is wrong already is no question of its footprint.
  std::optional<FootprintTrial> trial;
  if (hooks.proves_footprints && suspended == nullptr && memory.checked() && !rewrites &&
      launch.kernel->footprint != nullptr && findings->ok())
    trial.emplace(memory, node_of(step).pointers, accessed);
  const Progress progress = run_body(memory, node_of(step).pointers, accessed, frame);
  if (rewrites) staged.accept_changes();
  if (trial && progress == Progress::kDone) {
    findings->add(trial->judge(origin_of(step), [&] {
      LaunchFrame again{.launch = launch, .stalled = stalled};
      return run_body(memory, node_of(step).pointers, accessed, again) == Progress::kDone;
    }));
  }
  if (progress == Progress::kDone) {
    if (memory.checked()) memory.commit(origin_of(step), accessed);
    return Outcome::kDone;
  }
  if (suspended == nullptr) {
    state.suspended = std::make_unique<Suspended>(Suspended{0, 0, spans});
    suspended = state.suspended.get();
  }
  ++suspended->calls;
  suspended->state = frame.state;
  return Outcome::kWaiting;
}

void Executor::Impl::check_host_memory(const Step& step) {
  const ExecNode& node = node_of(step);
  const Origin by = origin_of(step);
  judged("mem.host_lifetime");
  const std::string ended = host_blocks.ended_among(node.pointers);
  const bool changed = ended.empty() && staged.is_changed(by.serial, node);
  if (ended.empty() && !changed) return;
  Where where = at(ended);
  if (changed) {
    const void* from = std::get<MemcpyParams>(node.params).src;
    const std::string name = host_blocks.name_of(from);
    where = memory.find_allocation_of(from) != nullptr
                ? memory.where_of(from, static_cast<const std::byte*>(from))
                : at(name.empty() ? "host memory" : name);
  }
  where.phase = by.phase == Phase::kReplay ? "replay" : "eager";
  findings->add(make_finding("mem.host_lifetime", std::move(where),
                             changed ? "the bytes that were there when the copy was enqueued"
                                     : "memory that lives as it did when the copy was recorded",
                             by.to_string() + (changed ? " finds others" : " finds it ended")));
}

Executor::Impl::Outcome Executor::Impl::run_copy(const Step& step, const MemcpyParams& copy) {
  spans.clear();
  add_spans(memory, copy, &spans);
  const bool checked = memory.checked();
  if (!judge(step, spans, checked && is_transfer(memory, copy))) return Outcome::kFault;
  if (checked) {
    check_host_memory(step);
    if (const void* p = overlap(copy)) races.overlap_with_itself(access_run(step, false), p);
  }
  const bool rewrites = staged.are_written_by(copy);
  if (rewrites) staged.note_changes();
  perform(copy);
  if (rewrites) staged.accept_changes();
  if (checked) memory.commit(origin_of(step), spans);
  return Outcome::kDone;
}

Executor::Impl::Outcome Executor::Impl::run_set(const Step& step, const MemsetParams& set) {
  spans.clear();
  add_spans(set, &spans);
  if (!judge(step, spans, false)) return Outcome::kFault;
  perform(set);
  if (memory.checked()) memory.commit(origin_of(step), spans);
  return Outcome::kDone;
}

Executor::Impl::Outcome Executor::Impl::run_host(const HostParams& call) {
  if (!staged.empty()) staged.note_changes();
  judged("graph.host_callback");
  hooks.host_function(true);
  call.fn(call.user_data);
  hooks.host_function(false);
  if (!staged.empty()) staged.accept_changes();
  return Outcome::kDone;
}

Executor::Impl::Outcome Executor::Impl::run_allocation(const Step& step, const void* address,
                                                       bool frees) {
  void* p = const_cast<void*>(address);
  const DeviceMemory::Allocation* found = memory.find_allocation(p);
  if (found == nullptr) return Outcome::kDone;
  const DeviceMemory::Allocation allocation = *found;
  const auto* begin = static_cast<const std::byte*>(address);
  const auto* end = begin + allocation.bytes;
  if (memory.checked()) {
    if (!frees) order_after_frees(begin, end, &step.op->order);
    spans.assign(1, {.buffer = p,
                     .first = 0,
                     .count = static_cast<int64_t>(allocation.bytes),
                     .element_bytes = 1,
                     .access = Access::kWrite});
    races.access(access_run(step, true), spans);
  }
  if (allocation.kind == AllocKind::kGraph) {
    frees ? memory.end_graph_allocation(p, origin_of(step))
          : memory.begin_graph_allocation(p, origin_of(step));
  } else if (frees) {
    memory.release(p);
  }
  if (frees && memory.checked() && memory.find_allocation(p) == nullptr)
    note_freed(begin, end, step.op->order);
  return Outcome::kDone;
}

void Executor::Impl::note_freed(const std::byte* begin, const std::byte* end, const Ordering& by) {
  // Whoever had these bytes before freed them before they were given out again: older frees of them
  // say nothing more.
  auto it = freed.upper_bound(begin);
  if (it != freed.begin()) --it;
  while (it != freed.end() && it->first < end) {
    if (it->second.end > end) freed.emplace(end, it->second);
    if (it->first >= begin) {
      it = freed.erase(it);
    } else {
      it->second.end = std::min(it->second.end, begin);
      ++it;
    }
  }
  freed[begin] = {end, by.position, by.end()};
}

void Executor::Impl::order_after_frees(const std::byte* begin, const std::byte* end,
                                       Ordering* order) const {
  auto it = freed.upper_bound(begin);
  if (it != freed.begin()) --it;
  for (; it != freed.end() && it->first < end; ++it)
    if (it->second.end > begin) order->before.add(it->second.clock);
}

void Executor::Impl::complete(Operation& op, RunningGraph* graph, int32_t node) {
  graph->complete(node);
  while (graph->finished()) {
    RunningGraph* parent = graph->parent();
    if (parent == nullptr) return finish(op);
    const int32_t holder = graph->run()->node;
    if (enter(op, *parent, holder, graph->run()->iteration + 1)) return;
    parent->complete(holder);
    graph = parent;
  }
}

/// Starts the body that a child-graph or conditional node runs now. False: none, the node is done.
bool Executor::Impl::enter(Operation& op, RunningGraph& graph, int32_t node, int32_t iteration) {
  const Step step{&op, &graph, node};
  std::shared_ptr<const ExecBody> body = chosen_body(op, step, iteration);
  if (body == nullptr) return false;
  const auto* conditional = std::get_if<ConditionalParams>(&node_of(step).params);
  const bool loops = conditional != nullptr && conditional->type == ConditionalType::kWhile;
  if (loops && (body->nodes.empty() || iteration == kMaxIterations)) {
    report_stuck(origin_of(step), "its loop never ends");
    return false;
  }
  if (body->nodes.empty()) return false;
  graph.state(node).nested = std::make_unique<RunningGraph>(
      make_body_run(std::move(body), graph.run(), node, iteration), &graph);
  return true;
}

std::shared_ptr<const ExecBody> Executor::Impl::chosen_body(Operation& op, const Step& step,
                                                            int32_t iteration) {
  const ExecNode& node = node_of(step);
  const auto* conditional = std::get_if<ConditionalParams>(&node.params);
  const bool loops = conditional != nullptr && conditional->type == ConditionalType::kWhile;
  if (iteration > 0 && !loops) return nullptr;
  if (conditional == nullptr) return node.bodies.empty() ? nullptr : node.bodies.front();
  const std::optional<uint32_t> set = op.conditionals.value(conditional->handle);
  if (memory.checked()) judged("mem.uninit_read");
  if (!set && memory.checked()) {
    Where where = at("conditional handle " + std::to_string(conditional->handle.value));
    where.phase = "replay";
    findings->add(make_finding("mem.uninit_read", std::move(where), "a value set in this launch",
                               origin_of(step).to_string() + " reads none"));
  }
  const uint32_t value = set.value_or(0);
  const size_t body = conditional->type == ConditionalType::kSwitch ? value : (value == 0 ? 1 : 0);
  return body < node.bodies.size() ? node.bodies[body] : nullptr;
}

}  // namespace shadowgraph
