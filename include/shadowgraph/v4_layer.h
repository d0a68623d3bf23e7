// A layer of DeepSeek-V4: a query sees the latents of a window of tokens, and behind them blocks of
// earlier tokens, each compressed to one latent. What it is, and the tensors that a step brings to
// it. What it computes: compress.h, sparse.h. Source: spec backends-flashinfer-triton-linear-sparse
// 10.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/compress.h"
#include "shadowgraph/sparse.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Where latents and the compressor's states lie.
enum class V4Pools : uint8_t {
  kPaged,    // tokens by their slots, blocks and states by pages of tokens
  kUnified,  // one pool: a ring of tokens for each row of req_to_token, then blocks by pages;
             // states are rings, too
};

struct V4Layer {
  int32_t num_heads = 1;
  int32_t window = 128;      // tokens that a query sees as they are, itself the last
  int32_t ratio = 0;         // tokens of a block, 2 to 128; 0: no blocks
  int32_t index_topk = 512;  // of ratio 4: blocks that a query sees at most; of kUnified all
  int32_t head_dim = 512, rope_dim = 64;
  LatentLayout layout = LatentLayout::kV4;
  V4Pools pools = V4Pools::kPaged;
  int32_t rows = 0;  // of kUnified: rows of req_to_token, row 0 included
  float sm_scale = 0;
  float eps = 1e-6F;  // of the blocks' norm

  bool has_blocks() const { return ratio > 0; }
  CompressShape shape() const { return {.ratio = ratio}; }
  /// Floats of a token in the compressor's state.
  int64_t state_width() const { return shape().channels() * head_dim; }
  /// Tokens of a request's ring: what the first of so many drafts sees, and the drafts behind it.
  int32_t ring(int32_t drafts) const { return window + std::max(1, drafts) - 1; }
  /// Blocks whose states a request must have at a time: the one that the first of so many drafts is
  /// in, the one before that where they overlap, and those that the others reach.
  int32_t live_blocks(int32_t drafts) const {
    return 1 + (shape().overlaps() ? 1 : 0) + (std::max(1, drafts) - 1 + ratio - 1) / ratio;
  }
  /// The same of kPaged, for each page of so many tokens.
  int32_t page_states(int32_t page_size, int32_t drafts) const {
    return std::min(page_size / ratio, live_blocks(drafts));
  }
};

/// One layer's tensors on the device. LayerIo::q and out are [tokens, num_heads, head_dim]. A layer
/// without blocks has the first and the last two alone.
struct V4Tensors {
  ConstTensorView latents;      // f32 [tokens, head_dim], as they are stored
  ConstTensorView kv_score;     // f32 [tokens, state_width]: Compress::kv_score
  ConstTensorView ape, weight;  // Compress's, and f32 [head_dim], of the norm
  ConstTensorView freqs;        // f32 [positions, rope_dim]: (cos, sin) by a block's first token
  // f32 [tokens, blocks of the longest request at least]: what an indexer scores the blocks of
  // kPaged and ratio 4 with; those that no token sees are not looked at
  ConstTensorView index_scores;
  TensorView state;              // f32 [pages, ratio, state_width]
  WritableLatentPool blocks;     // of kPaged
  WritableLatentPool tokens;     // of kUnified all latents
  std::span<const float> sinks;  // [num_heads] or empty
};

}  // namespace shadowgraph
