// Linear attention keeps a state instead of a cache of keys. Every head has a matrix S of
// head_dim_v rows and head_dim_k columns; a token lets S decay, adds to it, and reads it:
//
//   S := S diag(exp(log_decay))
//   u := beta v                     Rule::kAdd    (Mamba2, Lightning)
//   u := beta (v - S k)             Rule::kDelta  (Gated DeltaNet, Kimi Delta Attention)
//   S := S + u k^T
//   out := scale S q
//
// So a token sees itself with weight 1, and the delta rule reads the old value after the decay. In
// Mamba2 q = C, k = B, v = x and beta = dt; in Lightning log_decay is minus the slope of the head.
// DecayGate computes decays and weights from a model's projections; CausalConv1d is the convolution
// before the recurrence.
//
// Requests are rows over packed tokens; the state of each lives in a slot of a pool. Facts:
// docs/metadata.md "Recurrent layers"; recorded kernels: tests/data/README.md.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// What happens to a row whose state index is -1.
enum class PadRow : uint8_t {
  kSkip,      // nothing is read or written, out keeps what it holds
  kZeroOut,   // out is 0, nothing else is written
  kFromZero,  // the row starts from a state of zeros; no slot is written
};

/// Which tokens belong to which request, and where its state lives.
struct StateRows {
  std::span<const int32_t> cu_seqlens_q;   // [rows + 1], from 0, not decreasing
  std::span<const int32_t> state_indices;  // [rows] slots, or -1: see PadRow
  // [rows] 0: the row starts from zero, and its slot is overwritten whatever it holds. Empty: every
  // row starts from its slot
  std::span<const uint8_t> has_initial_state;
  PadRow pad = PadRow::kSkip;

  int64_t rows() const { return static_cast<int64_t>(state_indices.size()); }
  int32_t slot(int64_t row) const { return state_indices[static_cast<size_t>(row)]; }
  int64_t begin(int64_t row) const { return cu_seqlens_q[static_cast<size_t>(row)]; }
  /// True if the row's tokens are computed, from its slot or from zero.
  bool is_computed(int64_t row) const { return slot(row) >= 0 || pad == PadRow::kFromZero; }
  int64_t tokens(int64_t row) const { return begin(row + 1) - begin(row); }
  bool starts_from_slot(int64_t row) const {
    return slot(row) >= 0 &&
           (has_initial_state.empty() || has_initial_state[static_cast<size_t>(row)] != 0);
  }
};

/// A verify step keeps the state behind every draft token. In a tree each token starts from the
/// state of its parent.
struct DraftSteps {
  // [rows, steps, ...the state of a slot]: the state behind token j of row r goes to [indices[r],
  // j]; entries beyond a row's tokens are not touched. Undefined: no state is kept
  TensorView states;
  std::span<const int32_t> indices;  // [rows]; empty: row r
  // With PadRow::kFromZero: true if the states of rows without a slot are kept, too (GDN; not
  // Mamba2)
  bool of_padding = true;
  // [tokens] parent of each token within its row: an earlier token, 0 <= parent < j for token j >
  // 0. The entry of token 0 is not read. Empty: a chain, in which the parent of j is j - 1
  std::span<const int32_t> parents;

  int64_t place(int64_t row) const {
    return indices.empty() ? row : indices[static_cast<size_t>(row)];
  }
  /// True if the states behind the tokens of such a row are kept.
  bool keeps(bool has_slot) const { return states.defined() && (has_slot || of_padding); }
};

/// Where the chunks of a prefill begin. A prefix cache keeps the states at these places.
enum class ChunkGrid : uint8_t {
  kRow,     // at multiples of the chunk size, counted from each row's first token (GDN, KDA)
  kTokens,  // at multiples of it, counted from the batch's first token, and at every row (Mamba2)
};

struct LinearAttention {
  enum class Rule : uint8_t { kAdd, kDelta };
  /// How the tokens of a row are processed.
  enum class Form : uint8_t {
    kRecurrent,  // one after the other
    kChunked,    // 32 at a time, from the row's first token (16 if channels have own decays):
                 // prefills
  };
  enum class StateOrder : uint8_t {
    kValueKey,  // [slots, num_v_heads, head_dim_v, head_dim_k]: Mamba2, GDN, KDA
    kKeyValue,  // [slots, num_v_heads, head_dim_k, head_dim_v]: Lightning
  };

  Rule rule = Rule::kAdd;
  Form form = Form::kRecurrent;  // kChunked takes no draft
  // f32, f16 or bf16, the last dim contiguous. num_k_heads divides num_v_heads: value head h uses
  // key head h / (num_v_heads / num_k_heads)
  ConstTensorView q, k;  // [tokens, num_k_heads, head_dim_k]
  ConstTensorView v;     // [tokens, num_v_heads, head_dim_v]
  // f32, natural, not above 0. [num_v_heads]: the same for every token; [tokens, num_v_heads]; or
  // [tokens, num_v_heads, head_dim_k]: one for each channel
  ConstTensorView log_decay;
  ConstTensorView beta;  // f32 [tokens, num_v_heads]; undefined: 1
  float scale = 1;
  bool l2norm = false;   // q and k are divided by sqrt(sum of squares + 1e-6), before the scale
  ConstTensorView skip;  // f32 [num_v_heads]: out += skip v (Mamba2's D); undefined: none
  ConstTensorView z;     // as v: out *= z sigmoid(z), applied after the skip; undefined: none

  StateRows rows;
  TensorView states;  // the pool: f32, f16 or bf16, in the order `order`, a slot contiguous
  StateOrder order = StateOrder::kValueKey;
  // Whether the state behind a row's last token is written to its slot. A verify step sets it to
  // false
  bool store = true;
  DraftSteps draft;
  // [chunks, ...a state]: the state before each chunk, row by row; undefined: not kept
  TensorView chunk_states;
  int32_t chunk_size = 64;
  ChunkGrid chunk_grid = ChunkGrid::kRow;

  TensorView out;  // [tokens, num_v_heads, head_dim_v], f32, f16 or bf16
  CallOptions options;
};

/// Computed in f32. A row's bits depend only on its own tokens, its state and the form; not on
/// other rows, threads or the instruction set. A prefill in pieces gives the bits of the whole
/// prefill if the pool is f32 and, for the chunked form, if the pieces are whole chunks. The two
/// forms agree within their bounds. Not ok: nothing is written.
Status linear_attention(const LinearAttention& call) noexcept;

/// Computes the decays and weights of a recurrence from the outputs of a model's projections. For x
/// above 20, softplus(x) is x.
struct DecayGate {
  enum class Kind : uint8_t {
    kSoftplus,    // log_decay = -exp(a_log) softplus(x + dt_bias)                    GDN, KDA
    kLowerBound,  // log_decay = lower_bound sigmoid(exp(a_log) (x + dt_bias))        KDA
    kStep,        // beta = softplus(x + dt_bias), log_decay = a beta                 Mamba2
  };
  Kind kind = Kind::kSoftplus;
  // [tokens, num_v_heads]; or, with one decay per channel (not kStep), [tokens, num_v_heads,
  // head_dim_k] with contiguous channels; f32, f16 or bf16
  ConstTensorView x;
  ConstTensorView a_log;    // f32 [num_v_heads]; for kStep it is a itself, not its logarithm
  ConstTensorView dt_bias;  // f32, the shape of x without tokens; undefined: 0
  float lower_bound = 0;    // for kLowerBound, below 0
  ConstTensorView
      b;  // [tokens, num_v_heads]: beta = sigmoid(b); undefined: no beta. kStep takes none

  TensorView log_decay;  // f32, the shape of x
  TensorView beta;       // f32 [tokens, num_v_heads], if b is given or for kStep; else undefined
};

/// Each number is computed in double and rounded to f32, with the same bits on every machine. For
/// kStep beta and log_decay come from one step, and each is rounded by itself. Not ok: nothing is
/// written.
Status decay_gate(const DecayGate& gate) noexcept;

/// Lightning's decay per head, slope > 0. If num_heads is a power of two, the slope of head h is
/// 2^(-8 (h + 1) / num_heads). Else the heads have the slopes for the next lower power of two,
/// followed by every second slope for twice that number. All are multiplied by 1 - layer /
/// (num_layers - 1) + 1e-5, or by 1 + 1e-5 if there is one layer. out: [num_heads].
Status lightning_slopes(int32_t layer, int32_t num_layers, std::span<float> out) noexcept;

/// A causal convolution of each channel with the tokens before it:
///
///   y_t = act(bias + sum_{i < width} weight_i x_{t - width + 1 + i})
///
/// The slot of a row holds the width - 1 inputs before the row's first token, oldest first; inputs
/// are x, before bias and activation.
struct CausalConv1d {
  enum class Activation : uint8_t { kNone, kSilu };

  // f32, f16 or bf16, any strides
  ConstTensorView x;       // [tokens, dim]
  ConstTensorView weight;  // [dim, width], 2 <= width <= 8
  ConstTensorView bias;    // [dim]; undefined: 0
  Activation activation = Activation::kNone;
  StateRows rows;
  // [slots, dim, width - 1], any strides, x's dtype. Afterwards it holds the last width - 1 inputs
  // of the row. That holds for a verify step too; for a tree the inputs are those of all its
  // tokens, in order
  TensorView states;
  // Windows [rows, steps, dim, width - 1], any strides: the inputs that a token behind this one
  // would see. A token of a tree sees its path: itself, its parent, the parent's parent, ..., then
  // the slot. A tree may be given without windows
  DraftSteps draft;
  TensorView out;  // [tokens, dim], x's dtype, any strides
  CallOptions options;
};

/// Computed in f32: the bias first, then each product, rounded, from the oldest input on; the
/// activation is rounded to f32 once. The bits do not depend on the batch, the threads or the
/// machine, and a prefill in pieces gives those of the whole prefill. A row without tokens leaves
/// its slot unchanged. Not ok: nothing is written.
Status causal_conv1d(const CausalConv1d& call) noexcept;

/// Computes the parents of a tree from each token's first child and next sibling, [rows, steps]
/// each, -1 if there is none. A row's first token is its root; the root's parent is 0. Siblings may
/// come in any order. mask.tree: an id is no token of the row behind its parent; a token has two
/// parents or none; the root has a sibling. Not ok: nothing is written.
Status tree_parents(std::span<const int32_t> first_child, std::span<const int32_t> next_sibling,
                    int64_t steps, std::span<int32_t> parents) noexcept;

/// Mamba2's chunks: an entry for each run of tokens of one row inside one chunk of the batch.
/// indices: the chunk; offsets: where in the chunk the run begins. Example: chunks of 4, rows of 3
/// and 2 tokens give the runs (0, 0), (0, 3), (1, 0).
struct ChunkList {
  int64_t size = 0;  // number of entries, also if the lists are too short
  std::span<int32_t> indices, offsets;
};
/// Rows without tokens have no entry. input.memory: the lists are too short; size then says what
/// they need. Not ok: nothing except size is written.
Status chunk_list(std::span<const int32_t> cu_seqlens_q, int32_t chunk_size,
                  ChunkList* list) noexcept;

}  // namespace shadowgraph
