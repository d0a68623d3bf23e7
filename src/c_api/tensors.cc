#include "c_api/tensors.h"

#include <string>

#include "c_api/errors.h"

namespace shadowgraph::c_api {
namespace {

constexpr uint8_t kBoolCode = 6, kE4M3Code = 10, kE5M2Code = 12;  // behind DLPack 0.6's
constexpr int kHostDevices[] = {kDLCPU, kDLCUDAHost};

template <class T>
constexpr DType kElement = DType::kI32;
template <>
constexpr DType kElement<int64_t> = DType::kI64;
template <>
constexpr DType kElement<float> = DType::kF32;

/// Strides of axes that nobody walks along say nothing.
void settle_strides(TensorView* v) {
  if (v->shape[v->rank - 1] <= 1) v->stride[v->rank - 1] = 1;
}

}  // namespace

std::optional<DType> dtype_of(const DLDataType& type) {
  struct Known {
    uint8_t code, bits;
    DType dtype;
  };
  static constexpr Known kKnown[] = {
      {kDLFloat, 32, DType::kF32},  {kDLFloat, 16, DType::kF16},  {kDLBfloat, 16, DType::kBF16},
      {kE4M3Code, 8, DType::kE4M3}, {kE5M2Code, 8, DType::kE5M2}, {kDLInt, 8, DType::kI8},
      {kDLFloat, 64, DType::kF64},  {kDLInt, 32, DType::kI32},    {kDLInt, 64, DType::kI64},
      {kDLUInt, 8, DType::kU8},     {kBoolCode, 8, DType::kBool}};
  for (const Known& known : kKnown)
    if (type.code == known.code && type.bits == known.bits && type.lanes == 1) return known.dtype;
  return std::nullopt;
}

bool TensorReader::sized(const char* name, const DLTensor& t, int rank) {
  const auto axes = [](int n) { return std::to_string(n) + (n == 1 ? " axis" : " axes"); };
  const bool fits = rank == 0 ? t.ndim >= 1 && t.ndim <= TensorView::kMaxRank : t.ndim == rank;
  if (!fits) {
    fail("input.shape", name, rank == 0 ? "1 to 5 axes" : axes(rank), axes(t.ndim));
    return false;
  }
  if (t.shape == nullptr) {
    fail("input.null", name, "a shape", "NULL");
    return false;
  }
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] >= 0) continue;
    fail("input.shape", name, "sizes >= 0", std::to_string(t.shape[i]));
    return false;
  }
  return true;
}

bool TensorReader::located(const char* name, const DLTensor& t, DType dtype, TensorView* view) {
  const bool on_host =
      t.device.device_type == kHostDevices[0] || t.device.device_type == kHostDevices[1];
  if (!on_host) {
    fail("input.device", name, "device 1 (the CPU) or 3 (its memory for CUDA)",
         std::to_string(static_cast<int>(t.device.device_type)));
    return false;
  }
  for (int i = 0; i < view->rank; ++i)
    if (view->shape[i] == 0) return true;  // whatever the address
  if (t.data == nullptr) {
    fail("input.null", name, "memory", "NULL");
    return false;
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  view->data = static_cast<std::byte*>(t.data) + t.byte_offset;
  if (address % size_of(dtype) == 0) return true;
  fail("input.align", name, "an address that " + std::to_string(size_of(dtype)) + " divides",
       std::to_string(address % size_of(dtype)) + " bytes behind one");
  return false;
}

TensorView TensorReader::need(const char* name, const DLTensor* t, int rank) {
  if (t == nullptr) {
    fail("input.null", name, "a tensor", "NULL");
    return {};
  }
  const std::optional<DType> dtype = dtype_of(t->dtype);
  if (!dtype) {
    fail("input.dtype", name, "a type of docs/c.md, one lane",
         "code " + std::to_string(t->dtype.code) + ", " + std::to_string(t->dtype.bits) +
             " bits, " + std::to_string(t->dtype.lanes) + " lanes");
  }
  if (!sized(name, *t, rank)) return {};
  TensorView view;
  view.dtype = dtype.value_or(DType::kU8);
  view.rank = t->ndim;
  uint64_t step = 1;  // wraps of absurd shapes, which the call refuses
  for (int i = t->ndim - 1; i >= 0; --i) {
    view.shape[i] = t->shape[i];
    view.stride[i] = t->strides == nullptr ? static_cast<int64_t>(step) : t->strides[i];
    step *= static_cast<uint64_t>(t->shape[i]);
  }
  settle_strides(&view);
  if (!located(name, *t, view.dtype, &view) || !dtype) return {};
  return view;
}

template <class T>
std::span<const T> TensorReader::list(const char* name, const DLTensor* t, int64_t least) {
  if (t == nullptr) return {};
  const TensorView view = need(name, t, 1);
  if (!view.defined()) return {};
  if (view.dtype != kElement<T>) {
    fail("input.dtype", name, std::string(name_of(kElement<T>)), std::string(name_of(view.dtype)));
    return {};
  }
  if (view.stride[0] != 1) {
    fail("input.stride", name, "1", std::to_string(view.stride[0]));
    return {};
  }
  if (view.shape[0] < least)
    fail("input.shape", name, "at least " + std::to_string(least) + " element, or NULL", "none");
  return {reinterpret_cast<const T*>(view.data), static_cast<size_t>(view.shape[0])};
}

template std::span<const int32_t> TensorReader::list(const char*, const DLTensor*, int64_t);
template std::span<const int64_t> TensorReader::list(const char*, const DLTensor*, int64_t);
template std::span<const float> TensorReader::list(const char*, const DLTensor*, int64_t);

namespace {

KvCache cache_of(const sg_cache& c, const TensorView& k, const TensorView& v) {
  switch (c.layout) {
    case SG_NHD: return KvCache::nhd(k, v);
    case SG_HND: return KvCache::hnd(k, v);
    case SG_STACKED_NHD: return KvCache::stacked_nhd(k);
    case SG_STACKED_HND: return KvCache::stacked_hnd(k);
    case SG_MLA_LATENT: return KvCache::mla_latent(k, c.head_dim_vo);
    default: return KvCache::panels(k, v, c.head_dim_qk, c.head_dim_vo);
  }
}

int rank_of(int32_t layout) {
  const bool stacked = layout == SG_STACKED_NHD || layout == SG_STACKED_HND;
  return stacked ? 5 : layout == SG_MLA_LATENT ? 3 : 4;
}

}  // namespace

bool read_cache(const char* name, const sg_cache* given, TensorReader& reader, KvCache* cache) {
  sg_cache c;
  if (!take((std::string(name) + "cache").c_str(), given, &c)) return false;
  if (c.layout < SG_NHD || c.layout > SG_PANELS) {
    fail(SG_USAGE, "cache.layout is none of SG_NHD to SG_PANELS");
    return false;
  }
  const auto named = [&](const char* what) { return std::string(name) + what; };
  const bool two = c.layout == SG_NHD || c.layout == SG_HND || c.layout == SG_PANELS;
  const TensorView k = reader.need(named("k_cache").c_str(), c.k, rank_of(c.layout));
  const TensorView v = two ? reader.need(named("v_cache").c_str(), c.v, 4) : TensorView();
  if (!two && c.v != nullptr)
    reader.fail("input.shape", named("v_cache").c_str(), "NULL: k holds V, too", "a tensor");
  const TensorView k_scales = reader.may(named("k_scales").c_str(), c.k_scales, 3);
  const TensorView v_scales = reader.may(named("v_scales").c_str(), c.v_scales, 3);
  if (!k.defined() || (two && !v.defined())) return true;
  *cache = cache_of(c, k, v).with_scales(k_scales, v_scales);
  cache->k_scale = c.k_scale, cache->v_scale = c.v_scale;
  return true;
}

}  // namespace shadowgraph::c_api
