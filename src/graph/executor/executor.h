// The executor: runs enqueued work in any order that its dependencies allow, under one seeded
// chooser, and judges every access on the way. Everything enqueued is an ExecBody: an eager
// operation is a graph of one node. See docs/graphs.md "Ordering", "Errors of execution".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/capture/graph_store.h"
#include "graph/memory/memory.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A point in the device's work: an operation, or one node of a graph launch (external event
/// record). serial 0: always done.
struct Marker {
  uint64_t serial = 0;
  NodeHandle node;  // source handle; none: the whole operation
};

/// Chooses 0 <= r < bound, bound >= 2.
using Choose = std::function<uint32_t(uint32_t bound)>;

struct ExecutorHooks {
  /// Where the event stands: an event-wait node waits for it.
  std::function<Marker(EventHandle)> marker_of;
  /// Around a host function: API calls that it makes are refused.
  std::function<void(bool inside)> host_function;
  /// SimOptions::watch; may be empty.
  std::function<void(const KernelLaunch&, const Footprint&)> watch = {};
  /// SimOptions::proves_footprints.
  bool proves_footprints = false;
};

struct WorkInfo {
  uint32_t lane = 0;  // the stream: work on one lane is ordered by its enqueue
  Phase phase = Phase::kEager;
  /// Work that must be done first. The lane's own earlier work need not be named.
  std::vector<Marker> after;
};

class Executor {
 public:
  /// eager: runs what can run at every advance(), oldest first; else choose says how much and what.
  Executor(DeviceMemory& memory, Choose choose, bool eager, ExecutorHooks hooks, Status* findings);
  ~Executor();

  uint32_t add_lane();
  /// Nothing more is enqueued on it. What is pending goes on; then add_lane() may hand it out
  /// again.
  void remove_lane(uint32_t lane);
  size_t lanes() const;
  uint64_t enqueue(std::shared_ptr<const ExecBody> body, const WorkInfo& info);
  uint64_t last_serial() const;
  /// Runs a body without child graphs and conditional nodes in exactly this order, after all other
  /// work. Returns what each node accessed, by ordinal; nothing if a sticky error stands or arose.
  std::vector<Footprint> run_in_order(std::shared_ptr<const ExecBody> body, const WorkInfo& info,
                                      std::span<const int32_t> order);

  bool done(const Marker& marker) const;
  void advance();
  /// Runs all that can run now. The host has not seen it: no order follows from it.
  void drain();
  /// Runs until done. The host has then seen it: everything enqueued later is ordered after it.
  void wait(const Marker& marker);
  void wait_all();
  /// The same, and the host has not seen it.
  void settle();
  /// The host has seen that marker is done (a query said so).
  void observe(const Marker& marker);
  /// IllegalAddress once some work accessed unmapped memory; from then on nothing runs.
  DeviceError sticky() const;

  // Host memory that copies name (Annotations::host_block).
  void host_block(const void* p, size_t bytes, std::string_view name);
  void host_block_ended(const void* p);
  void host_writes(const void* p, size_t bytes);
  /// Which block holds p now, for BakedPointer::offset of a pointer to host memory; 0: none.
  uint64_t host_block_of(const void* p) const;
  void set_row_owners(std::span<const OwnerId> owners);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shadowgraph
