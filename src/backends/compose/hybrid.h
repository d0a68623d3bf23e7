// Hybrid: one backend for decode, another for prefill. Facts: docs/metadata.md "Composed backends".
// Tested by tests/backends/hybrid_test.cc.
#pragma once

#include <string>
#include <vector>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Which of the two judges drafts: speculative_attention_mode.
enum class VerifyBy : uint8_t { kDecode, kPrefill };

/// The mode chooses, at bind as at fill and forward; a Meta is the chosen backend's own.
class Hybrid final : public Backend {
 public:
  /// "DECODE_PREFILL", with "_verify" where the prefill backend verifies. Both outlive this.
  Hybrid(const Backend& decode, const Backend& prefill, VerifyBy verify);

  const BackendInfo& info() const override { return info_; }
  const Backend& part(ForwardMode mode) const;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  LseSink lse_sink(ForwardMode mode) const override { return part(mode).lse_sink(mode); }
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override;

 private:
  Limits limits_of_part(const Limits& limits) const;

  const Backend& decode_;
  const Backend& prefill_;
  const VerifyBy verify_;
  std::string name_;
  std::vector<ForwardMode> modes_, splits_;
  std::vector<int32_t> page_sizes_;
  std::vector<PlanKey> plan_keys_;
  BackendInfo info_;
};

}  // namespace shadowgraph
