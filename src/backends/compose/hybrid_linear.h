// HybridLinear: a model with layers of full attention beside recurrent ones: a backend for each
// kind, both bound, filled and launched in every step. Facts: docs/metadata.md "Composed backends".
// Tested by tests/backends/recurrent_test.cc.
#pragma once

#include <string>
#include <vector>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Two children, in arena scopes "full" and "linear"; a layer is the child's that computes it.
/// Modes are those of both.
class HybridLinear final : public Backend {
 public:
  /// "FULL_LINEAR". Both outlive this.
  HybridLinear(const Backend& full, const Backend& linear);

  const BackendInfo& info() const override { return info_; }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override;

 private:
  const Backend& full_;
  const Backend& linear_;
  std::string name_;
  std::vector<ForwardMode> modes_, splits_;
  BackendInfo info_;
};

}  // namespace shadowgraph
