// Scenes of a runner's steps: what a layer must read, and what somebody may have taken for it, an
// earlier step's keys, a capture's, or those behind the row's end. Tested by
// tests/faults/diagnosis_test.cc.
#pragma once

#include <deque>
#include <vector>

#include "check/canonical.h"
#include "check/mistakes/mistakes.h"

namespace shadowgraph {

class StepScenes {
 public:
  explicit StepScenes(const ModelConfig& model) : model_(model) {}

  /// The scene of a layer whose call is right.
  Scene of(const ForwardBatch& batch, const CanonicalCall& canonical, const LayerIo& io) const;
  /// What comes has this step before it.
  void remember(const ForwardBatch& batch);

 private:
  /// A capture's batch, of padding alone.
  RowsRead padding_like(const RowsRead& rows) const;
  /// What stands before and behind the keys, in their rows of req_to_token.
  void add_neighbours(const ForwardBatch& batch, const LayerKind& kind, Scene* scene) const;

  const ModelConfig& model_;
  std::vector<std::deque<RowsRead>> before_;  // by kind of layer, the last step first
};

}  // namespace shadowgraph
