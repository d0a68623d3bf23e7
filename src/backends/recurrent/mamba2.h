// Mamba2: state space duality over state slots, behind a convolution. Its chunks lie on the grid of
// the whole batch, so that a snapshot may lie inside of one: its state is computed once more, in
// the snapshot's slot. Facts: docs/metadata.md "Recurrent layers". Tested by
// tests/backends/recurrent_test.cc.
#pragma once

#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

class Mamba2 final : public RecurrentBackend {
 public:
  /// Meta's buffers behind the common ones, of a prefill.
  enum OwnId : uint8_t {
    kSeqIdx = kFirstOwn,  // [tokens] the request of each
    kChunkIndices,        // the ChunkList: the batch's chunk of each run of tokens,
    kChunkOffsets,        // where in the chunk it begins,
    kChunkCount,          // [1] and how many runs there are
    // Snapshots inside a chunk take two rows per request, the tokens before the snapshot and those
    // behind it:
    kAgainRows,     // [2 rows + 1]
    kAgainSlots,    // [2 rows] the snapshot's slot, -1: nothing is computed
    kAgainInitial,  // [2 rows] bytes
    kAgainFrom,     // [rows] the slot that the snapshot's begins with, -1: none
    kEnd
  };
  Mamba2();

 protected:
  size_t num_own() const override { return size_t{kEnd} - size_t{kFirstOwn}; }
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Meta& meta, Filler& filler) const override;
  void track_own(Stream& stream, const Meta& meta, const LinearAttention& call,
                 const TensorView& out) const override;
  void recur(Stream& stream, const Meta& meta, const LinearAttention& call) const override;

 private:
  void fill_again(const ForwardBatch& batch, const Meta& meta, Filler& filler) const;
};

}  // namespace shadowgraph
