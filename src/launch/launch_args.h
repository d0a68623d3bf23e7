// What launches have in common: a view, or a cache, is its pointers and its scalars; spans of
// footprints. Scalars have no padding: launches are compared byte by byte.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/access.h"
#include "shadowgraph/kernel.h"
#include "shadowgraph/kv_cache.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// A view [rows, heads, dim] whose last axis is contiguous, or [rows, heads], or none (rank 0).
struct RowsScalars {
  int64_t shape[3], stride[2];
  int32_t rank;
  DType dtype;
  uint8_t unused[3];
};
static_assert(sizeof(RowsScalars) == 5 * 8 + 4 + 4);

RowsScalars scalars_of(const ConstTensorView& t);
TensorView view_of(void* data, const RowsScalars& s);

struct CacheScalars {
  int64_t num_pages;
  int64_t k_stride[3], v_stride[3];              // page, token, head
  int64_t k_scale_stride[3], v_scale_stride[3];  // the same
  int32_t page_size, num_kv_heads, head_dim_qk, head_dim_vo;
  float k_scale, v_scale;
  DType k_dtype, v_dtype;
  KvOrder k_order, v_order;
  uint8_t well_formed, unused[3];
};
static_assert(sizeof(CacheScalars) == 8 + 12 * 8 + 4 * 4 + 2 * 4 + 8);

CacheScalars scalars_of(const KvCache& c);
/// Its pointers: K, V, the scales of K, of V.
inline constexpr uint8_t kCacheArgs = 4;
KernelArgs& add_cache(KernelArgs& args, const KvCache& c);
/// first: the argument that is K.
KvCache cache_of(const LaunchFrame& f, size_t first, const CacheScalars& s);

/// A launch of so many blocks, of one where there are none; its arguments are to be added.
KernelLaunch launch_of(const Kernel& kernel, int64_t blocks);

/// Whose work a launch's rows are: row i, as its footprint counts them, is request first + i /
/// a_request of the step; a_request 0: they differ, and no owner is known.
struct RequestRows {
  int32_t a_request = 1, first = 0;
};
/// What a launch was made of. What it does not carry is not there.
template <class Call>
struct CallOf {
  Call call;
  RequestRows rows;
};
/// Rows of spans become requests.
void name_requests(const RequestRows& rows, Footprint* spans);

/// An array of the device.
template <class T>
std::span<const T> array_of(const LaunchFrame& f, size_t arg, int64_t size) {
  return {f.pointer<const T>(arg), static_cast<size_t>(size)};
}

template <class T>
void add_whole(Footprint* spans, std::span<const T> s, Access access = Access::kRead) {
  if (!s.empty())
    spans->push_back({s.data(), 0, static_cast<int64_t>(s.size()), sizeof(T), access});
}
/// Every element of a view that is written; nothing where it is none.
void add_written(Footprint* spans, const TensorView& t);
/// Fills it with 0xff: what a call that is refused when it runs leaves behind.
void poison(const TensorView& t);

/// The reads or writes beyond the pool of a page id that it does not have, at K, V and scales.
void add_beyond_pool(Footprint* spans, const KvCache& c, int64_t page, Access access, int32_t row);

}  // namespace shadowgraph
