// DeepSeek-V4's compressor. It pools `ratio` tokens into one, each channel by a softmax of its own:
//
//   pooled_c = sum_i p_ic kv_ic,   p_c = softmax over i of score_ic + ape_ic
//
// Ratio 128 pools the 128 tokens of a block; a row is [kv | score]. Ratio 4 pools 8 tokens: from
// the block before it takes kv and score `a`, from the block itself kv and score `b`; a row is
// [kv_a | kv_b | score_a | score_b]. Other ratios work as 128. An RMS norm follows, and a rotation
// of the last channels.
// Facts: docs/metadata.md "DeepSeek-V4"; recorded kernels: tests/data/README.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// The meaning of a ratio: ratio 4 overlaps the block before, no other ratio does.
struct CompressShape {
  int32_t ratio = 4;  // 2 to 128; engines use 4 and 128

  bool overlaps() const { return ratio == 4; }
  int64_t window() const { return overlaps() ? 2 * int64_t{ratio} : ratio; }  // tokens pooled
  int64_t halves() const {
    return overlaps() ? 2 : 1;
  }  // how many kinds of kv, and of score, a row has
  int64_t channels() const { return 2 * halves(); }  // width of a row, in units of head_dim
};

/// Adds tokens to the compressor state of their requests; a token that ends a block yields a
/// compressed token. Requests are rows over packed tokens; tokens are taken in order.
struct Compress {
  CompressShape shape;
  ConstTensorView kv_score;  // [tokens, channels * head_dim], f32, f16 or bf16, contiguous
  ConstTensorView ape;       // f32 [window, head_dim], contiguous
  std::span<const int32_t> cu_seqlens_q;  // [rows + 1], from 0
  std::span<const int32_t> seq_lens;      // [tokens], from 1: the token itself is counted
  // [tokens] pages of the state: `indices` names the page of the token's block, `extra` the page of
  // the block before. `extra` is read only where a token ends a block that overlaps the one before.
  // A token whose page is below first_page is dropped
  std::span<const int32_t> indices, extra;
  TensorView state;  // f32 [pages, ratio, channels * head_dim], a row contiguous
  TensorView out;    // [tokens, head_dim], f32, f16 or bf16, contiguous
  CallOptions options;
  // Set it to 1 where page 0 is for padding; then several tokens may name page 0
  int32_t first_page = 0;

  int64_t rows() const { return static_cast<int64_t>(cu_seqlens_q.size()) - 1; }
  bool drops(int64_t token) const {
    return indices[static_cast<size_t>(token)] < std::max(0, first_page);
  }
  int64_t seq_len(int64_t token) const { return seq_lens[static_cast<size_t>(token)]; }
  /// True if the token ends a block. If not, its row of out keeps what it holds.
  bool emits(int64_t token) const { return seq_len(token) % shape.ratio == 0; }
  /// True if the token ends a block that is pooled together with a block before it.
  bool reads_extra(int64_t token) const {
    return emits(token) && shape.overlaps() && seq_len(token) > shape.ratio;
  }
};

/// The row of token t goes to row (seq_len - 1) % ratio of page indices[t]; f16 and bf16 values are
/// stored as f32. Pooling is computed in double and rounded once, so the bits do not depend on the
/// batch, the threads or the machine. slot.duplicate: two requests write one page, or one reads a
/// page that another writes. Not ok: nothing is written.
Status compress(const Compress& call) noexcept;

/// Pools windows that are gathered already, then applies norm and rotation.
struct PoolNormRope {
  CompressShape shape;
  ConstTensorView kv_score;  // [blocks, window, channels * head_dim], f32, f16 or bf16, contiguous
  // f32 [ratio, halves * head_dim], contiguous: the entries of token i of a block, for `a` and for
  // `b`
  ConstTensorView ape;
  ConstTensorView weight;  // f32 [head_dim], contiguous
  float eps = 1e-6F;
  ConstTensorView freqs;  // f32 [blocks, rope_dim]: (cos, sin) of each pair; rope_dim even
  TensorView out;         // [blocks, head_dim], f32, f16 or bf16, contiguous
  CallOptions options;
};

/// out = pooled / sqrt(mean of squares + eps) * weight; then each pair (x, y) of the last rope_dim
/// values becomes (x cos - y sin, x sin + y cos). A score of -inf removes a token from its channel;
/// a channel whose tokens are all removed is 0. Computed in double, rounded once. Not ok: nothing
/// is written.
Status pool_norm_rope(const PoolNormRope& call) noexcept;

/// Norm and rotation of tokens that are pooled already; as pool_norm_rope otherwise.
struct NormRope {
  ConstTensorView x;       // [blocks, head_dim], f32, f16 or bf16, contiguous
  ConstTensorView weight;  // as in PoolNormRope
  float eps = 1e-6F;
  ConstTensorView freqs;
  TensorView out;
  CallOptions options;
};
Status norm_rope(const NormRope& call) noexcept;

}  // namespace shadowgraph
