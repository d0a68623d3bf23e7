// FlashMLA as SGLang drives it: pages of 64, and a schedule that shares the keys out among the
// parts of the machine. The schedule is the engine's metadata; the twin's own kernel needs none.
// Prefill is another backend's (Hybrid). Facts: docs/metadata.md "Siblings". Tested by
// tests/backends/flash_mla_test.cc.
#pragma once

#include "backends/paged/mla_backend.h"

namespace shadowgraph {

/// A part of the machine reads from key begin_key of begin_row to end_key of end_row, whole rows
/// between; without work it has end_row < begin_row, or no row at all. begin_split: how many splits
/// of begin_row come before.
enum MlaPart : uint8_t { kBeginRow, kBeginKey, kEndRow, kEndKey, kBeginSplit, kMlaPartInts = 8 };

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
    kNumBuffers
  };

  const BackendInfo& info() const override;
  /// Parts of the machine. Only the limits decide, so that a graph never sees another number.
  static int32_t num_parts(const Limits& limits);

 protected:
  size_t num_buffers() const override { return kNumBuffers; }
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
};

}  // namespace shadowgraph
