// Faults of recurrent states: slots, starts, trees, chunks, snapshots, decays. Tested by
// tests/faults/faults_test.cc.
#pragma once

#include <map>

#include "check/tap.h"

namespace shadowgraph {

// Metadata.

struct EveryStateInitial final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct OneTokenPromptsDecode final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct PaddingIsTheLastSlot final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;

 private:
  int32_t last_ = 0;
};
struct PaddingByLength final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct PaddingOfAnotherFill final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct SlotsByBatchRow final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct SlotsOfTheCapture final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;

 private:
  std::map<const std::byte*, std::vector<int32_t>> first_;  // by buffer
};
struct TreesAreChains final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct ChunksOfEachRequest final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};
struct TrackIntoALiveSlot final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

// Launches.

struct VerifyStoresStates final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};
struct WindowsOfTheChain final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};
struct SlotBeforeThePool final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};
struct OneDecayTooFew final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};
struct DecaysOfBaseTwo final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

// The host.

struct SlotsAreNotCleared final : Tap {
  void step(Step& step, const PoolState& pools) override;
};
struct SnapshotsAreNotCopied final : Tap {
  void step(Step& step, const PoolState& pools) override;
};
struct CommitsTheLastDraft final : Tap {
  void step(Step& step, const PoolState& pools) override;
};

}  // namespace shadowgraph
