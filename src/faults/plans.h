// Faults of plans: how a batch's work is counted, cut and written down.
#pragma once

#include <cstdint>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

/// Under a graph, too, the tile of queries is chosen from the batch's tokens.
class TileOfTheBatch final : public Tap {
 public:
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;

 private:
  int32_t tokens_ = 0;
};

/// Where keys are not cut a graph runs its whole grid without the mask that says which items are.
struct GridWithoutMask final : Tap {
  void baked(Meta& meta, bool capturing) override;
};

/// A graph's plan has as many requests as its offsets have elements.
struct PhantomRequest final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The longest query is the largest offset: all tokens.
class LongestIsTotal final : public Tap {
 public:
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;

 private:
  std::vector<int32_t> totals_;  // of each metadata; 0: has no offsets
};

/// The half of a cascade that sees the common prefix is scheduled as the other one is.
struct PrefixScheduledAsDrafts final : Tap {
  void baked(Meta& meta, bool capturing) override;
};

/// A verify is planned as a decode: one query a request.
struct VerifyPlannedAsDecode final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The search for a chunk size counts no item of a request without keys, and the plan has one.
struct SearchWithoutEmpty final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Requests behind the first sweep are visited by each worker. A sweep is 256 requests there, and 2
/// here.
struct RequestsCountedAgain final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A planner is given rows and tokens the wrong way round, and chooses the kernel's tile by them.
struct PlanArgumentsSwapped final : Tap {
  void baked(Meta& meta, bool capturing) override;
};

}  // namespace shadowgraph
