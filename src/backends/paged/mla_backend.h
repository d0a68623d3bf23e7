// MlaBackend: the absorbed path of multi-head latent attention: one latent head, no windows. An
// engine's kernel reads every request through a window of as many queries as the widest has, and is
// told prefix + window keys; where requests have fewer queries, a launch takes each one's own keys
// from that. Prefill is another backend's (Hybrid). Facts: docs/metadata.md "Siblings". Tested by
// tests/backends/trtllm_mla_test.cc.
#pragma once

#include "backends/paged/paged_backend.h"

namespace shadowgraph {

class MlaBackend : public PagedBackend {
 public:
  enum MlaBufferId : uint8_t {
    // [rows] prefix + window: what the engine tells its kernel. A sibling has a row for it, with
    // Role::kWidthLens, and the trace's name if one records it. kKvLens are the requests' own
    kSeqLensK = kFirstOwn,
    kOwnLens,  // [rows] of a draft extend: kKvLens as a launch makes them of kSeqLensK
    kFirstOwnOfMla
  };

 protected:
  Status check(const Limits& limits) const override;
  int64_t table_keys(const Limits& limits) const override;
  /// Table columns come in multiples of this.
  virtual int64_t column_multiple(int32_t /*page_size*/) const { return 1; }
  size_t num_buffers() const override { return kFirstOwnOfMla; }
  /// [rows] queries, or [rows + 1] offsets of theirs.
  virtual std::span<const int32_t> query_counts(const Meta& meta) const {
    return elements<int32_t>(meta[kCuSeqlensQ]);
  }
  std::span<const int32_t> kernel_lens(Stream& stream, const Meta& meta) const override;
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
  /// kSeqLensK of a row.
  static int32_t seq_len_k(const ForwardBatch& batch, const Limits& limits, int32_t row);
};

}  // namespace shadowgraph
