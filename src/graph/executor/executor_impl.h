// The inside of Executor: operations on lanes, the host's clock, and the scheduler's state.
// executor.cc enqueues and schedules, executor_run.cc runs nodes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/laws.h"
#include "graph/executor/executor.h"
#include "graph/executor/happens_before.h"
#include "graph/executor/node_work.h"
#include "graph/executor/races.h"
#include "graph/executor/running_graph.h"
#include "graph/memory/host_memory.h"

namespace shadowgraph {

struct Executor::Impl {
  using Owners = std::shared_ptr<const std::vector<OwnerId>>;

  struct Operation {
    Origin by;  // of no node
    std::shared_ptr<const BodyRun> run;
    std::vector<Marker> after;  // until it starts
    std::vector<std::pair<const ExecNode*, Marker>> event_waits;
    Ordering order;
    Owners owners;
    Conditionals conditionals;
    bool has_memory_nodes = false;
    bool done = false;
    std::unique_ptr<RunningGraph> graph;  // while it runs
  };
  struct Lane {
    std::deque<Operation*> queue;  // not done; only the first may run
    uint64_t tick = 0;
    Clock last;  // the end of the last that is done
  };
  /// A node that can run now.
  struct Step {
    Operation* op;
    RunningGraph* graph;
    int32_t node;
  };
  enum class Outcome : uint8_t { kDone, kWaiting, kNested, kFault };

  Impl(DeviceMemory& m, Choose c, bool e, ExecutorHooks h, Status* f)
      : memory(m), choose(std::move(c)), eager(e), hooks(std::move(h)), findings(f), races(m, f) {}

  // Enqueueing.
  uint32_t add_lane();
  uint64_t enqueue(std::shared_ptr<const ExecBody> body, const WorkInfo& info);
  Origin next_origin(Phase phase);
  void push(std::shared_ptr<const ExecBody> body, const WorkInfo& info, const Origin& by);
  void prepare(Operation& op, const ExecBody& body);
  size_t run_plain(const ExecBody& body, std::optional<Suspended>* suspended);
  void resume_after(size_t done, std::optional<Suspended> suspended);

  // Scheduling.
  Operation* find(uint64_t serial);
  bool done(const Marker& marker);
  bool is_ready(const Operation& op);
  void start_ready();
  void start(Operation& op, Lane& lane);
  void finish(Operation& op);
  void collect(Operation& op, RunningGraph& graph);
  /// Fills steps_ with what can run: all, or if eager the first.
  void find_steps();
  /// all: whatever can run, not just as much as is chosen.
  void advance(bool all);
  template <class Finished>
  void run_until(Finished finished);
  void wake();
  void drop_stuck();
  void drop_all();

  // The host.
  Clock clock_after(const Marker& marker);
  void forget();

  // Running. run: did something get done?
  bool run(const Step& step);
  Outcome run_node(const Step& step);
  Outcome run_kernel(const Step& step, const KernelLaunch& launch);
  Outcome run_copy(const Step& step, const MemcpyParams& copy);
  Outcome run_set(const Step& step, const MemsetParams& set);
  Outcome run_host(const HostParams& host);
  Outcome run_allocation(const Step& step, const void* address, bool frees);
  void note_freed(const std::byte* begin, const std::byte* end, const Ordering& by);
  void order_after_frees(const std::byte* begin, const std::byte* end, Ordering* order) const;
  void complete(Operation& op, RunningGraph* graph, int32_t node);
  bool enter(Operation& op, RunningGraph& graph, int32_t node, int32_t iteration);
  std::shared_ptr<const ExecBody> chosen_body(Operation& op, const Step& step, int32_t iteration);
  bool judge(const Step& step, const Footprint& spans, bool transfer);
  bool lacks_order_with_memory_node(const Step& step, const Footprint& spans);
  void check_host_memory(const Step& step);
  AccessRun access_run(const Step& step, bool transfer) const;
  void use_owners(const Owners& owners);
  void report_stuck(const Origin& by, std::string_view got);

  static const ExecNode& node_of(const Step& step) {
    return step.graph->body().nodes[static_cast<size_t>(step.node)];
  }
  static Origin origin_of(const Step& step);

  DeviceMemory& memory;
  const Choose choose;
  const bool eager;
  const ExecutorHooks hooks;
  Status* const findings;
  Races races;

  std::deque<Operation> operations;  // by serial, without gaps; done ones until they are forgotten
  std::vector<Lane> lanes;
  std::vector<uint32_t> removed_lanes;
  uint64_t last_serial = 0, launches = 0;
  Clock host;
  DeviceError sticky = DeviceError::kSuccess;

  std::vector<Step> steps;
  std::vector<Operation*> heads;
  Footprint spans;       // of the node that runs
  bool stalled = false;  // nothing moves but what waits: LaunchFrame::stalled

  HostBlocks host_blocks;
  StagedCopies staged;
  Owners owners, owners_in_use;
  /// Stream-ordered memory that was freed, by its begin, disjoint: who has it next comes after
  /// that.
  struct Freed {
    const std::byte* end;
    Position position;
    Clock clock;
  };
  std::map<const std::byte*, Freed> freed;
};

}  // namespace shadowgraph
