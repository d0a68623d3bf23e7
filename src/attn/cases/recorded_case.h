// RecordedCase: one recorded case of somebody else's kernel, as plain data: the public call that it
// answers, what the kernel left, and the float64 result beside it. src/io/recorded reads cases,
// src/check/recorded judges them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attn/dual_chunk.h"
#include "attn/result_axes.h"
#include "attn/visit/any_call.h"
#include "shadowgraph/attention/promises.h"
#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Keys that the recorded kernel stored before it attended.
struct AppendedKeys {
  StoreKv store;                     // into the cache as it was before: only copies are written
  ConstTensorView k_after, v_after;  // NHD: the whole cache as the kernel left it
};

/// One batch of attention, in one call or in several with one answer. calls[0] is the case's call.
/// Inputs only: out and lse of a call are not set.
struct AttentionCalls {
  std::vector<AnyCall> calls;
  std::optional<AppendedKeys> appended;  // paged calls read the cache that our store makes
  ConstTensorView latents_ref;  // [slots, head_dim]: packed latents of calls[0].keys as they are
                                // read; may be undefined
};

/// Dual-chunk attention over packed keys, the prefix's first. scales: sm_scale times each row's
/// factor, in f32.
struct DualChunkCase {
  DualChunkCall<RaggedAttention> attention;
  int32_t original_max_position = 0;  // 0: no factors
  std::vector<int32_t> orig_lens;     // [rows] lengths that the factors belong to
  ConstTensorView recorded_factors;   // f64 [rows]
};

// In the calls below, arrays that a call writes have shape and dtype as recorded and no memory: the
// judge gives them memory.

/// A recurrence, and the gate that makes its decays and weights where they come from raw
/// projections: then call.log_decay (and call.beta, where the gate gives it) are undefined.
struct Recurrence {
  LinearAttention call;
  std::optional<DecayGate> gate;
  // Which of the call's chunks each of the recorded chunk_states is; empty: all of them
  std::vector<int32_t> recorded_chunks;
};

/// tree: parents that a kernel derived from (first child, next sibling), [rows, steps] each; else
/// empty.
struct ConvCase {
  CausalConv1d call;
  struct {
    std::span<const int32_t> first_child, next_sibling, parents;
  } tree;
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
    int32_t chunk_size = 0;
    std::span<const int32_t> indices, offsets;  // as recorded
  };
  std::vector<One> batches;
};

struct ActQuantCase {
  ActQuant call;
  ConstTensorView y, scale;   // as recorded
  ConstTensorView scale_ref;  // before rounding to f32
};

/// Keys stored, then gathered from the pages as recorded.
struct IndexKeysCase {
  StoreIndexKeys store;
  GatherIndexKeys gather;                    // from the pages that were recorded
  ConstTensorView before, after, reference;  // u8 [pages, 8448]
  ConstTensorView k, k_scale;                // as gathered
};

struct IndexerLogitsCase {
  IndexerLogits call;
  ConstTensorView logits;     // as recorded; keys that no token sees may have any logit
  ConstTensorView reference;  // of the keys that are seen
  ConstTensorView topk_ref;   // i32 [tokens, topk]: the choice among the reference
};

struct TopkTransformCase {
  TransformIndices transform;
  ConstTensorView out, out_ref;
  CompactIndices compact;  // of the recorded indices
  // With a few cells behind them
  std::span<const int32_t> kv_indices, kv_indices_ref;
};

/// A kind of call: each alternative has one judge.
using RecordedCall =
    std::variant<AttentionCalls, DualChunkCase, Recurrence, ConvCase, DecayGate, L2Norm,
                 SlopeTables, ChunkLists, PackLatents, ActQuantCase, IndexKeysCase,
                 IndexerLogitsCase, TopkTransformCase, Compress, PoolNormRope>;

/// Rows that must have the bits of another case's first rows: the same q, keys and values.
struct SameRows {
  std::string of;                      // that case
  int64_t from = 0, count = 0;         // rows of this one
  ConstTensorView out = {}, lse = {};  // that case's, [>= count, ...]; lse may be undefined
  std::vector<AnyCall> calls = {};     // that case's call; none where keys are appended first
};

/// What a kernel, or the float64 computation beside it, left of a call; undefined where the case
/// does not hold it.
struct Recorded {
  std::string name = "gpu";  // "gpu", "mask_merged": the tensor it comes from, without _out / _lse
  // Whose arithmetic: a line of arithmetics.inc, recurrent_arithmetics.inc or
  // indexer_arithmetics.inc
  std::string kernel = {};
  size_t call = 0;  // index into AttentionCalls::calls
  // Not empty: the kernel departs from the call here, on purpose or not, and how ("sglang#26513
  // ...")
  std::string known_wrong = {};
  ConstTensorView out = {};  // as the call's; of L2Norm [rows, dim]

  // Attention
  ConstTensorView lse = {};  // [rows, num_qo_heads] by strides
  LseBase lse_base = LseBase::kNatural;
  LseSink lse_sink = LseSink::kExcluded;
  ResultAxes axes = {};             // of out and lse in the file
  ConstTensorView max_logits = {};  // [rows, num_qo_heads], natural
  EmptyRowMark empty_mark = {};
  DeclaredArithmetic declared = {};

  // Recurrences, convolutions, compressors. Beside stored decays and weights (call.log_decay
  // without a gate) the reference's log_decay and beta are those before rounding, and the rest of
  // the reference was computed with them.
  ConstTensorView states =
      {};  // recorded: the whole pool afterwards; reference: [rows, ...a state]
  ConstTensorView draft_states = {};  // [rows, steps, ...a state]; recorded: with the steps beyond
  ConstTensorView chunk_states = {};  // [chunks, ...a state]
  ConstTensorView log_decay = {}, beta = {};

  // Packed latents. Recorded: states is the pool afterwards, out the values read from it;
  // reference: out is the values that it stands for.
  ConstTensorView scales = {};  // [tokens, groups], f32 or as bytes; reference: f64 or as bytes
  ConstTensorView codes = {};   // u8 [tokens, ...]: e4m3, before they were stored
  ConstTensorView rope = {};    // [tokens, ...], likewise
};

struct RecordedCase {
  std::string id;             // "case007"
  std::string system;         // as in the file: "gdn", "dsa", ...; empty where cases name none
  std::string kind;           // as in the file: "decode", "swa_merge", "verify_tree", ...
  DType dtype = DType::kF32;  // of q, or of the activations
  RecordedCall call;
  std::vector<Recorded> recorded;     // one, except of attention; empty: no kernel ran
  std::optional<SameRows> same_rows;  // of attention
  Recorded reference;                 // of attention: of calls[0], f32 or f64; may be undefined
  ConstTensorView states_before;      // the pool of states before the call
  std::vector<uint8_t> out_valid;     // [tokens]; empty: all; 0: the kernel left it undefined
  std::vector<std::shared_ptr<const void>> storage;  // keeps the memory behind the views

  AttentionCalls& attention() { return std::get<AttentionCalls>(call); }
  const AttentionCalls& attention() const { return std::get<AttentionCalls>(call); }
  Recorded& gpu() { return recorded[0]; }
  const Recorded& gpu() const { return recorded[0]; }
};

}  // namespace shadowgraph
