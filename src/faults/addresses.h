// Faults of where kernels look for their keys. Spec faults-known K02, K44, K46, K47, K48, K63.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// Of a decode under a window the keys that its pages have room for are taken for its length; the
/// window is counted from their end, too.
struct CapacityAsLength final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A latent's place, page * stride, is computed in few bits: 32 there, 8 here.
struct PageTimesStrideInFewBits final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Numbers of pages, or of slots where those are listed, keep few bits: 16 there, 3 here.
struct IdsOfFewBits final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Places in a row's list pass through a signed integer of few bits: 16 there, 3 here.
struct PlacesOfFewBits final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A tile's columns of a table are held against the length in tokens.
struct TokensAsPageBound final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Tiles, here pages, that are wholly before the window are skipped, and K and V stay behind.
struct SkippedTilesNotPassed final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
