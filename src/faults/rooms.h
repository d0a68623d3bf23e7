// Faults of room: buffers that are too small for what a step writes or reads, or are gone.
#pragma once

#include <map>

#include "check/tap.h"

namespace shadowgraph {

/// A graph's lists of a draft tree have room for one branch of each request.
struct ListsOfOneBranch final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// Tables have columns for the cached keys, and none for those that the step appends; the kernel
/// takes the column anyway.
class TableWithoutNewKeys final : public Tap {
 public:
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;
};

/// A graph is captured with the splits of its dummy batch, one a row, and replayed with more:
/// partial results have room for one, or the grid has.
class SplitsOfTheCapture final : public Tap {
 public:
  void bound(Meta& meta, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;
};

/// Partial results are allocated, their addresses kept, and the memory given back before a kernel
/// runs.
struct PartialsFreed final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// A graph's lists of a window have room for the keys before the query, and none for its own.
struct WindowWithoutQuery final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// Room for partial results is counted before it is known how many query heads share a KV head.
struct PartialsBeforeGroups final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// The draft's metadata is made for the target's heads, here of one to a KV head.
struct HeadsOfTheTarget final : Tap {
  void limits(Limits& limits) override;
};

}  // namespace shadowgraph
