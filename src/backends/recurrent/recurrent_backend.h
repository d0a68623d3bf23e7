// RecurrentBackend: what backends over recurrent states have in common: where each request's state
// is, whether it starts from it, the tree of a verify, and the snapshots that a prefill leaves;
// then convolution, gate and recurrence, layer by layer. What engines do differently stands in
// rules (recurrent_families.h). Facts: docs/metadata.md "Recurrent layers". Tested by
// tests/backends/recurrent_test.cc.
#pragma once

#include <span>

#include "backends/fill/rows.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// The rules in which engines' recurrent backends differ.
struct RecurrentRules {
  BackendInfo info;
  PadRow pad, pad_in_verify;  // a kernel does this with the tokens of rows that have no slot
  bool keeps_padding = true;  // a verify keeps their states
  int32_t pad_slot = -1;
  // A decode's and a verify's kernels find row i's tokens at i times their number, and skip padding
  // by its slot; else by kQueryStartLoc
  bool dense_rows = true;
  ChunkGrid chunk_grid = ChunkGrid::kRow;
};

class RecurrentBackend : public Backend {
 public:
  /// Meta's first buffers.
  enum BufferId : uint8_t {
    kQueryStartLoc,  // [rows + 1]; padding has no tokens
    kStateIndices,   // [rows] slots; padding: pad_slot
    kDenseRows,      // [rows + 1] 0, q_len, 2 q_len ...: the rows of a decode's or verify's kernels
    kInitialStates,  // [rows] bytes, of a prefill
    // Links of a verified tree [tokens]; the first launch computes the last array from the others
    kNextToken,
    kNextSibling,
    kParents,
    // For a prefill that leaves snapshots
    kTrackSlots,   // [rows] -1: none
    kTrackConv,    // [rows, conv_width - 1] tokens, of which the window is made
    kTrackFinal,   // [rows] the slot whose state a snapshot is, -1: it is none's
    kTrackChunks,  // [rows] the place in chunk_states, -1: it is none
    kFirstOwn      // where a backend's own begin
  };
  /// Behind a backend's own, for each layer, f32.
  enum ScratchId : uint8_t { kConvOut, kLogDecay, kBeta, kChunkStates, kTrackOut, kNumScratch };

  /// The rules outlive this.
  explicit RecurrentBackend(const RecurrentRules& rules) : rules_(rules) {}

  const BackendInfo& info() const override { return rules_.info; }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;

 protected:
  class Layer;

  virtual size_t num_own() const { return 0; }
  virtual void bind_own(Binder& /*binder*/, const Limits& /*limits*/) const {}
  virtual void fill_own(const ForwardBatch& /*batch*/, const Meta& /*meta*/,
                        Filler& /*filler*/) const {}
  /// Before a layer's recurrence, and of the same rows: what else its snapshots need.
  virtual void track_own(Stream& /*stream*/, const Meta& /*meta*/, const LinearAttention& /*call*/,
                         const TensorView& /*out*/) const {}
  /// A layer's recurrence.
  virtual void recur(Stream& stream, const Meta& meta, const LinearAttention& call) const;
  /// A row's snapshot of a prefill: after so many of its tokens; 0: none.
  static int32_t tracked(const ForwardBatch& batch, const Limits& limits, int64_t row);

  const Buffer& scratch(const Meta& meta, size_t kind, ScratchId id) const {
    return meta[kFirstOwn + num_own() + kind * kNumScratch + id];
  }

 private:
  Status check(const Limits& limits) const;
  void bind_layers(Binder& binder, const Limits& limits) const;
  void fill_rows(const ForwardBatch& batch, const Meta& meta, Filler& filler) const;
  void fill_tracks(const ForwardBatch& batch, const Meta& meta, Filler& filler) const;

  const RecurrentRules& rules_;
};

/// What states ask of a batch that fits: each request's slot, and a tree's links; dense_rows: as
/// many tokens of each request as the limits say.
Status has_states(const ForwardBatch& batch, const Limits& limits, bool dense_rows);

/// Tokens of a chunk, and inputs of a window, which all recurrent layers of a model share.
int32_t state_chunk_size(const ModelConfig& model);
int32_t conv_history(const ModelConfig& model);
/// A step whose rows are prompts: each may start from zero, and leave snapshots.
inline bool is_state_prefill(ForwardMode mode) {
  return !is_decode_or_idle(mode) && !is_target_verify(mode);
}

}  // namespace shadowgraph
