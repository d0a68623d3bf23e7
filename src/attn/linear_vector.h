// LinearVector: one recorded case of somebody else's recurrent kernel, as plain data: the call that
// it answers, what the kernel left, and the float64 result beside it. Conventions:
// tests/data/README.md. src/io reads them, src/check judges them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attn/dual_chunk.h"
#include "attn/indexer_vector.h"
#include "shadowgraph/attention.h"
#include "shadowgraph/linear.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

/// A recurrence, and where its decays and weights come from raw projections, what makes them: then
/// call.log_decay (and call.beta, where the gate gives it) are undefined. What a call writes (out,
/// states, draft.states, chunk_states; a gate's log_decay and beta) has shape and dtype as recorded
/// and no memory: it is the judge's. So it is in the other kinds of calls.
struct Recurrence {
  LinearAttention call;
  std::optional<DecayGate> gate;
};

/// x / sqrt(sum of squares + eps) of each row.
struct L2Norm {
  ConstTensorView x;  // [rows, dim]
  float eps = 1e-6F;
};

/// Slopes of models: [layers, heads] each.
struct SlopeTables {
  std::vector<ConstTensorView> recorded, reference;
};

/// Chunk lists of batches.
struct ChunkLists {
  struct One {
    std::span<const int32_t> cu_seqlens_q;
    int32_t chunk_size;
    std::span<const int32_t> indices, offsets;  // as recorded
  };
  std::vector<One> batches;
};

/// Dual-chunk attention over packed keys, the prefix's first. scales: sm_scale times each row's
/// factor, in f32.
struct DualChunkCase {
  DualChunkCall<RaggedAttention> attention;
  int32_t original_max_position = 0;  // 0: no factors
  std::vector<int32_t> orig_lens;     // [rows] that the factors are of
  ConstTensorView recorded_factors;   // f64 [rows]
};

using LinearCall =
    std::variant<Recurrence, CausalConv1d, DecayGate, L2Norm, SlopeTables, ChunkLists,
                 SparseAttention, PackLatents, IndexerCase, CompressCase, DualChunkCase>;

/// What a case holds of a result; undefined where it does not.
struct LinearArrays {
  ConstTensorView out;     // as the call's; of L2Norm [rows, dim]
  ConstTensorView states;  // recorded: the whole pool afterwards; reference: [rows, ...a state]
  ConstTensorView draft_states;  // [rows, steps, ...a state]; recorded: with the steps beyond
  ConstTensorView chunk_states;  // [chunks, ...a state]
  ConstTensorView log_decay, beta;
  // Of chosen keys
  ConstTensorView lse;  // [tokens, heads], natural
  // Of packed latents, recorded: states is the pool afterwards, out what it is read as; reference:
  // out what it stands for
  ConstTensorView scales;  // [tokens, groups], f32 or as bytes; reference: f64 or as bytes
  ConstTensorView codes;   // u8 [tokens, ...]: e4m3, before they were stored
  ConstTensorView rope;    // [tokens, ...], likewise
};

struct LinearVector {
  std::string id;             // "case007"
  std::string system;         // as in the file: "gdn", "kda", "conv", "mamba2", "dsa", ...
  std::string kind;           // "prefill", "verify_tree", ...
  DType dtype = DType::kF32;  // of the activations
  LinearCall call;
  ConstTensorView states_before;        // the pool before the call
  ConstTensorView draft_states_before;  // undefined: nothing is known of what was there
  std::vector<uint8_t> out_valid;       // [tokens]; empty: all; 0: the kernel left it undefined
  // Beside stored decays and weights (call.log_decay without a gate) reference.log_decay and .beta
  // are those before rounding, and the rest of the reference was computed with them.
  LinearArrays recorded, reference;
  // Which of the call's chunks each of recorded.chunk_states is; empty: all of them
  std::vector<int32_t> recorded_chunks;
  // Parents that a kernel derived from (first child, next sibling), [rows, steps] each; else empty
  std::span<const int32_t> first_child, next_sibling, recorded_parents;
  // Whose arithmetic: a line of src/check/linear_arithmetics.inc, indexer_arithmetics.inc or, of
  // chosen keys, arithmetics.inc
  std::string kernel;
  // Not empty: the recorded kernel is known to depart from the recurrence here, and how
  std::string departs;
  // What it computes instead, where the file has that: as reference.out
  ConstTensorView departed_out;
  std::vector<std::shared_ptr<const void>> storage;  // keeps the memory behind the views
};

}  // namespace shadowgraph
