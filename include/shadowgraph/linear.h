// Linear attention: a state instead of a cache. Every head keeps a matrix S of head_dim_v rows and
// head_dim_k columns; a token lets it decay, adds to it, and reads it:
//
//   S := S diag(exp(log_decay))
//   u := beta v                     Rule::kAdd    (Mamba2, Lightning)
//   u := beta (v - S k)             Rule::kDelta  (Gated DeltaNet, Kimi Delta Attention)
//   S := S + u k^T
//   out := scale S q
//
// so the token itself counts, with weight 1, and the delta rule reads the old value after the
// decay. Mamba2 is q = C, k = B, v = x, beta = dt; Lightning's log_decay is -slope of its head.
// What makes decays and weights of a model's projections is a DecayGate; what stands before it, a
// CausalConv1d.
//
// Requests are rows over packed tokens; the state of each lives in a slot of a pool. Formulas and
// layouts: spec backends-flashinfer-triton-linear-sparse, sections 7 and 11.10 to 11.12.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// What a row whose state index is -1 gets.
enum class PadRow : uint8_t {
  kSkip,      // nothing: no read, no write, out keeps what it holds
  kZeroOut,   // out 0, nothing else
  kFromZero,  // what a state of zeros gives; no slot is written
};

/// Which tokens belong to which request, and where its state lives.
struct StateRows {
  std::span<const int32_t> cu_seqlens_q;   // [rows + 1], from 0, not decreasing
  std::span<const int32_t> state_indices;  // [rows] slots, or -1: see PadRow
  // [rows]; 0: starts from zero, whatever the slot holds, which is then written over. Empty: every
  // row has one
  std::span<const uint8_t> has_initial_state;
  PadRow pad = PadRow::kSkip;

  int64_t rows() const { return static_cast<int64_t>(state_indices.size()); }
  int32_t slot(int64_t row) const { return state_indices[static_cast<size_t>(row)]; }
  int64_t begin(int64_t row) const { return cu_seqlens_q[static_cast<size_t>(row)]; }
  /// Are its tokens computed, from a slot or from zero?
  bool is_computed(int64_t row) const { return slot(row) >= 0 || pad == PadRow::kFromZero; }
  int64_t tokens(int64_t row) const { return begin(row + 1) - begin(row); }
  bool starts_from_slot(int64_t row) const {
    return slot(row) >= 0 &&
           (has_initial_state.empty() || has_initial_state[static_cast<size_t>(row)] != 0);
  }
};

/// A verify step keeps the state behind every draft token, and a tree starts each from its
/// parent's.
struct DraftSteps {
  // [rows, steps, ...the state of a slot]: row r, token j of it stands at [indices[r], j]; what is
  // beyond a row's tokens is not touched. Undefined: no state is kept
  TensorView states;
  std::span<const int32_t> indices;  // [rows]; empty: r
  // Are the states of rows without a slot kept, too (GDN), or not (Mamba2)? Of PadRow::kFromZero
  bool of_padding = true;
  // [tokens]: of a row's token j > 0 the earlier token of the row that it follows, 0 <= parent < j;
  // what stands at j = 0 is not looked at. Empty: a chain
  std::span<const int32_t> parents;

  int64_t place(int64_t row) const {
    return indices.empty() ? row : indices[static_cast<size_t>(row)];
  }
  /// Is the state behind each token of that row kept?
  bool keeps(bool has_slot) const { return states.defined() && (has_slot || of_padding); }
};

/// Where the chunks of a prefill begin, whose states a prefix cache keeps.
enum class ChunkGrid : uint8_t {
  kRow,     // at multiples of the chunk's size from each row's first token (GDN, KDA)
  kTokens,  // at multiples of it from the batch's first token, and at every row's (Mamba2)
};

struct LinearAttention {
  enum class Rule : uint8_t { kAdd, kDelta };
  /// How the tokens of a row are taken.
  enum class Form : uint8_t {
    kRecurrent,  // one after the other
    kChunked,    // 32 together, from the row's first on (16 of channels' own decays): prefills
  };
  enum class StateOrder : uint8_t {
    kValueKey,  // [slots, num_v_heads, head_dim_v, head_dim_k]: Mamba2, GDN, KDA
    kKeyValue,  // [slots, num_v_heads, head_dim_k, head_dim_v]: Lightning
  };

  Rule rule = Rule::kAdd;
  Form form = Form::kRecurrent;  // kChunked has no draft
  // f32, f16 or bf16, the last dim contiguous. num_k_heads divides num_v_heads: value head h goes
  // with key head h / (num_v_heads / num_k_heads)
  ConstTensorView q, k;  // [tokens, num_k_heads, head_dim_k]
  ConstTensorView v;     // [tokens, num_v_heads, head_dim_v]
  // f32, natural, not above 0: [num_v_heads] the same at every token, [tokens, num_v_heads], or
  // [tokens, num_v_heads, head_dim_k] a channel's own
  ConstTensorView log_decay;
  ConstTensorView beta;  // f32 [tokens, num_v_heads]; undefined: 1
  float scale = 1;
  bool l2norm = false;   // q and k are divided by sqrt(sum of squares + 1e-6) before the scale
  ConstTensorView skip;  // f32 [num_v_heads]: out += skip v (Mamba2's D); undefined: none
  ConstTensorView z;     // as v: out *= z sigmoid(z), after the skip; undefined: none

  StateRows rows;
  TensorView states;  // the pool, f32, f16 or bf16, as `order` says, a slot contiguous
  StateOrder order = StateOrder::kValueKey;
  // Is the state behind a row's last token written to its slot? Not by a verify step
  bool store = true;
  DraftSteps draft;
  // [chunks, ...a state]: the state before each chunk of every row in turn; undefined: not kept
  TensorView chunk_states;
  int32_t chunk_size = 64;
  ChunkGrid chunk_grid = ChunkGrid::kRow;

  TensorView out;  // [tokens, num_v_heads, head_dim_v], f32, f16 or bf16
  CallOptions options;
};

/// In f32: a row's bits are a function of its own tokens, its state and the form, never of other
/// rows, of threads or of the instruction set. A prefill in pieces gives the bits of the whole
/// where the pool is f32 and, of the chunked form, where the pieces are whole chunks. The forms
/// agree to their bounds. Not ok: nothing is written.
Status linear_attention(const LinearAttention& call) noexcept;

/// The decays and weights of a recurrence, of what a model's projections give. softplus(x) is x
/// above 20.
struct DecayGate {
  enum class Kind : uint8_t {
    kSoftplus,    // log_decay = -exp(a_log) softplus(x + dt_bias)                    GDN, KDA
    kLowerBound,  // log_decay = lower_bound sigmoid(exp(a_log) (x + dt_bias))        KDA
    kStep,        // beta = softplus(x + dt_bias), log_decay = a beta                 Mamba2
  };
  Kind kind = Kind::kSoftplus;
  // [tokens, num_v_heads] or, of channels (not of kStep), [tokens, num_v_heads, head_dim_k], these
  // contiguous; f32, f16 or bf16
  ConstTensorView x;
  ConstTensorView a_log;    // f32 [num_v_heads]; of kStep it is a itself, not its logarithm
  ConstTensorView dt_bias;  // f32, x's shape without tokens; undefined: 0
  float lower_bound = 0;    // of kLowerBound, below 0
  ConstTensorView b;  // [tokens, num_v_heads]: beta = sigmoid(b); undefined, and of kStep: none

  TensorView log_decay;  // f32, as x
  TensorView beta;  // f32 [tokens, num_v_heads], where there is b, and of kStep; else undefined
};

/// Each number is computed in double and rounded to f32, alike on every machine; beta and log_decay
/// of kStep come of one step, each rounded by itself. Not ok: nothing is written.
Status decay_gate(const DecayGate& gate) noexcept;

/// Lightning's decay per head, slope > 0: for num_heads a power of two 2^(-8 (h + 1) / num_heads),
/// else those of the power of two below it, followed by every second one of twice that. Scaled by
/// 1 - layer / (num_layers - 1) + 1e-5, or 1 + 1e-5 where there is one layer. out: [num_heads].
Status lightning_slopes(int32_t layer, int32_t num_layers, std::span<float> out) noexcept;

/// A causal convolution of each channel with the tokens before it:
///
///   y_t = act(bias + sum_{i < width} weight_i x_{t - width + 1 + i})
///
/// The slot of a row holds the width - 1 inputs before its first token, oldest first, as they came:
/// before bias and activation.
struct CausalConv1d {
  enum class Activation : uint8_t { kNone, kSilu };

  // f32, f16 or bf16, any strides
  ConstTensorView x;       // [tokens, dim]
  ConstTensorView weight;  // [dim, width], 2 <= width <= 8
  ConstTensorView bias;    // [dim]; undefined: 0
  Activation activation = Activation::kNone;
  StateRows rows;
  // [slots, dim, width - 1], any strides, x's dtype: becomes the last width - 1 inputs of the row,
  // of a verify step too, and of a tree: those of all its tokens in their order
  TensorView states;
  // Windows [rows, steps, dim, width - 1], any strides: the inputs that the token after it would
  // see. A token of a tree sees its path: itself, its parent, that one's parent, then the slot. A
  // tree needs no windows
  DraftSteps draft;
  TensorView out;  // [tokens, dim], x's dtype, any strides
  CallOptions options;
};

/// In f32, the bias first, then each product, rounded, from the oldest input on; the activation is
/// rounded to f32 once. The same bits whatever the batch, the threads and the machine, and a
/// prefill in pieces gives those of the whole. A row without tokens leaves its slot alone. Not ok:
/// nothing is written.
Status causal_conv1d(const CausalConv1d& call) noexcept;

/// The parents of a tree that says of each token its first child and its next sibling, -1 where
/// there is none: [rows, steps] each, a row's first token its root, whose parent is 0. Siblings may
/// come in any order. mask.tree: an id that is no token of the row behind its parent, a token of
/// two parents or of none, a root with a sibling. Not ok: nothing is written.
Status tree_parents(std::span<const int32_t> first_child, std::span<const int32_t> next_sibling,
                    int64_t steps, std::span<int32_t> parents) noexcept;

/// Mamba2's chunks: each run of tokens of one row inside one chunk of the batch. indices: which
/// chunk, offsets: where in it the run begins.
struct ChunkList {
  int64_t size = 0;  // entries, also where the room was too small
  std::span<int32_t> indices, offsets;
};
/// Rows without tokens have no entry. input.memory: the lists are too short; size says what they
/// need. Not ok: nothing else is written.
Status chunk_list(std::span<const int32_t> cu_seqlens_q, int32_t chunk_size,
                  ChunkList* list) noexcept;

}  // namespace shadowgraph
