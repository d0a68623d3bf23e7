// Multi-item scoring in a tile launch: which keys the items of a request hide, by arrays of the
// device in which every entry is suspect. Facts: docs/metadata.md "FlashInfer". Tested by
// tests/launch/tile_launch_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/tile_plan.h"

namespace shadowgraph {

/// TileItems' arrays.
struct ItemReader {
  IntArray prefix_lens, token_pos, max_item_lens;

  /// Clears of pairs [tokens, the item's keys] what those tokens of its request do not see; no
  /// pairs: all of them are seen until then. False where an array ends before what is asked of it.
  bool hide(const WorkItem& item, TileRange tokens, std::vector<uint8_t>* pairs);
};

}  // namespace shadowgraph
