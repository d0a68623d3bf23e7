// KvCache: a paged pool of keys and values; PageTable: which pages hold which request.
// Tested by tests/attn/kv_cache_test.cc and tests/attn/page_table_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// How the elements of a page and head lie in memory.
enum class KvOrder : uint8_t {
  kStrided,  // a token's head_dim elements are contiguous: NHD, HND, MLA latents
  // Panels of 16 tokens, in the order in which the kernels' inner loops read them: a call packs
  // nothing, and following the page table costs no time. P = 2 for bf16, else 1.
  kKeyPanels,    // [ceil(head_dim / P)][16 tokens][P dims]
  kValuePanels,  // blocks of 64 dims (the last one narrower, a multiple of 16), each
                 // [16 / P][dims of the block][P tokens]
};

inline constexpr int32_t kPanelTokens = 16;     // edge: keys
inline constexpr int32_t kValueBlockDims = 64;  // edge: head_dim

/// P of KvOrder: how many elements the bf16 dot product takes together.
constexpr int32_t panel_pair(DType t) { return t == DType::kBF16 ? 2 : 1; }
/// Elements of one panel, padding included. No call writes the padding, and its values change no
/// bit of a result.
constexpr int64_t key_panel_elements(DType t, int32_t head_dim) {
  const int64_t p = panel_pair(t);
  return kPanelTokens * ((head_dim + p - 1) / p * p);
}
constexpr int64_t value_panel_elements(int32_t head_dim) {
  return kPanelTokens * ((int64_t{head_dim} + 15) / 16 * 16);
}
/// Elements that lie in one piece: a token's head_dim, or a panel of 16 tokens.
constexpr int64_t contiguous_elements(KvOrder order, DType t, int32_t head_dim) {
  switch (order) {
    case KvOrder::kStrided: break;
    case KvOrder::kKeyPanels: return key_panel_elements(t, head_dim);
    case KvOrder::kValuePanels: return value_panel_elements(head_dim);
  }
  return head_dim;
}
/// Element (token, dim) of a panel, 0 <= token < 16.
constexpr int64_t key_panel_offset(DType t, int64_t token, int64_t dim) {
  const int64_t p = panel_pair(t);
  return (dim / p * kPanelTokens + token) * p + dim % p;
}
constexpr int64_t value_panel_offset(DType t, int32_t head_dim, int64_t token, int64_t dim) {
  const int64_t p = panel_pair(t), first = dim / kValueBlockDims * kValueBlockDims;
  const int64_t rest = (head_dim + 15) / 16 * 16 - first;
  const int64_t width = rest < kValueBlockDims ? rest : kValueBlockDims;
  return first * kPanelTokens + (token / p * width + (dim - first)) * p + token % p;
}

/// One plane (K or V) of a pool. Element (page, token, head, dim) lies at
///   page * page_stride + head * head_stride + token * token_stride + dim   [elements]
/// or, in panels, at
///   page * page_stride + head * head_stride + token / 16 * token_stride + (its place in the panel)
/// K and V may have different strides and head dims.
struct KvPlane {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  KvOrder order = KvOrder::kStrided;
  int64_t page_stride = 0, token_stride = 0, head_stride = 0;
  int32_t head_dim = 0;
  // i8: the factor of element (page, token, head, dim) is scales[scale_offset(page, token, head)],
  // where any float is allowed, 0 and NaN too. Null for every other type. Strides count floats
  float* scales = nullptr;
  int64_t scale_page_stride = 0, scale_token_stride = 0, scale_head_stride = 0;

  bool operator==(const KvPlane&) const = default;
  int64_t scale_offset(int64_t page, int64_t token, int64_t head) const {
    return page * scale_page_stride + token * scale_token_stride + head * scale_head_stride;
  }
  int64_t offset(int64_t page, int64_t token, int64_t head, int64_t dim) const {
    const int64_t block = page * page_stride + head * head_stride;
    if (order == KvOrder::kStrided) return block + token * token_stride + dim;
    const int64_t panel = block + token / kPanelTokens * token_stride, lane = token % kPanelTokens;
    return panel + (order == KvOrder::kKeyPanels ? key_panel_offset(dtype, lane, dim)
                                                 : value_panel_offset(dtype, head_dim, lane, dim));
  }
};

/// The layout of a pool in memory, by the constructors of KvCache. kMlaLatent: one KV head, whose V
/// is the first head_dim_vo elements of its K, in the same memory. kPanels: page_size is a multiple
/// of 16.
enum class KvLayout : uint8_t { kNhd, kHnd, kStackedNhd, kStackedHnd, kMlaLatent, kPanels };

/// Pages of page_size tokens; slot = page * page_size + token. Owns no memory; the last dim of a
/// tensor must be contiguous.
struct KvCache {
  KvPlane k, v;
  int64_t num_pages = 0;
  int32_t page_size = 0;
  int32_t num_kv_heads = 0;
  // key = stored value * k_scale, value = stored value * v_scale (i8: also times the token's scale)
  float k_scale = 1, v_scale = 1;
  // False if the tensors given to the constructor disagree; then every call refuses the cache
  bool well_formed = false;

  int64_t num_slots() const { return num_pages * page_size; }
  /// True if V is the beginning of K in memory (mla_latent).
  bool is_latent() const;

  /// k [num_pages, page_size, num_kv_heads, head_dim_qk], v [..., head_dim_vo]: FlashAttention,
  /// vLLM, FlashInfer NHD.
  static KvCache nhd(const TensorView& k, const TensorView& v);
  /// k [num_pages, num_kv_heads, page_size, head_dim_qk], v likewise: TRT-LLM, FlashInfer HND.
  static KvCache hnd(const TensorView& k, const TensorView& v);
  /// kv [num_pages, 2, page_size, num_kv_heads, head_dim]: FlashInfer's one tensor for K and V.
  static KvCache stacked_nhd(const TensorView& kv);
  /// kv [num_pages, 2, num_kv_heads, page_size, head_dim].
  static KvCache stacked_hnd(const TensorView& kv);
  /// latent [num_pages, page_size, kv_lora_rank + rope]: one KV head, whose value is the first
  /// head_dim_vo of its key. Latents have no panel form: panels of K and of V differ in order, so
  /// the two could not share memory; and one packed tile serves all query heads, so panels would
  /// save nothing.
  static KvCache mla_latent(const TensorView& latent, int32_t head_dim_vo);
  /// k [num_pages, num_kv_heads, page_size / 16, key_panel_elements], v the same with
  /// value_panel_elements: the engine's own layout (KvOrder), for every dtype and instruction set.
  /// Memory in 2 MiB pages (huge_memory.h) is read faster. In an Arena use granules of one element,
  /// because the elements of a token are not neighbours.
  static KvCache panels(const TensorView& k, const TensorView& v, int32_t head_dim_qk,
                        int32_t head_dim_vo);

  /// The same cache with a scale for each token and head of its i8 planes. k_scales and v_scales
  /// are f32 [num_pages, page_size, num_kv_heads], with any strides and aligned as floats are;
  /// undefined for a plane that is not i8. They may be halves of one tensor. K and V of a latent
  /// cache may share their scales.
  KvCache with_scales(const TensorView& k_scales, const TensorView& v_scales) const;
};

/// The same memory as pages of one token, for tables that hold slots. Requires that pages follow
/// each other in memory token by token (NHD, latents, HND of one head); else the result is not well
/// formed.
KvCache slot_view(const KvCache& cache);

/// Which pages belong to which request, and how many keys each request has. Views only. Entries
/// behind a request's last page are never read.
struct PageTable {
  enum class Form : uint8_t { kDense, kCsr };
  Form form = Form::kDense;

  std::span<const int32_t> page_table;  // dense: [batch, max_pages], row-major page ids
  int64_t max_pages = 0;                // row length of page_table
  // Dense: [batch] keys of each request, its new ones included
  std::span<const int32_t> cache_seqlens;

  std::span<const int32_t> kv_indptr;   // CSR: [batch + 1], pages
  std::span<const int32_t> kv_indices;  // CSR: page ids
  // CSR: [batch], 1..page_size; ignored where a request has no page
  std::span<const int32_t> last_page_len;

  static PageTable dense(std::span<const int32_t> page_table, int64_t max_pages,
                         std::span<const int32_t> cache_seqlens);
  static PageTable csr(std::span<const int32_t> kv_indptr, std::span<const int32_t> kv_indices,
                       std::span<const int32_t> last_page_len);

  int64_t batch() const;
};

}  // namespace shadowgraph
