// Limits: what metadata is bound for, and ModelConfig: what of it stays the same from step to step.
// Tested by tests/backends/rows_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/layers/layer_kind.h"

namespace shadowgraph {

/// Dual-chunk attention (Qwen-1M). Facts: docs/metadata.md "Dual chunks".
struct DualChunkConfig {
  int32_t chunk_size = 0, local_size = 0;
  // Tokens that the model was trained for; keys of longer requests are stored times a factor. 0: no
  // factor
  int32_t original_max_position = 0;

  constexpr int32_t chunk_len() const { return chunk_size - local_size; }
};

/// How an engine cuts a row's keys into partial results that are merged by their LSE, and which GPU
/// its planner assumes. Facts: docs/metadata.md "FlashInfer", "Triton".
struct SplitConfig {
  // Keys of a chunk, the same for every batch (deterministic inference); 0: the engine's own rule,
  // which depends on the batch and its padding
  int32_t fixed_size = 0;
  bool off = false;           // true: rows are never cut
  int32_t min_size = 128;     // keys of the smallest chunk that FlashInfer's rule takes
  int32_t max_splits = 8;     // parts of a row by Triton's rule
  int32_t num_sms = 132;      // multiprocessors of the GPU (H100, H200)
  int32_t blocks_per_sm = 2;  // blocks of a decode that run at once
};

/// The model: its members stay the same from step to step.
struct ModelConfig {
  int32_t max_context_len = 0;  // tokens of a request, without drafts
  int32_t page_size = 1;        // a power of two
  int32_t max_encoder_len = 0;  // 0: no encoder
  int32_t attention_chunk = 0;  // 0: no local layers
  DualChunkConfig dual_chunk;   // for dual-chunk layers
  // Sliding-window layers have a pool of their own (ForwardBatch::full_to_swa)
  bool swa_pool = false;
  // Decode context parallelism over dcp_size ranks. This rank holds the tokens c of a request with
  // c mod dcp_size = dcp_rank, each at slot / dcp_size of its pool. page_size is the pool's; a page
  // of req_to_token has dcp_size times as many tokens
  int32_t dcp_rank = 0, dcp_size = 1;
  int32_t topk = 1, num_steps = 0, num_draft_tokens = 0;  // speculation; 0 steps: none
  std::vector<LayerKind> layers;                          // LayerIo::kind indexes them
  // How an engine pads a row of a graph: get_cuda_graph_seq_len_fill_value
  int32_t seq_len_fill = 1;
  // Two-batch overlap: if one half of the prompts would have less than this share of the tokens,
  // the cut goes through the middle, inside a request; 0: never. At most 0.5
  float two_chunk_below = 0.0f;
  // The first launches of a step gather page tables from req_to_token on the device; fill does not
  // make them. Padding then has row 0
  bool in_graph_tables = false;
  // The MLA layers of a prefill attend over ragged K and V, and to the prefix in chunks of this
  // many tokens of all requests together. If all keys together are no more than that, one call has
  // them all. 0: the layers attend over pages, as in every other step
  int32_t prefix_chunk_tokens = 0;
  // Prefills leave snapshots of recurrent states (ForwardBatch::states.track_slots)
  bool track_states = false;
  // A prefill attends to its own new tokens over ragged K and V and to the prefix over the cache,
  // and merges the two results (FlashInfer's use_ragged). It stores its tokens after that
  bool ragged_prefill = false;
  SplitConfig split;
};

/// Limits say what metadata is bound for: the capacity of every buffer, and what a graph pins.
/// Eager steps are bound for exactly what the batch needs, a graph for what any batch of its bucket
/// may need.
struct Limits {
  ModelConfig model;
  ForwardMode mode = ForwardMode::kDecode;
  int32_t rows = 0;         // requests: the bucket
  int32_t tokens = 0;       // query tokens of all requests
  int32_t max_q_len = 1;    // queries of one request, at most; baked into launches
  int32_t max_kv_len = 0;   // keys of one request, drafts included, at most: the width of tables
  int64_t sum_kv_lens = 0;  // keys of all requests; 0: of a bucket
  int32_t step = 0;         // step of a draft decode
  // Tokens of one request from its first delimiter on; 0: no batch has items
  int32_t max_items_len = 0;
  // Two-batch overlap: requests and tokens of the first half; 0: nothing to split
  int32_t split_rows = 0, split_tokens = 0;
  bool split_request = false;  // request split_rows is in both halves
  int32_t first_row = 0;       // in a half: index of its first request in the step

  /// For any batch of a bucket, not for exactly one.
  bool is_bucket() const { return rows > 0 && sum_kv_lens == 0; }
  /// Keys of all requests, at most.
  int64_t most_keys() const { return is_bucket() ? int64_t{rows} * max_kv_len : sum_kv_lens; }

  /// Exactly what the batch needs.
  static Limits exact(const ForwardBatch& batch, const ModelConfig& model);
  /// A bucket of `rows` requests, each with q_len queries (draft extend: at most). step: of a draft
  /// decode.
  static Limits bucket(ForwardMode mode, int32_t rows, int32_t q_len, const ModelConfig& model,
                       int32_t step = 0);
};

}  // namespace shadowgraph
