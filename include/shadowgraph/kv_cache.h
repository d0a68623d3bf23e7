// KvCache: a paged pool of keys and values; PageTable: which pages hold which request.
// Tested by tests/attn/kv_cache_test.cc and tests/attn/page_table_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// One plane (K or V) of a pool. Element (page, token, head, dim) lies at
///   page * page_stride + token * token_stride + head * head_stride + dim   [elements]
/// K and V need not share strides or head dims. Another layout inside the page-head block (the
/// 16-token panel) is one more KvOrder, told in offset() and where kernels reach tokens.
enum class KvOrder : uint8_t { kStrided };

struct KvPlane {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  KvOrder order = KvOrder::kStrided;
  int64_t page_stride = 0, token_stride = 0, head_stride = 0;
  int32_t head_dim = 0;

  int64_t offset(int64_t page, int64_t token, int64_t head, int64_t dim) const {
    return page * page_stride + token * token_stride + head * head_stride + dim;
  }
};

/// Pages of page_size tokens; slot = page * page_size + token. Owns nothing; the last dim of a
/// tensor is contiguous.
struct KvCache {
  KvPlane k, v;
  int64_t num_pages = 0;
  int32_t page_size = 0;
  int32_t num_kv_heads = 0;
  float k_scale = 1, v_scale = 1;  // fp8: the stored value times this is the key / value
  // The tensors given to the constructor agreed; else every call refuses the cache
  bool well_formed = false;

  int64_t num_slots() const { return num_pages * page_size; }

  /// k [num_pages, page_size, num_kv_heads, head_dim_qk], v [..., head_dim_vo]: FlashAttention,
  /// vLLM, FlashInfer NHD.
  static KvCache nhd(const TensorView& k, const TensorView& v);
  /// k [num_pages, num_kv_heads, page_size, head_dim_qk], v likewise: TRT-LLM, FlashInfer HND.
  static KvCache hnd(const TensorView& k, const TensorView& v);
  /// kv [num_pages, 2, page_size, num_kv_heads, head_dim]: FlashInfer's one tensor for K and V.
  static KvCache stacked_nhd(const TensorView& kv);
  /// kv [num_pages, 2, num_kv_heads, page_size, head_dim].
  static KvCache stacked_hnd(const TensorView& kv);
  /// latent [num_pages, page_size, kv_lora_rank + rope]: one KV head whose value is the first
  /// head_dim_vo of the key.
  static KvCache mla_latent(const TensorView& latent, int32_t head_dim_vo);
};

/// Which pages belong to which request, and how many keys each has. Views only.
/// Entries past a request's last page are never looked at.
struct PageTable {
  enum class Form : uint8_t { kDense, kCsr };
  Form form = Form::kDense;

  std::span<const int32_t> page_table;  // dense: [batch, max_pages], row-major page ids
  int64_t max_pages = 0;                // row length of page_table
  // Dense: [batch], keys of each request, the new ones included
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
