// Exhaustive steps of a backend: every small batch of a mode, run as Runner runs it. The counts are
// those of docs/verification.md "Small scopes". Tested by tests/fuzz/step_grid_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "check/runner.h"
#include "core/law_counts.h"
#include "core/shard.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

struct GridPart;  // grid_parts.h

struct StepGrid {
  std::string_view name;  // "decode"
  std::string_view what;
  std::span<const std::string_view> backends;  // that run it where nobody says which
  /// Calls walk for each part: batches that share pools and graphs.
  void (*parts)(const std::function<void(const GridPart&)>& walk);
};

std::span<const StepGrid> step_grids();
/// nullptr if there is none.
const StepGrid* find_step_grid(std::string_view name);
/// Steps of the whole grid.
uint64_t count_steps(const StepGrid& grid);

struct StepGridResult {
  uint64_t steps = 0;    // that were run
  uint64_t skipped = 0;  // that the backend does not serve
  uint64_t replays = 0;
  LawCounts laws;
  // reproduce: the command, without the tap, that runs its step, alone if it fails alone, and else
  // after some of those before
  Status findings;
};

/// Stops after max_findings findings. progress(done, of) counts parts, and starts is told of each
/// step before it runs; any thread may call them.
StepGridResult run_step_grid(const StepGrid& grid, const Backend& backend, int threads,
                             size_t max_findings, const MakeTap& tap,
                             const std::function<void(size_t done, size_t of)>& progress,
                             const std::atomic<bool>& stop, const CaseRange& range = {},
                             const std::function<void(uint64_t number)>& starts = {});

}  // namespace shadowgraph
