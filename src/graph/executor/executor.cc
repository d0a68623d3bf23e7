#include "graph/executor/executor.h"

#include <algorithm>

#include "graph/executor/executor_impl.h"

namespace shadowgraph {

namespace {

constexpr size_t kMaxOperations = size_t{1} << 16;  // whose clocks are kept
// Rounds without progress before what waits is told that nothing moves: a kernel that takes its
// time counts its calls, and is not to lose against one that waits for it.
constexpr int kQuietRounds = 3;
// From here on a lane is used again even if the host has not seen its work done: what races with
// the work of streams that are destroyed is then no longer told from what comes after it.
constexpr size_t kManyLanes = 256;

bool holds(const ExecBody& body, NodeHandle node) {
  return std::any_of(body.nodes.begin(), body.nodes.end(), [&](const ExecNode& n) {
    return n.source == node || std::any_of(n.bodies.begin(), n.bodies.end(),
                                           [&](const auto& b) { return holds(*b, node); });
  });
}

/// The node of body that is it or holds it, or -1.
int32_t find_node(const ExecBody& body, NodeHandle node) {
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const ExecNode& n = body.nodes[i];
    if (n.source == node || std::any_of(n.bodies.begin(), n.bodies.end(),
                                        [&](const auto& b) { return holds(*b, node); }))
      return static_cast<int32_t>(i);
  }
  return -1;
}

bool is_done(const RunningGraph& graph, NodeHandle node) {
  const int32_t i = find_node(graph.body(), node);
  if (i < 0) return false;
  const RunningGraph::NodeState& state = graph.state(i);
  return state.done || (state.nested != nullptr && is_done(*state.nested, node));
}

}  // namespace

Executor::Impl::Operation* Executor::Impl::find(uint64_t serial) {
  if (operations.empty() || serial < operations.front().by.serial || serial > last_serial)
    return nullptr;
  return &operations[serial - operations.front().by.serial];
}

bool Executor::Impl::done(const Marker& marker) {
  const Operation* op = find(marker.serial);
  if (op == nullptr || op->done) return true;
  return marker.node && op->graph != nullptr && is_done(*op->graph, marker.node);
}

Clock Executor::Impl::clock_after(const Marker& marker) {
  const Operation* op = find(marker.serial);
  if (op == nullptr) return {};  // forgotten: everything is after it
  const int32_t node = marker.node ? find_node(*op->run->body, marker.node) : -1;
  return node < 0 ? op->order.end() : op->order.end_of({op->run, node});
}

uint32_t Executor::Impl::add_lane() {
  // Its work goes on counting, so the old work is before the new: as the host that saw it done
  // says.
  const auto again = std::find_if(removed_lanes.begin(), removed_lanes.end(), [&](uint32_t i) {
    const bool seen = !memory.checked() || host.covers({i, lanes[i].tick});
    return lanes[i].queue.empty() && (seen || lanes.size() >= kManyLanes);
  });
  if (again == removed_lanes.end()) {
    lanes.emplace_back();
    return static_cast<uint32_t>(lanes.size() - 1);
  }
  const uint32_t lane = *again;
  removed_lanes.erase(again);
  return lane;
}

uint64_t Executor::Impl::enqueue(std::shared_ptr<const ExecBody> body, const WorkInfo& info) {
  const Origin by = next_origin(info.phase);
  if (sticky != DeviceError::kSuccess) {
    operations.clear();  // all done; no gaps
  } else if (eager && !memory.checked() && operations.empty() && body->conditionals.empty()) {
    std::optional<Suspended> suspended;
    const size_t done = run_plain(*body, &suspended);
    if (done < body->order.size()) {
      push(std::move(body), info, by);
      resume_after(done, std::move(suspended));
    }
  } else {
    push(std::move(body), info, by);
  }
  return by.serial;
}

Origin Executor::Impl::next_origin(Phase phase) {
  const uint64_t launch = phase == Phase::kReplay ? ++launches : 0;
  return {++last_serial, memory.step(), launch, -1, phase, {}};
}

void Executor::Impl::push(std::shared_ptr<const ExecBody> body, const WorkInfo& info,
                          const Origin& by) {
  if (operations.size() >= kMaxOperations && operations.front().done) {
    races.forget_up_to(operations.front().by.serial);
    operations.pop_front();
  }
  Lane& lane = lanes[info.lane];
  operations.emplace_back();
  Operation& op = operations.back();
  op.by = by;
  op.after = info.after;
  op.owners = owners;
  op.conditionals.assign_defaults(body->conditionals);
  op.order.position = {info.lane, ++lane.tick};
  if (memory.checked()) {
    op.order.before = host;
    op.order.before.add(lane.queue.empty() ? lane.last : lane.queue.back()->order.end());
    for (const Marker& marker : info.after) op.order.before.add(clock_after(marker));
  }
  prepare(op, *body);
  op.run = make_body_run(std::move(body), nullptr, -1, 0);
  lane.queue.push_back(&op);
}

/// What must be known of the nodes before they run.
void Executor::Impl::prepare(Operation& op, const ExecBody& body) {
  for (const ExecNode& node : body.nodes) {
    if (const auto* event = std::get_if<EventWaitParams>(&node.params)) {
      op.event_waits.emplace_back(&node, hooks.marker_of(event->event));
    } else if (const auto* copy = std::get_if<MemcpyParams>(&node.params)) {
      if (memory.checked() && node.enabled && is_staged(memory, *copy) &&
          host_blocks.ended_among(node.pointers).empty())
        staged.add(op.by.serial, node, *copy);
    } else if (std::holds_alternative<MemAllocParams>(node.params) ||
               std::holds_alternative<MemFreeParams>(node.params)) {
      op.has_memory_nodes = true;
    }
    for (const auto& nested : node.bodies) prepare(op, *nested);
  }
}

bool Executor::Impl::is_ready(const Operation& op) {
  return std::all_of(op.after.begin(), op.after.end(), [&](const Marker& m) { return done(m); });
}

void Executor::Impl::start_ready() {
  for (bool again = true; again;) {
    again = false;
    for (Lane& lane : lanes) {
      if (lane.queue.empty()) continue;
      Operation& op = *lane.queue.front();
      if (op.graph != nullptr || !is_ready(op)) continue;
      start(op, lane);
      again = again || op.done;  // an empty graph
    }
  }
}

void Executor::Impl::start(Operation& op, Lane& lane) {
  if (memory.checked()) {
    // Event-wait nodes may have added to what these come after.
    op.order.before.add(lane.last);
    for (const Marker& marker : op.after) op.order.before.add(clock_after(marker));
  }
  op.after.clear();
  op.graph = std::make_unique<RunningGraph>(op.run, nullptr);
  if (op.graph->finished()) finish(op);
}

void Executor::Impl::finish(Operation& op) {
  Lane& lane = lanes[op.order.position.lane];
  op.done = true;
  op.graph.reset();
  lane.queue.pop_front();
  staged.end(op.by.serial);
  if (memory.checked()) {
    lane.last = op.order.end();
  } else {
    while (!operations.empty() && operations.front().done) operations.pop_front();
  }
}

void Executor::Impl::collect(Operation& op, RunningGraph& graph) {
  for (const int32_t node : graph.open()) {
    if (eager && !steps.empty()) return;
    RunningGraph::NodeState& state = graph.state(node);
    if (state.nested != nullptr) {
      collect(op, *state.nested);
    } else if (!state.asleep) {
      const ExecNode* exec_node = &graph.body().nodes[static_cast<size_t>(node)];
      const auto wait = std::find_if(op.event_waits.begin(), op.event_waits.end(),
                                     [&](const auto& w) { return w.first == exec_node; });
      if (wait == op.event_waits.end() || done(wait->second)) steps.push_back({&op, &graph, node});
    }
  }
}

void Executor::Impl::find_steps() {
  start_ready();
  steps.clear();
  heads.clear();
  for (const Lane& lane : lanes)
    if (!lane.queue.empty() && lane.queue.front()->graph != nullptr)
      heads.push_back(lane.queue.front());
  std::sort(heads.begin(), heads.end(),
            [](const Operation* a, const Operation* b) { return a->by.serial < b->by.serial; });
  for (Operation* op : heads) collect(*op, *op->graph);
}

void Executor::Impl::wake() {
  for (const Lane& lane : lanes)
    if (!lane.queue.empty() && lane.queue.front()->graph != nullptr)
      lane.queue.front()->graph->wake();
}

void Executor::Impl::advance(bool all) {
  if (operations.empty()) return;
  wake();
  while (sticky == DeviceError::kSuccess) {
    find_steps();
    if (steps.empty()) return;
    uint32_t chosen = 0;
    if (!eager) {
      const auto bound = static_cast<uint32_t>(steps.size());
      const uint32_t choices = bound + (all ? 0 : 1);
      if (choices > 1) chosen = choose(choices);
      if (chosen == bound) return;  // the rest comes later
    }
    run(steps[chosen]);
  }
}

template <class Finished>
void Executor::Impl::run_until(Finished finished) {
  int quiet = 0;  // rounds since something got done
  while (sticky == DeviceError::kSuccess && !finished()) {
    find_steps();
    if (steps.empty()) {
      if (stalled) {
        drop_stuck();
        quiet = 0;
      }
      stalled = ++quiet > kQuietRounds;
      wake();
      continue;
    }
    const auto bound = static_cast<uint32_t>(steps.size());
    if (run(steps[bound > 1 ? choose(bound) : 0])) quiet = 0, stalled = false;
  }
  judged("graph.stuck");
  stalled = false;
}

void Executor::Impl::report_stuck(const Origin& by, std::string_view got) {
  Where where = at(by.to_string());
  where.phase = by.phase == Phase::kReplay ? "replay" : "eager";
  findings->add(make_finding("graph.stuck", std::move(where), "it ends", std::string(got)));
}

/// Every running operation waits for ever (some is running: the oldest one that is not done depends
/// on nothing else). What comes after them goes on.
void Executor::Impl::drop_stuck() {
  heads.clear();
  for (const Lane& lane : lanes)
    if (!lane.queue.empty() && lane.queue.front()->graph != nullptr)
      heads.push_back(lane.queue.front());
  for (Operation* op : heads) {
    RunningGraph* graph = op->graph.get();
    while (graph->state(graph->open().front()).nested != nullptr)
      graph = graph->state(graph->open().front()).nested.get();
    report_stuck(origin_of({op, graph, graph->open().front()}), "it waits and nothing else runs");
    finish(*op);
  }
}

void Executor::Impl::drop_all() {
  for (Lane& lane : lanes) lane.queue.clear();
  for (Operation& op : operations) {
    op.done = true;
    op.graph.reset();
    staged.end(op.by.serial);
  }
}

void Executor::Impl::forget() {
  if (!memory.checked()) return;
  Clock seen = host;
  for (const Lane& lane : lanes)
    for (const Operation* op : lane.queue) seen.intersect(op->order.before);
  races.forget(seen);
  std::erase_if(freed, [&](const auto& f) { return seen.covers(f.second.position); });
  while (!operations.empty() && operations.front().done &&
         seen.covers(operations.front().order.position))
    operations.pop_front();
}

Executor::Executor(DeviceMemory& memory, Choose choose, bool eager, ExecutorHooks hooks,
                   Status* findings)
    : impl_(std::make_unique<Impl>(memory, std::move(choose), eager, std::move(hooks), findings)) {}
Executor::~Executor() = default;

uint32_t Executor::add_lane() { return impl_->add_lane(); }
void Executor::remove_lane(uint32_t lane) { impl_->removed_lanes.push_back(lane); }
size_t Executor::lanes() const { return impl_->lanes.size(); }
uint64_t Executor::enqueue(std::shared_ptr<const ExecBody> body, const WorkInfo& info) {
  return impl_->enqueue(std::move(body), info);
}
uint64_t Executor::last_serial() const { return impl_->last_serial; }
bool Executor::done(const Marker& marker) const { return impl_->done(marker); }
void Executor::advance() { impl_->advance(false); }
void Executor::drain() { impl_->advance(true); }

void Executor::wait(const Marker& marker) {
  impl_->run_until([&] { return impl_->done(marker); });
  observe(marker);
}
void Executor::settle() {
  impl_->run_until([&] {
    return std::all_of(impl_->lanes.begin(), impl_->lanes.end(),
                       [](const Impl::Lane& lane) { return lane.queue.empty(); });
  });
}
void Executor::wait_all() {
  settle();
  for (const Impl::Lane& lane : impl_->lanes) impl_->host.add(lane.last);
  impl_->forget();
}
void Executor::observe(const Marker& marker) {
  impl_->host.add(impl_->clock_after(marker));
  impl_->forget();
}
DeviceError Executor::sticky() const { return impl_->sticky; }

void Executor::host_block(const void* p, size_t bytes, std::string_view name) {
  impl_->host_blocks.begin(p, bytes, name);
}
void Executor::host_block_ended(const void* p) { impl_->host_blocks.end(p); }
void Executor::host_writes(const void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  impl_->staged.host_writes(begin, begin + bytes);
  impl_->races.host_writes(impl_->host, begin, begin + bytes);
}
uint64_t Executor::host_block_of(const void* p) const { return impl_->host_blocks.block_of(p); }
void Executor::set_row_owners(std::span<const OwnerId> owners) {
  impl_->owners = std::make_shared<const std::vector<OwnerId>>(owners.begin(), owners.end());
}

}  // namespace shadowgraph
