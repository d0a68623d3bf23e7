// A work list as a tile launch reads it: what each item is, by arrays of the device in which every
// entry is suspect. Tested by tests/launch/tile_plan_test.cc and tile_launch_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/checked_array.h"

namespace shadowgraph {

using IntArray = CheckedArray<const int32_t>;

struct TileRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// What the plan says of an item. Whether its rows and keys exist is not yet known.
struct WorkItem {
  int32_t request = 0;
  int64_t q_begin = 0, q_len = 0;       // the request's first row of q, its queries
  int64_t kv_begin = 0, kv_len = 0;     // its first place in the list of keys, its keys
  TileRange packed;                     // rows of the tile, token * group + head of the group
  TileRange keys;                       // of the request
  bool first_chunk = true;              // of the request's keys
  int64_t out_begin = 0, out_step = 1;  // the request's first row of out, rows from token to token

  int64_t row(int64_t token) const { return out_begin + token * out_step; }
};

/// Rows of a tile that are whole tokens, or some heads of one.
struct TileSegment {
  TileRange tokens;  // of the request
  TileRange heads;   // of each group; {0, 0}: all
};
std::vector<TileSegment> segments_of(TileRange packed, int64_t group);

/// TilePlan and the lengths of a TiledAttention, as arrays that note what is read of them.
struct PlanReader {
  int64_t group = 1;
  int32_t cta_tile_q = 0;
  bool split_kv = false;
  IntArray qo_indptr, kv_indptr, requests, qo_tiles, kv_tiles, o_indptr, kv_chunk_size;
  CheckedArray<const uint8_t> valid;

  /// Nothing where the item is padding, has no rows, or does not lead to them.
  std::optional<WorkItem> item(int64_t i);

 private:
  bool cut_keys(int64_t i, WorkItem* item);
};

}  // namespace shadowgraph
