// Faults of plans whose requests have no keys. Spec faults-known K52, K53, K59.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A plan has no work for a request without keys: nothing writes its rows.
struct NoItemWithoutKeys final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Where no request has a key a planner divides by 0, and its chunk is what an infinite number
/// becomes as an integer.
struct DividedByNoKeys final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// What merges takes the chunks of a request without keys for none, and the work list has one.
struct NoChunkWithoutKeys final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

}  // namespace shadowgraph
