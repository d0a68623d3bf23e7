// A queue gives a worker its ranges, and takes their results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "campaign/campaign.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A range that a worker has. It holds no lock: another worker that takes it, too, costs time and
/// changes nothing.
struct Claim {
  uint64_t range = 0;
  uint64_t deaths = 0;                             // workers that were lost with it
  std::map<uint64_t, uint64_t> deaths_alone = {};  // those that ran one case alone, by that case
};

struct QueueState {
  uint64_t done = 0, ranges = 0;  // ranges 0: without an end
  bool complete() const { return ranges > 0 && done == ranges; }
};

class Queue {
 public:
  virtual ~Queue() = default;

  virtual const Campaign& campaign() const = 0;
  /// The text of a file of the campaign's corpus.
  virtual Status case_file(const std::string& path, std::string* text) = 0;
  /// *claim without a value: every range is done, or another worker's. Ask again later, for that
  /// one may be lost. io.write, io.open where the queue does not work.
  virtual Status claim(std::optional<Claim>* claim) = 0;
  /// This worker is alive, and at that case; alone: it runs nothing else, since others were lost
  /// there. To be called every stale_seconds / 12 or more often.
  virtual void beat(uint64_t range, uint64_t at, bool alone) = 0;
  /// Gives a range back undone.
  virtual void release(uint64_t range) = 0;
  /// The range's result. If it has one already, that one stays; if they differ, this is
  /// run.nondeterminism. io.write: it could not be kept; nothing of it is left.
  virtual Status publish(uint64_t range, const RangeResult& result) = 0;
  virtual QueueState state() = 0;
};

}  // namespace shadowgraph
