// A worker of a campaign. It runs nothing itself: each of its children, processes that it forks,
// runs one range after the other, so that a case that ends its process, or never ends, costs that
// child alone and becomes a finding.
#pragma once

#include <atomic>
#include <functional>

#include "campaign/queue.h"

namespace shadowgraph {

struct WorkerOptions {
  int children = 1;
  double seconds = 0;  // takes no further range after so long; 0: until the campaign is complete
  /// A report of no case: its head, for ranges of which there is nothing but a finding.
  Report head;
  /// Cases by their numbers: "seed 7 case 12", and the command that runs them again.
  std::function<std::string(const CampaignRange&)> name, reproduce;
};

struct WorkerProgress {
  uint64_t cases = 0, findings = 0;  // of this worker
  QueueState campaign;
};

struct WorkerResult {
  Report report;  // of this worker's ranges, joined
  uint64_t ranges = 0;
  QueueState campaign;  // when it ended
  Status trouble;       // results that could not be published
};

/// Requires that this process has no other thread. progress is called a few times a second; stop
/// gives the ranges in hand back undone.
WorkerResult run_worker(Queue& queue, const RunRange& run, const WorkerOptions& options,
                        const std::function<void(const WorkerProgress&)>& progress,
                        const std::atomic<bool>& stop);

}  // namespace shadowgraph
