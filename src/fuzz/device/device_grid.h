// Exhaustive device programs, on all cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "core/law_counts.h"
#include "core/shard.h"
#include "fuzz/device/device_program.h"

namespace shadowgraph {

struct DeviceGridResult {
  uint64_t programs = 0;
  Status findings;  // by number; reproduce: the command that runs its program alone
  DeviceCoverage coverage;
  LawCounts laws;

  /// Programs and counts; findings are told by number.
  void add(const DeviceGridResult& part) {
    programs += part.programs;
    coverage.add(part.coverage), laws.add(part.laws);
  }
};

/// Those of SmallPrograms(max_calls) that are in the range. Stops after max_findings findings.
/// progress(done, of) counts programs, and starts is told of each before it runs; any thread may
/// call them.
DeviceGridResult run_device_grid(int max_calls, int threads, size_t max_findings,
                                 const std::function<void(uint64_t done, uint64_t of)>& progress,
                                 const std::atomic<bool>& stop, const CaseRange& range = {},
                                 const std::function<void(uint64_t number)>& starts = {});

}  // namespace shadowgraph
