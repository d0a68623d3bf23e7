// Scenes of a dense layer's steps: what the layer must read, and what somebody may have taken for
// it, an earlier step's keys, a capture's, or those behind the row's end. Tested by
// tests/faults/diagnosis_test.cc.
#pragma once

#include <deque>

#include "check/canonical.h"
#include "check/mistakes/mistakes.h"

namespace shadowgraph {

class StepScenes {
 public:
  /// Both outlive this.
  StepScenes(const ModelConfig& model, const LayerKind& kind) : model_(model), kind_(kind) {}

  void begin_step(const ForwardBatch& batch);
  /// The scene of this step's call, which is right; a whole draft has one for each of its steps.
  Scene of(const ForwardBatch& batch, const CanonicalCall& canonical) const;

 private:
  /// A capture's batch, which is only padding.
  RowsRead padding_like(const RowsRead& rows) const;
  /// Adds the slots before and behind the keys, from their rows of req_to_token.
  void add_neighbours(const ForwardBatch& batch, Scene* scene) const;

  const ModelConfig& model_;
  const LayerKind& kind_;
  std::deque<RowsRead> steps_;  // this one first
};

}  // namespace shadowgraph
