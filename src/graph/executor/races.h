// Races: accesses of overlapping bytes, one of them a write, that nothing orders. The log keeps
// what later or pending work may still be unordered with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/executor/happens_before.h"
#include "graph/memory/memory.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// One run of a node, as races see it.
struct AccessRun {
  const Ordering& operation;
  NodeRunId id;
  Origin by;
  NodeHandle source;
  /// To or from the host, an allocation, a free: not two launches that race, but a missing order.
  bool transfer = false;
};

class Races {
 public:
  Races(const DeviceMemory& memory, Status* findings) : memory_(memory), findings_(findings) {}

  /// Compares with everything in the log, then enters it.
  void access(const AccessRun& run, const Footprint& spans);
  /// A copy whose source and destination overlap, at p.
  void overlap_with_itself(const AccessRun& run, const void* p);
  /// The host, which has seen what the clock covers, writes bytes that a copy may still read.
  void host_writes(const Clock& host, uintptr_t begin, uintptr_t end);
  /// Nothing is, or will be, unordered with what the clock covers.
  void forget(const Clock& clock);
  /// Nothing enqueued up to here will be asked about.
  void forget_up_to(uint64_t serial);
  size_t intervals() const { return intervals_; }

 private:
  struct Interval {
    uintptr_t begin, end;
  };
  struct Entry {
    NodeRunId id;
    Origin by;
    NodeHandle source;
    bool transfer;
    std::vector<Interval> reads, writes;
    size_t cost = 0;  // intervals, as they are counted
    bool sorted = false;
  };
  struct Operation {
    Position position;
    uint64_t serial;
    std::vector<Entry> entries;
    uint64_t shape = 0;  // a hash of who accesses what: equal ones are taken to be the same
  };
  using Log = std::list<Operation>;
  struct Lane {
    Log log;                                             // by tick
    std::unordered_map<uint64_t, Log::iterator> newest;  // of a shape; not the last operation yet
  };

  static std::vector<Interval> intervals_of(const Footprint& spans, bool writes);
  static void sort(Entry& entry);
  static uintptr_t first_overlap(const std::vector<Interval>& a, const std::vector<Interval>& b);
  static uintptr_t first_conflict(Entry& a, Entry& b);
  static uint64_t shape_of(const Entry& entry);
  void compare(const AccessRun& run, Operation& with, Entry& entry);
  void report(const Entry& a, const Entry& b, uintptr_t at);
  void bound();
  /// The lane's last operation is over: an older one that did the same need not be kept.
  void replace_older(Lane& lane);
  void drop(Lane& lane, Log::iterator operation);

  const DeviceMemory& memory_;
  Status* findings_;
  std::deque<Lane> lanes_;  // they hold iterators into themselves: never moved
  std::set<std::pair<uint64_t, uint64_t>> reported_;
  size_t intervals_ = 0;
};

}  // namespace shadowgraph
