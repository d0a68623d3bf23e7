// The scalars of the launches that a GPU has bodies for: the last argument of each, as plain data
// that both sides read. What comes before them are the pointers, in the order of the launch's Arg.
#pragma once

#include "launch/attention_args.h"

namespace shadowgraph {

/// q, cache, page_table | kv_indices, cache_seqlens | last_page_len, kv_indptr, cu_seqlens_q,
/// params, out, lse, plan.
struct PagedScalars {
  RowsScalars q, out, lse;
  CacheScalars cache;
  ParamsScalars params;
  int64_t batch, max_pages, num_page_ids, plan_size;
  RequestRows rows;
  PageTable::Form form;
  uint8_t has_indptr, unused[6];
};
static_assert(sizeof(PagedScalars) ==
              3 * sizeof(RowsScalars) + sizeof(CacheScalars) + sizeof(ParamsScalars) + 6 * 8);

/// q, k, v, cu_seqlens_q, cu_seqlens_k, params, out, lse.
struct RaggedScalars {
  RowsScalars q, k, v, out, lse;
  ParamsScalars params;
  int64_t num_offsets_q, num_offsets_k;
  float k_scale, v_scale;
  RequestRows rows;
};
static_assert(sizeof(RaggedScalars) == 5 * sizeof(RowsScalars) + sizeof(ParamsScalars) + 4 * 8);

/// k, v, out_cache_loc, cache.
struct StoreScalars {
  RowsScalars k, v;
  CacheScalars cache;
  int64_t num_tokens, first_slot;
  RequestRows tokens;
  int32_t num_threads, unused;
};
static_assert(sizeof(StoreScalars) ==
              2 * sizeof(RowsScalars) + sizeof(CacheScalars) + 2 * 8 + 4 * 4);

/// v_a, s_a, v_b, s_b, out, lse, cu_seqlens_q.
struct MergeScalars {
  RowsScalars v_a, s_a, v_b, s_b, out, lse;
  int64_t num_offsets_q, num_threads;
};
static_assert(sizeof(MergeScalars) == 6 * sizeof(RowsScalars) + 2 * 8);

/// req_to_token, full_to_swa, req_pool_indices, lens, offsets, page_table.
struct GatherTableScalars {
  int64_t pool_rows, width, mapped, requests, columns;
  int32_t unit;
  uint8_t has_map, has_offsets, unused[2];
};
static_assert(sizeof(GatherTableScalars) == 5 * 8 + 8);
inline constexpr int32_t kNoPage = -1;  // of an index that leads nowhere

/// cache, slots, cu_seqlens, out.
struct GatherLatentsScalars {
  RowsScalars out;
  CacheScalars cache;
  int64_t num_slots, num_offsets;
  RequestRows rows;
};
static_assert(sizeof(GatherLatentsScalars) == sizeof(RowsScalars) + sizeof(CacheScalars) + 3 * 8);

/// source_slots, target_slots, cache.
struct CopySlotsScalars {
  CacheScalars cache;
  int64_t num_sources, num_targets;
};
static_assert(sizeof(CopySlotsScalars) == sizeof(CacheScalars) + 2 * 8);

/// k, cu_seqlens, factors, out.
struct ScaleKeysScalars {
  RowsScalars k, out;
  int64_t num_offsets;
  RequestRows rows;
};
static_assert(sizeof(ScaleKeysScalars) == 2 * sizeof(RowsScalars) + 2 * 8);

}  // namespace shadowgraph
