// CuteDSL-MLA as SGLang drives it: TRTLLM-MLA, and decode context parallelism. Of n ranks, rank r
// holds the tokens c with c mod n = r, and every rank attends to its own with all heads; whoever
// calls merges the ranks' results by their LSE. Facts: docs/metadata.md "Siblings". Tested by
// tests/backends/cutedsl_mla_test.cc.
#pragma once

#include "backends/paged/trtllm_mla.h"

namespace shadowgraph {

/// With more than one rank a request has a length for each of its queries: which local keys a query
/// sees depends on its position and on the rank. Modes whose requests all have max_q_len queries.
class CuteDslMla : public TrtllmMla {
 public:
  enum DcpBufferId : uint8_t {
    kGlobalSeqLensK = kFirstOwnOfTrtllm,  // [rows]; kSeqLensK is the rank's
    kVisibleLens,  // [max_q_len, rows] local keys that a query sees; a launch makes it of the
                   // lengths
    kNumBuffers
  };

  const BackendInfo& info() const override;
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  /// One launch for each query of a request.
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;

 protected:
  bool counts_rows() const override { return false; }  // its kernels have a workspace of their own
  Status check(const Limits& limits) const override;
};

}  // namespace shadowgraph
