// FlashInfer's planners: how a batch becomes a work list (TilePlan). Host arithmetic alone, written
// into memory that the caller has; nothing is allocated. Source: spec
// backends-flashinfer-triton-linear-sparse 2.7. Tested by tests/backends/flashinfer_plan_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/backend.h"

namespace shadowgraph {

/// What a planner knows beside the lengths. A captured plan may change none of it.
struct PlanShape {
  int32_t rows = 0, tokens = 0;  // the graph's; eagerly the batch's
  int32_t num_qo_heads = 1, num_kv_heads = 1, head_dim = 64;
  int32_t window_left = -1;  // plan-time
  bool graph = false;        // a padded grid: keys are cut whatever the batch
  SplitConfig split;

  int32_t group() const { return num_qo_heads / num_kv_heads; }
};

/// Memory of a plan; sizes from plan_capacity().
struct PlanArrays {
  std::span<int32_t> request_indices, qo_tile_indices, kv_tile_indices;  // [items]
  std::span<int32_t> o_indptr;                                           // [rows + 1]
  std::span<int32_t> merge_indptr;                                       // [tokens + 1]
  std::span<int32_t> kv_chunk_size;                                      // [1]
  std::span<uint8_t> block_valid_mask;                                   // [items]
};

struct PlanCapacity {
  int64_t items = 0;         // padded_batch_size: the grid
  int64_t partial_rows = 0;  // what split_kv leaves
  int32_t cta_tile_q = 0;    // of a graph; eagerly fill says it
};

struct PlanResult {
  int64_t items = 0;       // new_batch_size
  int32_t cta_tile_q = 0;  // packed rows
  int64_t kv_chunk_size = 0;
  bool split_kv = false;
};

/// Enough for every batch within limits.
PlanCapacity decode_plan_capacity(const PlanShape& shape, const Limits& limits);
PlanCapacity prefill_plan_capacity(const PlanShape& shape, const Limits& limits);

/// kv_lens [rows], qo_lens [rows] with the padding's. Entries behind the last item and row are
/// left: the caller retires them. plan.capacity: more items than the grid has (a fixed split size
/// under a graph), nothing is written.
Status plan_decode(const PlanShape& shape, std::span<const int32_t> kv_lens,
                   const PlanArrays& arrays, PlanResult* result);
Status plan_prefill(const PlanShape& shape, std::span<const int32_t> qo_lens,
                    std::span<const int32_t> kv_lens, const PlanArrays& arrays, PlanResult* result);
/// How many chunks each row's keys are cut into, without memory for a plan.
PlanResult measure_decode(const PlanShape& shape, std::span<const int32_t> kv_lens);
PlanResult measure_prefill(const PlanShape& shape, std::span<const int32_t> qo_lens,
                           std::span<const int32_t> kv_lens);

}  // namespace shadowgraph
