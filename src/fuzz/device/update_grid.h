// Every update of an executable graph that changes one field of one node: of every type of node,
// every field, several values, alone and inside of other graphs, by every call that updates. What
// the executable does then is held against a new one on another device. Rules: docs/graphs.md
// "Updates". Tested by tests/fuzz/update_grid_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/law_counts.h"
#include "core/shard.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

/// `fuzz --exhaustive`
inline constexpr std::string_view kUpdateGrid = "graph-update";

/// The node's place, alone or among nodes that never change; kBeside: among two kernels of
/// which the other graph has other scalars.
enum class UpdatePlace : uint8_t { kAlone, kBeside, kChild, kBody };
/// cudaGraphExecUpdate from another graph; from the same graph, whose node was changed;
/// cudaGraphExec...NodeSetParams.
enum class UpdateWay : uint8_t { kGraph, kEdited, kNode };

struct UpdateCase {
  std::string_view kind;  // of node: "memcpy h2d"
  size_t subject = 0;     // by kind
  uint32_t change = 0;    // of the kind's
  std::string text;       // "width = 8"
  UpdatePlace place = UpdatePlace::kAlone;
  UpdateWay way = UpdateWay::kGraph;
  uint64_t seed = 0;  // of the device

  std::string to_string() const;
};

std::span<const UpdateCase> update_cases();

/// kNone: no device takes a graph with that node, so there is nothing to update from.
enum class UpdateOutcome : uint8_t { kTaken, kRefused, kNone };

using MakeSimDevice = std::function<std::unique_ptr<SimDevice>(const SimOptions&)>;

/// device.update unless the device takes the update as CUDA does and a new executable shows what
/// the updated one does, or refuses it as CUDA does and the executable is as it was. make: the
/// device that updates; empty: a SimDevice.
Status check_update(const UpdateCase& c, const MakeSimDevice& make, UpdateOutcome* outcome);

struct UpdateGridResult {
  uint64_t cases = 0;
  Status findings;
  std::map<std::string, int64_t> counts;  // "memcpy h2d taken": by kind and outcome
  LawCounts laws;

  void add(const UpdateGridResult& part);
};

/// Like run_device_grid, for update_cases().
UpdateGridResult run_update_grid(int threads, size_t max_findings,
                                 const std::function<void(uint64_t done, uint64_t of)>& progress,
                                 const std::atomic<bool>& stop, const CaseRange& range = {},
                                 const std::function<void(uint64_t number)>& starts = {},
                                 const MakeSimDevice& make = {});

}  // namespace shadowgraph
