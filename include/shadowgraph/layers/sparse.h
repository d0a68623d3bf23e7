// Attention over chosen keys. Each query token names the slots that it sees (DSA's top-k,
// DeepSeek-V4's window and compressed blocks) in a pool of packed latents. One latent is the key of
// every head, and its first elements are the value:
//
//   x_j = sm_scale <q_h, row_j>,  out_h = sum_j softmax(x)_j row_j[0 : head_dim_v]
//
// Facts: docs/metadata.md "DSA", "DeepSeek-V4".
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// How a latent lies in memory. The value of an element in a packed layout is its code times its
/// group's scale in f32, rounded to bf16; kernels multiply this value.
enum class LatentLayout : uint8_t {
  kRows,  // [slots, head_dim] f32 | f16 | bf16 | e4m3 | e5m2, not packed
  kDsa,   // u8 [slots, 656]: 512 e4m3 | 4 f32 scales, one per 128 elements | 64 bf16
  // u8 [pages, v4_page_bytes(page_size)]: page_size * (448 e4m3 | 64 bf16), then page_size * 8
  // scales, one per 64 elements, 2^(byte - 127); the eighth scale is not read
  kV4,
};

inline constexpr int64_t kDsaBytes = 656, kDsaCodes = 512, kDsaGroup = 128;
inline constexpr int64_t kV4Bytes = 576, kV4Codes = 448, kV4Group = 64, kV4Scales = 8;
/// bf16 elements behind the codes, in both packed layouts.
inline constexpr int64_t kRopeDim = 64;

/// Bytes of page_size tokens and their scales, in whole units of 576 bytes.
constexpr int64_t v4_page_bytes(int64_t page_size) {
  return (page_size * (kV4Bytes + kV4Scales) + kV4Bytes - 1) / kV4Bytes * kV4Bytes;
}

/// Latents by slot. Byte as in BasicTensorView.
template <class Byte>
struct BasicLatentPool {
  BasicTensorView<Byte> data;
  LatentLayout layout = LatentLayout::kRows;
  int32_t page_size = 1;  // tokens per page for kV4; else 1

  operator BasicLatentPool<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, layout, page_size};
  }
  bool defined() const { return data.defined(); }
  int64_t slots() const { return data.shape[0] * page_size; }
  int64_t head_dim() const {
    if (layout == LatentLayout::kDsa) return kDsaCodes + kRopeDim;
    return layout == LatentLayout::kV4 ? kV4Codes + kRopeDim : data.shape[1];
  }
  /// Offset, in elements, of a slot's latent; scales_at: of its scales (kV4 only).
  int64_t latent_at(int64_t slot) const {
    if (layout != LatentLayout::kV4) return data.offset(slot);
    return data.offset(slot / page_size, slot % page_size * kV4Bytes);
  }
  int64_t scales_at(int64_t slot) const {
    return data.offset(slot / page_size, page_size * kV4Bytes + slot % page_size * kV4Scales);
  }
};
using LatentPool = BasicLatentPool<const std::byte>;
using WritableLatentPool = BasicLatentPool<std::byte>;

/// Which slots of a pool each query token sees: each slot once, in any order; -1 is no key. Two
/// forms: [tokens, width] with lengths, or ragged with indptr.
struct ChosenKeys {
  LatentPool pool;                   // undefined: there is no list
  std::span<const int32_t> indices;  // [tokens, width], or each token's entries in turn
  int64_t width = 0;                 // not read if indptr is given
  std::span<const int32_t> lengths;  // [tokens] entries of the width that count; those behind are
                                     // not read; empty: all entries count
  std::span<const int32_t> indptr;   // [tokens + 1]; empty: the form [tokens, width]

  bool defined() const { return pool.defined(); }
  /// Where the entries of a token begin; count: how many they are.
  int64_t begin(int64_t token) const {
    return indptr.empty() ? token * width : indptr[static_cast<size_t>(token)];
  }
  int64_t count(int64_t token) const {
    const auto t = static_cast<size_t>(token);
    if (!indptr.empty()) return indptr[t + 1] - indptr[t];
    return lengths.empty() ? width : lengths[t];
  }
  std::span<const int32_t> of(int64_t token) const {
    return indices.subspan(static_cast<size_t>(begin(token)), static_cast<size_t>(count(token)));
  }
};

struct SparseAttention {
  ConstTensorView q;  // [tokens, num_heads, head_dim], f32 | f16 | bf16 | e4m3, last dim contiguous
  ChosenKeys keys;
  // More keys, from another pool: compressed blocks, or the rows of this forward; undefined: none.
  // Its latents must have the same head_dim
  ChosenKeys extra;
  int32_t head_dim_v = 512;
  float sm_scale = 0;            // no default
  std::span<const float> sinks;  // [num_heads]: one more logit, in the denominator; empty: none
  TensorView out;                // [tokens, num_heads, head_dim_v], f32 | f16 | bf16
  // [tokens, num_heads], optional; options.lse_sink says whether it counts the sink
  NaturalLse lse;
  CallOptions options;  // arith and scratch have no effect
};

/// A token that sees no key has out 0 and LSE -inf, or the sink's logit if the LSE counts sinks.
/// Computed in f32, key after key in list order, keys of `extra` last. A token's bits depend only
/// on its query and on the latents that it sees, in order; not on slots, -1 between them, page
/// size, the batch, threads or the instruction set.
///
/// list.slot: an entry is no slot of its pool; list.duplicate: a token names a slot twice. Not ok:
/// nothing is written.
Status sparse_attention(const SparseAttention& call) noexcept;

/// Stores latents of new tokens in their slots. Packed layouts, with amax the largest |x| of a
/// group in f32:
///   kDsa  scale = amax fl(1 / 448), code = e4m3(x / scale); if the scale is 0, so are the codes
///   kV4   byte = ceil(log2(max(amax, 1e-8) / 448)) + 127, exactly; code = e4m3(x 2^(127 - byte));
///         the eighth scale byte becomes 0
/// Codes saturate at 448. If an element is not finite, its group becomes NaN: the scale is NaN
/// (kV4: byte 255), and so are the codes. Rope elements and rows round to nearest even.
struct PackLatents {
  ConstTensorView latents;  // [tokens, head_dim of the pool], f32 | f16 | bf16
  // [tokens] slots, each at most once; a token whose slot is below first_slot is dropped
  std::span<const int64_t> out_cache_loc;
  WritableLatentPool pool;  // kRows only with f32 | f16 | bf16
  CallOptions options;
  // Set it to the page size where page 0 is for padding; then several tokens may name the same slot
  // of page 0
  int64_t first_slot = 0;

  bool drops(int64_t slot) const { return slot < 0 || slot < first_slot; }
};

/// The bits do not depend on the batch, the threads or the machine. Not ok: nothing is written.
Status pack_latents(const PackLatents& call) noexcept;

}  // namespace shadowgraph
