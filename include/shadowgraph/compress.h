// DeepSeek-V4's compressor: `ratio` tokens become one, channel by channel a softmax pooling:
//
//   pooled_c = sum_i p_ic kv_ic,   p_c = softmax over i of score_ic + ape_ic
//
// Ratio 128 pools the 128 tokens of a block; rows are [kv | score]. Ratio 4 pools 8: of the block
// before the kv and score `a`, of the block itself those named `b`; rows are [kv_a | kv_b | score_a
// | score_b]. Other ratios are as 128. Then RMS norm, and a rotation of the last channels.
// Formulas: spec backends-flashinfer-triton-linear-sparse, section 10; vectors/linear 8.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// What a ratio means: 4 overlaps the block before, no other does.
struct CompressShape {
  int32_t ratio = 4;  // 2 to 128; an engine's are 4 and 128

  bool overlaps() const { return ratio == 4; }
  int64_t window() const { return overlaps() ? 2 * int64_t{ratio} : ratio; }  // tokens pooled
  int64_t halves() const { return overlaps() ? 2 : 1; }  // kinds of kv, and of score
  int64_t channels() const { return 2 * halves(); }      // of a row, in units of head_dim
};

/// Tokens into the state of their requests; each that ends a block gives a compressed one. Requests
/// are rows over packed tokens, which are taken one after the other.
struct Compress {
  CompressShape shape;
  ConstTensorView kv_score;  // [tokens, channels * head_dim], f32, f16 or bf16, contiguous
  ConstTensorView ape;       // f32 [window, head_dim], contiguous
  std::span<const int32_t> cu_seqlens_q;  // [rows + 1], from 0
  std::span<const int32_t> seq_lens;      // [tokens], the token itself counted: from 1
  // [tokens] pages of the state: the token's block, and the block before. The latter is looked at
  // where a token ends a block that overlaps another. A page below first_page drops the token
  std::span<const int32_t> indices, extra;
  TensorView state;  // f32 [pages, ratio, channels * head_dim], a row contiguous
  TensorView out;    // [tokens, head_dim], f32, f16 or bf16, contiguous
  CallOptions options;
  // 1, where page 0 is for padding: then any number of tokens may name it
  int32_t first_page = 0;

  int64_t rows() const { return static_cast<int64_t>(cu_seqlens_q.size()) - 1; }
  bool drops(int64_t token) const {
    return indices[static_cast<size_t>(token)] < std::max(0, first_page);
  }
  int64_t seq_len(int64_t token) const { return seq_lens[static_cast<size_t>(token)]; }
  /// Does the token end a block? Else its out keeps what it holds.
  bool emits(int64_t token) const { return seq_len(token) % shape.ratio == 0; }
  /// Is there a block before the one that it ends, which is pooled with it?
  bool reads_extra(int64_t token) const {
    return emits(token) && shape.overlaps() && seq_len(token) > shape.ratio;
  }
};

/// A token's row goes to page indices[t], row (seq_len - 1) % ratio of it; of f16 and bf16 the
/// values, in f32. Pooling is computed in double and rounded once: the same bits whatever the
/// batch, the threads and the machine. Two requests write no page both, nor does one read what
/// another writes: slot.duplicate. Not ok: nothing is written.
Status compress(const Compress& call) noexcept;

/// Pooling of gathered windows, norm and rotation.
struct PoolNormRope {
  CompressShape shape;
  ConstTensorView kv_score;  // [blocks, window, channels * head_dim], f32, f16 or bf16, contiguous
  // f32 [ratio, halves * head_dim], contiguous: of token i of a block, for `a` and for `b`
  ConstTensorView ape;
  ConstTensorView weight;  // f32 [head_dim], contiguous
  float eps = 1e-6F;
  ConstTensorView freqs;  // f32 [blocks, rope_dim]: (cos, sin) of each pair; rope_dim even
  TensorView out;         // [blocks, head_dim], f32, f16 or bf16, contiguous
  CallOptions options;
};

/// out = pooled / sqrt(mean of squares + eps) * weight, of whose last rope_dim values each pair
/// (x, y) becomes (x cos - y sin, x sin + y cos). A score of -inf removes a token from its channel;
/// a channel without any is 0. In double, rounded once. Not ok: nothing is written.
Status pool_norm_rope(const PoolNormRope& call) noexcept;

/// The same of what is pooled already.
struct NormRope {
  ConstTensorView x;       // [blocks, head_dim], f32, f16 or bf16, contiguous
  ConstTensorView weight;  // as above
  float eps = 1e-6F;
  ConstTensorView freqs;
  TensorView out;
  CallOptions options;
};
Status norm_rope(const NormRope& call) noexcept;

}  // namespace shadowgraph
