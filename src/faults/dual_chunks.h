// Faults of dual-chunk attention: its parts, their tables, and the factor of its keys.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// Offsets of a decode's queries are running sums of 0, 1, 2, ..., and not of ones.
struct OffsetsOfArange final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// The chunk before a query's own is in none of its parts.
struct ChunkBeforeMissing final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// It is in two: all chunks before a query's own are read by its last part.
struct ChunkBeforeTwice final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Keys are multiplied by their factor when they are in the cache already, without it.
struct KeysScaledAfterStore final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Slots become pages in one function, and those pages become pages again in the next.
struct PagesDividedTwice final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A replay in which no request has a chunk before its own does not fill what says where it is.
struct ChunkBeforeNotRefilled final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The factor of a prompt that comes in chunks is that of the tokens so far.
struct FactorOfTokensSoFar final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

}  // namespace shadowgraph
