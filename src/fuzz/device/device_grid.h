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
  Status findings;
  DeviceCoverage coverage;
  LawCounts laws;
};

/// All programs of up to max_calls calls of small_scope(), or those that a shard has: numbers count
/// from each first call on. Stops after max_findings findings. progress(done, of) counts parts of
/// the walk; any thread may call it.
DeviceGridResult run_device_grid(int max_calls, int threads, size_t max_findings,
                                 const std::function<void(size_t done, size_t of)>& progress,
                                 const std::atomic<bool>& stop, const Shard& shard = {});

}  // namespace shadowgraph
