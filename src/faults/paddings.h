// Faults of padding: rows and tokens that are nobody's.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A warm-up's padding names rows that the pools' table has not got, where a launch gathers tables:
/// the row's number, behind the last.
struct PoolRowOfPadding final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The dummy request's row of a table is allocated, and nobody writes it.
struct DummyRowUnwritten final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Of the slots to write a replay fills those of real tokens: the rest are a larger batch's.
struct SlotsOfALargerBatch final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Padding has no key, where the kernel needs one, and was planned with one.
struct PaddingWithoutKeys final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Outside of graphs the last offset of queries is a graph's: the tokens, padded.
struct PaddedTokensWithoutGraph final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A graph's padding stores where the first request has its first token.
struct PaddingInLiveSlot final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

}  // namespace shadowgraph
