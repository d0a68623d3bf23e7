// FlashMLA as SGLang drives it: pages of 64, and a schedule by which the parts of the machine share
// the keys of all rows. Prefill is another backend's (Hybrid). Facts: docs/metadata.md "Siblings".
// Tested by tests/backends/flash_mla_test.cc.
#pragma once

#include "backends/paged/mla_backend.h"
#include "launch/mla_parts_launch.h"

namespace shadowgraph {

/// Shares the keys of all rows out, in blocks of 64; every row costs 5 blocks more. parts [n, 8],
/// MlaPart each, the rest 0. num_splits[i] becomes the number of splits of the rows before i.
/// Requires lens >= 0, n >= 1 and num_splits.size() = lens.size() + 1.
void share_out(std::span<const int32_t> lens, std::span<int32_t> parts,
               std::span<int32_t> num_splits);

class FlashMla final : public MlaBackend {
 public:
  enum OwnBufferId : uint8_t {
    kTileMetadata = kFirstOwnOfMla,  // [num_parts, 8]: MlaPart
    kNumSplits,                      // [rows + 1]
    // f32, the partial results of rows that several parts have: MlaParts
    kPartialOut,
    kPartialLse,
    kNumBuffers
  };

  const BackendInfo& info() const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  /// Parts of the machine. Only the limits decide, so that a graph never sees another number.
  static int32_t num_parts(const Limits& limits);

 protected:
  size_t num_buffers() const override { return kNumBuffers; }
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
  /// The launches read a window, and which of its queries are a row's own.
  std::span<const int32_t> kernel_lens(Stream& /*stream*/, const Meta& meta) const override {
    return elements<int32_t>(meta[kSeqLensK]);
  }
  void attend(Stream& stream, const Meta& meta, const LayerIo& io, std::span<const int32_t> kv_lens,
              std::span<const int32_t> cu_seqlens_q) const override;
};

}  // namespace shadowgraph
