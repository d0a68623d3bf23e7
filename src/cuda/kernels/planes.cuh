// Where the elements of a pool lie, for GPU bodies: KvPlane::offset, by what kernels/unit.h says of
// tokens.
#pragma once

#include "cuda/kernels/values.cuh"
#include "kernels/unit.h"
#include "launch/attention_launch.h"
#include "launch/ragged_launch.h"

namespace shadowgraph::cuda {

/// The planes of a cache, at KV head 0.
struct Planes {
  KvTokens k, v;
  int64_t num_pages;
  int32_t page_size, num_kv_heads;
  float k_scale, v_scale;

  __device__ bool has_slot(int64_t slot) const { return slot >= 0 && slot / page_size < num_pages; }
  /// KvCache::is_latent.
  __device__ bool is_latent() const {
    return k.data != nullptr && k.order == KvOrder::kStrided && v.order == KvOrder::kStrided &&
           v.data == k.data && v.dtype == k.dtype && v.page_stride == k.page_stride &&
           v.token_stride == k.token_stride && v.head_stride == k.head_stride &&
           v.head_dim <= k.head_dim && v.scales == k.scales;
  }
};

__device__ inline Planes planes_of(const KvCache& c, const void* k, const void* v,
                                   const void* k_scales, const void* v_scales) {
  const auto plane = [](const KvPlane& p, const void* data, const void* scales) {
    return KvTokens{static_cast<const std::byte*>(data),
                    p.dtype,
                    p.order,
                    p.page_stride,
                    p.token_stride,
                    p.head_stride,
                    p.head_dim,
                    static_cast<const float*>(scales),
                    p.scale_page_stride,
                    p.scale_token_stride,
                    p.scale_head_stride};
  };
  return {plane(c.k, k, k_scales),
          plane(c.v, v, v_scales),
          c.num_pages,
          c.page_size,
          c.num_kv_heads,
          c.k_scale,
          c.v_scale};
}

/// The place of a dim of a token whose token_offset is `start`.
__device__ inline int64_t key_element(const KvTokens& k, int64_t start, int64_t token,
                                      int64_t dim) {
  if (k.order == KvOrder::kStrided) return start + dim;
  return start + key_panel_offset(k.dtype, token % kPanel, dim);
}
__device__ inline int64_t value_element(const KvTokens& v, int64_t start, int64_t token,
                                        int64_t dim) {
  if (v.order == KvOrder::kStrided) return start + dim;
  return start + value_panel_offset(v.dtype, v.head_dim, token % kPanel, dim);
}
/// The place of an element in either plane.
__device__ inline int64_t element(const KvTokens& p, int64_t start, int64_t token, int64_t dim) {
  return p.order == KvOrder::kValuePanels ? value_element(p, start, token, dim)
                                          : key_element(p, start, token, dim);
}

/// PageTable::batch.
__host__ __device__ inline int64_t batch_of(const PageTable& t) {
  const bool dense = t.form == PageTable::Form::kDense;
  return static_cast<int64_t>(dense ? t.cache_seqlens.size() : t.last_page_len.size());
}

__host__ __device__ inline int64_t batch_of(const RaggedAttention& c) {
  return static_cast<int64_t>(c.cu_seqlens_q.size()) - 1;
}

/// A request's keys: in both forms of a page table.
struct RequestKeys {
  const int32_t* page_ids;
  int32_t kv_len;
  bool sound;  // its metadata leads nowhere else
};
/// length: seqlens[request], of the last page where the table is CSR.
__device__ inline RequestKeys keys_of_request(const PagedAttention& s, const int32_t* pages,
                                              const int32_t* kv_indptr, int64_t request,
                                              int32_t length) {
  if (s.pages.form == PageTable::Form::kDense)
    return {pages + request * s.pages.max_pages, length,
            length >= 0 && length <= s.pages.max_pages * s.cache.page_size};
  const int32_t first = kv_indptr[request], count = kv_indptr[request + 1] - first;
  return {pages + first, count > 0 ? (count - 1) * s.cache.page_size + length : 0,
          first >= 0 && count >= 0 &&
              first + int64_t{count} <= static_cast<int64_t>(s.pages.kv_indices.size()) &&
              (count == 0 || (length >= 1 && length <= s.cache.page_size))};
}

/// The KV head of a query head.
__device__ inline int32_t kv_head_of(const AttentionParams& p, int64_t head) {
  const auto group = static_cast<uint32_t>(p.num_qo_heads) / static_cast<uint32_t>(p.num_kv_heads);
  return static_cast<int32_t>(static_cast<uint32_t>(head) / group);
}

/// Scales a logit: with a cap it is in base 2 already, without a cap after the multiplication.
struct LogitScale {
  float scale, cap;
};
__device__ inline LogitScale logit_scale_of(const AttentionParams& p, float k_scale) {
  const double scale = static_cast<double>(p.sm_scale) * k_scale, cap = p.logits_soft_cap;
  return {static_cast<float>(cap == 0 ? scale * kLog2EInDouble : scale / cap),
          static_cast<float>(cap * kLog2EInDouble)};
}

/// Rows that are copied 16 bytes at a time begin at columns of eight 16-bit elements; are all these
/// strides whole columns, and does a place among so many rows, a count each, take 32 bits?
constexpr uint32_t kNoKey = 0xffffffffu;  // no such column
template <size_t N>
bool have_few_columns(const int64_t (&strides)[N], const int64_t (&counts)[N]) {
  int64_t end = 0;
  for (size_t i = 0; i < N; ++i) {
    if (strides[i] < 0 || strides[i] % 8 != 0) return false;
    end += counts[i] * strides[i];
  }
  return end < int64_t{8} * kNoKey;
}
inline bool have_few_columns(const KvCache& cache, const KvPlane& p) {
  return have_few_columns({p.page_stride, p.token_stride, p.head_stride},
                          {cache.num_pages, cache.page_size, cache.num_kv_heads});
}

/// Element (slot, head, dim) of a plane.
struct Slot {
  int32_t page, token;
  __device__ Slot(int64_t slot, int32_t page_size)
      : page(static_cast<int32_t>(slot / page_size)),
        token(static_cast<int32_t>(slot % page_size)) {}
  __device__ int64_t element_of(const KvTokens& p, int32_t page_size, int64_t head,
                                int64_t dim) const {
    return element(p, token_offset(p, &page, page_size, token) + head * p.head_stride, token, dim);
  }
  __device__ int64_t scale_of(const KvTokens& p, int32_t page_size, int64_t head) const {
    return scale_offset(p, &page, page_size, token) + head * p.scale_head_stride;
  }
};

}  // namespace shadowgraph::cuda
