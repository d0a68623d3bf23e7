// A layer of DeepSeek-V4: a query sees the latents of a window of tokens, and behind them blocks of
// earlier tokens, each compressed to one latent. This header describes the layer and the tensors
// that a step gives it; compress.h and sparse.h compute it. Facts: docs/metadata.md "DeepSeek-V4".
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/sparse.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// The memory of latents and of the compressor's states.
enum class V4Pools : uint8_t {
  kPaged,    // tokens lie by slot, blocks and states by page of tokens
  kUnified,  // one pool: a ring of tokens for each row of req_to_token, then blocks by page;
             // states are rings, too
};

struct V4Layer {
  int32_t num_heads = 1;
  int32_t window = 128;      // tokens that a query sees uncompressed, itself included
  int32_t ratio = 0;         // tokens per block, 2 to 128; 0: no blocks
  int32_t index_topk = 512;  // ratio 4: blocks that a query sees, at most; kUnified: it sees all
  int32_t head_dim = 512, rope_dim = 64;
  LatentLayout layout = LatentLayout::kV4;
  V4Pools pools = V4Pools::kPaged;
  int32_t rows = 0;  // kUnified: rows of req_to_token, row 0 included
  float sm_scale = 0;
  float eps = 1e-6F;  // for the norm of the blocks

  bool has_blocks() const { return ratio > 0; }
  CompressShape shape() const { return {.ratio = ratio}; }
  /// Floats per token in the state of the compressor.
  int64_t state_width() const { return shape().channels() * head_dim; }
  /// Tokens in a request's ring: those that the first of `drafts` tokens sees, and the drafts
  /// behind it.
  int32_t ring(int32_t drafts) const { return window + std::max(1, drafts) - 1; }
  /// Blocks whose states a request needs at the same time: the block of the first of `drafts`
  /// tokens, the one before it if blocks overlap, and the blocks that the other drafts reach.
  int32_t live_blocks(int32_t drafts) const {
    return 1 + (shape().overlaps() ? 1 : 0) + (std::max(1, drafts) - 1 + ratio - 1) / ratio;
  }
  /// kPaged: the same number for each page of page_size tokens.
  int32_t page_states(int32_t page_size, int32_t drafts) const {
    return std::min(page_size / ratio, live_blocks(drafts));
  }
};

/// The tensors of one V4 layer on the device. LayerIo::q and out are [tokens, num_heads, head_dim].
/// A layer without blocks has only latents, tokens and sinks.
struct V4Tensors {
  ConstTensorView latents;      // f32 [tokens, head_dim], as they will be stored
  ConstTensorView kv_score;     // f32 [tokens, state_width]: Compress::kv_score
  ConstTensorView ape, weight;  // Compress::ape; the norm's weight, f32 [head_dim]
  ConstTensorView
      freqs;  // f32 [positions, rope_dim]: (cos, sin) at the position of a block's first token
  // f32 [tokens, at least the blocks of the longest request]: the indexer's scores of blocks, for
  // kPaged with ratio 4; scores of blocks that no token sees are not read
  ConstTensorView index_scores;
  TensorView state;              // f32 [pages, ratio, state_width]
  WritableLatentPool blocks;     // kPaged only
  WritableLatentPool tokens;     // kUnified: all latents
  std::span<const float> sinks;  // [num_heads] or empty

  /// The part of these tokens. Weights and pools are whole.
  V4Tensors rows(int64_t first, int64_t count) const;
};

}  // namespace shadowgraph
