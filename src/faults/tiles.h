// Faults of kernels that run by a plan's tiles. Spec faults-known K23, K45, K51, K69.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A decode's chunk need not be whole tiles of keys, here of 4, and the loop runs tiles: a chunk
/// that is not the last one has the next one's first keys, too.
struct ChunkOfPartTiles final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The place of a mask's bit, query * keys + key, is computed in few bits: 32 there, 4 here.
struct MaskBitsOfFewBits final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The length of an empty list, (pages - 1) * page_size + the last one's, wraps round: to 2^32 - 1
/// there, 15 here.
struct EmptyListWraps final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A mask is asked for all rows and columns of a tile, 16 by 16, those of nobody too.
struct MaskOfWholeTiles final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
