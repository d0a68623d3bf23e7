// The inside of SimDevice: state, and what every call shares. The calls themselves lie in
// sim_memory.cc, sim_work.cc, sim_streams.cc, sim_capture.cc and sim_graphs.cc.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/choices.h"
#include "core/laws.h"
#include "graph/capture/capture.h"
#include "graph/capture/graph_store.h"
#include "graph/executor/executor.h"
#include "graph/memory/memory.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

/// This thread's number: from 1, never used twice.
uint64_t thread_id();

struct SimDevice::Impl {
  explicit Impl(const SimOptions& o);

  /// Every call: refused inside host functions and, but for a few, after a sticky error; afterwards
  /// the device works on, and the thread remembers an error. body(ThreadState&) -> DeviceError.
  template <class Body>
  DeviceError call(Body body, bool after_fault = false) {
    if (in_host_function()) return refuse_in_host_function();
    const std::lock_guard lock(mutex);
    ThreadState& thread = this_thread();
    thread.has_context = true;
    DeviceError error = after_fault ? DeviceError::kSuccess : executor.sticky();
    if (error == DeviceError::kSuccess) {
      error = body(thread);
      executor.advance();
    }
    if (error != DeviceError::kSuccess) thread.last_error = error;
    return error;
  }
  /// An annotation: never fails.
  template <class Body>
  void note(Body body) {
    if (in_host_function()) return;
    const std::lock_guard lock(mutex);
    body();
  }

  /// One that changes what memory means: work enqueued before it is judged by what it meant then.
  template <class Body>
  void note_of_memory(Body body) {
    note([&] {
      executor.drain();
      body();
    });
  }

  bool in_host_function() const {
    return host_function_thread.load(std::memory_order_relaxed) == thread_id();
  }
  DeviceError refuse_in_host_function();
  ThreadState& this_thread();
  /// nullptr: no such stream.
  SimStream* stream(StreamHandle s, ThreadState& thread);
  SimEvent* event(EventHandle e);
  void add_finding(LawId law, std::string field, std::string expected, std::string got);

  /// Is this memory that only the host can reach?
  bool is_host(const void* p) const { return !memory.mapped(p, 1); }

  /// What is enqueued on s: its own work and events that it waits for; of the legacy stream, the
  /// work of all blocking streams too. Synchronising s waits for that.
  std::vector<Marker> work_of(const SimStream& s) const;
  /// What the next work on s waits for: that, and on a blocking stream the legacy stream's.
  std::vector<Marker> stands_behind(const SimStream& s) const;
  /// Runs the operation on s, which is not capturing.
  Marker enqueue(SimStream& s, NodeParams params);
  Marker enqueue(SimStream& s, std::shared_ptr<const ExecBody> body, Phase phase,
                 std::vector<Marker> after);
  /// To s: a node if s is capturing, an operation otherwise.
  DeviceError submit(SimStream& s, NodeParams params);
  /// Where s stands now: everything enqueued on it is before that.
  Marker tail(SimStream& s);
  DeviceError append(SimStream& s, NodeParams& params);
  /// Both sides' memory: pinned, managed.
  bool is_shared(const void* p) const;
  DeviceError copy_async(const MemcpyParams& copy, SimStream& s);
  DeviceError set_async(const MemsetParams& set, SimStream& s);
  DeviceError allocate(size_t bytes, AllocKind kind, void** p, ThreadState& thread);
  DeviceError release(void* p, ThreadState& thread, bool host);

  DeviceError begin_capture(StreamHandle handle, ThreadState& thread, CaptureMode mode,
                            GraphHandle graph, DependencySet dependencies);
  DeviceError make_set(GraphHandle g, std::span<const NodeHandle> nodes,
                       std::span<const EdgeData> edge_data, DependencySet* set);
  DeviceError capture_status(const SimStream& s, CaptureStatus* status) const;
  /// Is the work of every fork before the origin's dependency set? impl: this.
  static bool all_joined(void* impl, const Capture& capture);
  struct EveryOrder;  // sim_orders.cc

  DeviceError account_allocations(SimStream& s, const Exec& exec);
  void point_events(const ExecBody& body, uint64_t serial);

  const SimOptions options;
  std::mutex mutex;
  std::atomic<uint64_t> host_function_thread = 0;
  Status findings;
  Rng rng;
  DeviceMemory memory;
  Choose choose;    // schedules
  Freedom freedom;  // answers
  const HostBlockOf host_block;
  GraphStore graphs;
  std::map<EventHandle, SimEvent> events;
  Executor executor;
  Captures captures;

  std::map<uint64_t, ThreadState> threads;
  SimStream legacy;
  std::map<StreamHandle, std::unique_ptr<SimStream>> streams;
  uint64_t last_handle = 1000;

  // Launches.
  struct ExecState {
    Marker last;           // its latest launch
    GraphHandle expected;  // Annotations
  };
  std::map<ExecHandle, ExecState> execs;
  std::set<ExecHandle> destroyed_execs;
  std::set<void*> live_graph_allocations;  // as of the calls made, not of the work done
  std::set<void*> live_pool_allocations;
  std::list<std::pair<Marker, std::vector<std::byte>>> staged;
  void* symbol = nullptr;  // 16 bytes of device memory, once it is used
};

}  // namespace shadowgraph
