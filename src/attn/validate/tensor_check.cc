#include "attn/validate/tensor_check.h"

#include <algorithm>
#include <cstdlib>

#include "attn/validate/shared_bytes.h"

namespace shadowgraph {
namespace {

std::string shape_text(const int64_t* dims, int rank) {
  std::string s = "[";
  for (int i = 0; i < rank; ++i) {
    s += (i ? ", " : "") + (dims[i] == kAny ? "any" : std::to_string(dims[i]));
  }
  return s + "]";
}

/// "[17, 2, 16]: 17 rows of k".
std::string shape_text(std::initializer_list<AxisSize> shape) {
  std::vector<int64_t> dims;
  std::string origins;
  for (const AxisSize& axis : shape) {
    dims.push_back(axis.size);
    if (axis.of == nullptr || axis.size == kAny) continue;
    origins += (origins.empty() ? ": " : ", ") + std::to_string(axis.size) + " " + axis.of;
  }
  return shape_text(dims.data(), static_cast<int>(dims.size())) + origins;
}

/// Are all elements at different addresses? Sufficient: each axis steps over all that the finer
/// axes span.
bool distinct(const ConstTensorView& t) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // |stride|, size
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] > 1) axes.emplace_back(std::abs(t.stride[i]), t.shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  int64_t span = 0;
  for (const auto& [stride, size] : axes) {
    if (stride <= span) return false;
    span += stride * (size - 1);
  }
  return true;
}

/// A plane as [pages, tokens (in panels: panels), heads, elements in one piece].
ConstTensorView view_of(const KvPlane& p, const KvCache& cache) {
  const int64_t tokens_a_piece = p.order == KvOrder::kStrided ? 1 : kPanelTokens;
  // An axis of one element may have any stride.
  return {p.data,
          p.dtype,
          {cache.num_pages, cache.page_size / tokens_a_piece, cache.num_kv_heads,
           contiguous_elements(p.order, p.dtype, p.head_dim)},
          {p.page_stride, p.token_stride, p.head_stride, 1}};
}

/// [pages, tokens, heads], of a plane of i8.
ConstTensorView scales_of(const KvPlane& p, const KvCache& cache) {
  return {p.scales,
          DType::kF32,
          {cache.num_pages, cache.page_size, cache.num_kv_heads},
          {p.scale_page_stride, p.scale_token_stride, p.scale_head_stride}};
}

}  // namespace

bool TensorCheck::input(const char* field, const ConstTensorView& t,
                        std::initializer_list<AxisSize> shape,
                        std::initializer_list<DType> dtypes) {
  return view(field, t, shape, dtypes, true, false);
}

bool TensorCheck::strided_input(const char* field, const ConstTensorView& t,
                                std::initializer_list<AxisSize> shape,
                                std::initializer_list<DType> dtypes) {
  return view(field, t, shape, dtypes, false, false);
}

bool TensorCheck::output(const char* field, const TensorView& t,
                         std::initializer_list<AxisSize> shape, std::initializer_list<DType> dtypes,
                         bool last_contiguous) {
  return view(field, t, shape, dtypes, last_contiguous, true);
}

bool TensorCheck::view(const char* field, const ConstTensorView& t,
                       std::initializer_list<AxisSize> shape, std::initializer_list<DType> dtypes,
                       bool last_contiguous, bool written) {
  bool usable = true;
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) == dtypes.end()) {
    std::string names;
    for (DType d : dtypes) names += (names.empty() ? "" : " | ") + std::string(name_of(d));
    fail("input.dtype", at(std::string(field) + ".dtype"), names, std::string(name_of(t.dtype)));
    usable = false;
  }
  const auto rank = static_cast<int>(shape.size());
  bool same = t.rank == rank;
  for (int i = 0; same && i < rank; ++i) {
    const int64_t wanted = shape.begin()[i].size;
    same = wanted == kAny ? t.shape[i] >= 0 : t.shape[i] == wanted;
  }
  if (!same) {
    fail("input.shape", at(std::string(field) + ".shape"), shape_text(shape),
         shape_text(t.shape.data(), std::clamp(t.rank, 0, ConstTensorView::kMaxRank)));
    return false;
  }
  if (last_contiguous && t.shape[rank - 1] > 1 && t.stride[rank - 1] != 1) {
    fail("input.stride", at(std::string(field) + ".stride", rank - 1), "1",
         std::to_string(t.stride[rank - 1]));
    usable = false;
  }
  return memory(field, t, written) && usable;
}

bool TensorCheck::memory(const std::string& field, const ConstTensorView& t, bool written) {
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] == 0) return true;
  }
  int64_t first = 0, last = 0;
  if (!element_range(t, &first, &last)) {
    fail("input.overflow", at(field), "sizes and strides within 2^63 bytes",
         "shape " + shape_text(t.shape.data(), t.rank) + " strides " +
             shape_text(t.stride.data(), t.rank));
    return false;
  }
  if (t.data == nullptr) {
    fail("input.null", at(field + ".data"), "memory for " + shape_text(t.shape.data(), t.rank),
         "null");
    return false;
  }
  if (written && !distinct(t)) {
    fail("input.stride", at(field + ".stride"), "no two elements at one address",
         shape_text(t.stride.data(), t.rank));
    return false;
  }
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  const auto address = reinterpret_cast<uintptr_t>(t.data);
  memories_.push_back({field, t, address + static_cast<uintptr_t>(first * size),
                       address + static_cast<uintptr_t>((last + 1) * size), written});
  return true;
}

bool TensorCheck::plane(const std::string& field, const KvPlane& p) {
  if (!is_cache_dtype(p.dtype)) {
    fail("input.dtype", at(field + ".dtype"), "f32 | f16 | bf16 | e4m3 | e5m2 | i8",
         std::string(name_of(p.dtype)));
    return false;
  }
  if (p.dtype == DType::kI8 || p.scales == nullptr) return true;
  fail("input.dtype", at(field + ".dtype"), "i8, as its tokens have scales",
       std::string(name_of(p.dtype)));
  return false;
}

bool TensorCheck::planes(const std::string& name, const KvCache& cache, bool written, bool latent) {
  const std::string k = name + "k_cache", v = name + "v_cache";
  const bool k_ok = plane(k, cache.k), v_ok = plane(v, cache.v);
  const bool inside = latent || (!written && cache.is_latent());  // V is in K's memory
  bool ok = k_ok && v_ok;
  if (k_ok) ok &= memory(k, view_of(cache.k, cache), written);
  if (v_ok && !inside) ok &= memory(v, view_of(cache.v, cache), written);
  if (cache.k.dtype == DType::kI8) ok &= memory(k + ".scales", scales_of(cache.k, cache), written);
  if (cache.v.dtype == DType::kI8 && !inside)
    ok &= memory(v + ".scales", scales_of(cache.v, cache), written);
  return ok;
}

bool TensorCheck::array(const char* field, const void* data, size_t bytes, bool written) {
  if (bytes == 0) return true;
  if (data == nullptr) {
    fail("input.null", at(field), "memory for " + std::to_string(bytes) + " bytes", "null");
    return false;
  }
  const auto begin = reinterpret_cast<uintptr_t>(data);
  memories_.push_back(
      {field, {data, DType::kU8, {static_cast<int64_t>(bytes)}}, begin, begin + bytes, written});
  return true;
}

void TensorCheck::no_aliases() {
  for (size_t i = 0; i < memories_.size(); ++i) {
    for (size_t j = i + 1; j < memories_.size(); ++j) {
      const Memory &a = memories_[i], &b = memories_[j];
      if ((!a.written && !b.written) || a.begin >= b.end || b.begin >= a.end) continue;
      const SharedBytes shared = shares_bytes(a.tensor, b.tensor);
      if (shared == SharedBytes::kNone) continue;
      const Memory &out = b.written ? b : a, &other = b.written ? a : b;
      fail("input.alias", at(out.field), "memory apart from " + other.field,
           shared == SharedBytes::kSome ? "overlapping memory"
                                        : "between its bytes, with strides of no common grid: not "
                                          "told apart in " +
                                              std::to_string(kSharedBytesSteps) + " steps");
    }
  }
}

}  // namespace shadowgraph
