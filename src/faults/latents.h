// Faults of DeepSeek-V4: what a token sees of its window and of blocks, where states are, and what
// is stored when.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A block ends where the ratio divides the position, not the length.
struct BlockEndByPosition final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A token that sees no block reads slot 0 for the one that its length of 1 has.
struct NoBlockIsSlotZero final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// It reads its first block, which is not whole yet: the clamped length is taken for the blocks.
struct ClampedLengthIsBlocks final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A window of W tokens is W - 1 before the token and none of itself: the oldest is missing.
struct WindowWithoutItsOldest final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The window begins with its oldest token where the row's end is cut off.
struct WindowOldestFirst final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The compressor's state is found by the row of the batch before.
struct StateOfAnotherRequest final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Blocks of a page are counted as if it held one.
struct OneBlockAPage final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The sink is added to the denominator by both halves of a kernel that splits.
struct SinkCountedTwice final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A kernel is given its extra list, and reads the main one alone.
struct ExtraListIgnored final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Rings hold a window, and no drafts besides.
struct RingsWithoutDrafts final : Tap {
  void limits(Limits& limits) override;
};

/// Padding stores where the first real token does.
struct PaddingStoresLatents final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A replay stores blocks where the last one did.
struct BlockSlotsNotRefilled final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// All tokens of a request have its length.
struct LengthsPerRequest final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A prefill of rings stores before it attends.
struct RingStoredTooEarly final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// A warmup leaves its expanded metadata where the raw one was: the capture after it records no
/// launch that expands.
struct ExpandedAtWarmupAlone final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
