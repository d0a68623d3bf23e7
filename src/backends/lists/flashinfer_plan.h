// FlashInfer's planners: how a batch becomes a work list (TilePlan). Host arithmetic alone, written
// into memory that the caller has; nothing is allocated. Facts: docs/metadata.md "FlashInfer".
// Tested by tests/backends/flashinfer_plan_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// kDecode: one query a request, whose heads are a tile. kPrefill: any queries; a decode by tensor
/// cores is one, too.
enum class PlanKind : uint8_t { kDecode, kPrefill };

/// What a planner knows beside the lengths. Of a plan for a window FlashInfer counts the keys that
/// one tile sees; here it is all keys of a list, as where the window is not told when planning.
struct PlanShape {
  PlanKind kind = PlanKind::kDecode;
  int32_t rows = 0, tokens = 0;  // of the metadata, padding included
  int32_t num_qo_heads = 1, num_kv_heads = 1, head_dim_qk = 64, head_dim_vo = 64;
  // Lengths are not known when it is bound, as in a graph: tiles for the longest request that there
  // may be, and keys are cut whatever the batch
  bool padded = false;
  SplitConfig split = {};

  int32_t group() const { return num_qo_heads / num_kv_heads; }
  /// Packed rows of a tile. The same for every batch.
  int32_t cta_tile_q() const;
};

/// Memory of a plan.
struct PlanArrays {
  std::span<int32_t> request_indices, kv_tile_indices;  // [items]
  std::span<int32_t> qo_tile_indices;                   // [items]; kDecode: none
  std::span<int32_t> o_indptr;                          // [rows + 1]
  std::span<int32_t> merge_indptr;                      // [queries + 1]; kDecode: none, o_indptr's
  std::span<int32_t> kv_chunk_size;                     // [1]
  std::span<uint8_t> block_valid_mask;                  // of the grid: 0 behind the last item
};

struct PlanCapacity {
  int64_t items = 0;         // padded_batch_size: the grid
  int64_t partial_rows = 0;  // what split_kv leaves
};

struct PlanResult {
  int64_t items = 0;  // new_batch_size
  int32_t kv_chunk_size = 0;
  bool split_kv = false;

  /// That a list of so many keys is cut into.
  int32_t chunks(int64_t kv_len) const {
    return static_cast<int32_t>((std::max<int64_t>(kv_len, 1) - 1) / kv_chunk_size + 1);
  }
};

/// Enough for every batch whose lists have up to max_kv_len keys each. FlashInfer refuses a fixed
/// split size whose items a graph's grid does not have; here the grid has them.
PlanCapacity plan_capacity(const PlanShape& shape, int64_t max_kv_len);

/// kv_indptr [rows + 1] keys, qo_indptr [rows + 1] queries; kDecode: empty.
PlanResult measure_plan(const PlanShape& shape, std::span<const int32_t> qo_indptr,
                        std::span<const int32_t> kv_indptr);
/// The plan of those lengths that was measured. plan.capacity: it has more items than the arrays;
/// nothing is written.
Status write_plan(const PlanShape& shape, std::span<const int32_t> qo_indptr,
                  std::span<const int32_t> kv_indptr, const PlanResult& plan,
                  const PlanArrays& arrays);

}  // namespace shadowgraph
