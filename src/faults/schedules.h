// Faults of schedulers: what a step says of its requests, and what requests are given. Spec
// faults-known K03, K06, K09, K65, K79, K80.
#pragma once

#include <map>

#include "check/tap.h"

namespace shadowgraph {

/// A prompt goes on from where its last chunk began, and not from where it ended.
class ChunkNotAdvanced final : public Tap {
 public:
  void step(Step& step, const PoolState& pools) override;

 private:
  std::map<OwnerId, int32_t> began_;  // the last chunk of a request
};

/// Rows have room for the tokens of a draft, and none for pages of its branches' own.
struct FlatHeadroom final : Tap {
  void runtime(RuntimeConfig& config) override;
};

/// Which tokens were accepted is read in rows of another width: a request reads the next one's.
struct AcceptedByAnotherWidth final : Tap {
  void step(Step& step, const PoolState& pools) override;
};

/// The host reads how many tokens were accepted before the copy from the device has come: the
/// numbers are those of the last round.
class AcceptedOfTheLastRound final : public Tap {
 public:
  void step(Step& step, const PoolState& pools) override;

 private:
  std::map<OwnerId, int32_t> accepted_;
};

/// The writer of a chunk takes columns behind the request's own: what a row still holds of whoever
/// had it before.
struct TailOfAReusedRow final : Tap {
  void step(Step& step, const PoolState& pools) override;
};

/// Of several windows the wrong one says what may go: tokens that a layer still sees are evicted.
struct EvictedByAnotherWindow final : Tap {
  void runtime(RuntimeConfig& config) override;
};

}  // namespace shadowgraph
