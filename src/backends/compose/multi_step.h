// MultiStep: a draft model's decode steps, which follow each other in one graph. The first draft
// token comes from draft extend, so there are num_steps - 1 of them. Facts: docs/metadata.md
// "Drafts". Tested by tests/backends/multi_step_test.cc.
#pragma once

#include <string>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A child's metadata for each step, in arena scopes "step0", "step1", .... Limits are of
/// limits.step; a later step has as many keys more. StepIo: the layers of step 0, of step 1, ....
class MultiStep final : public Backend {
 public:
  /// "NAME_multi_step". The child outlives this.
  explicit MultiStep(const Backend& child);

  const BackendInfo& info() const override { return info_; }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  /// Parts of the step that the batch names.
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override;

 private:
  const Backend& child_;
  const std::string name_;
  BackendInfo info_;
};

}  // namespace shadowgraph
