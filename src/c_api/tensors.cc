#include "c_api/tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "c_api/errors.h"

namespace shadowgraph::c_api {
namespace {

constexpr uint8_t kBoolCode = 6, kE4M3Code = 10, kE5M2Code = 12;  // behind DLPack 0.6's
constexpr const char* kDTypes =
    "float32, float16, bfloat16, float8 (e4m3fn, e5m2), float64, int8, int32, int64, uint8 or bool";
constexpr int kHostDevices[] = {kDLCPU, kDLCUDAHost};

template <class T>
constexpr DType kElement = DType::kI32;
template <>
constexpr DType kElement<int64_t> = DType::kI64;
template <>
constexpr DType kElement<float> = DType::kF32;

/// "int16", "float64 in vectors of 4"
std::string described(const DLDataType& type) {
  static constexpr std::pair<uint8_t, const char*> kNames[] = {
      {kDLInt, "int"},       {kDLUInt, "uint"},       {kDLFloat, "float"},
      {kDLBfloat, "bfloat"}, {kDLComplex, "complex"}, {kBoolCode, "bool"}};
  const auto* const known =
      std::ranges::find(kNames, type.code, &std::pair<uint8_t, const char*>::first);
  if (known == std::end(kNames))
    return "another type (DLPack's code " + std::to_string(type.code) + ")";
  const std::string name = known->second + std::to_string(type.bits);
  return type.lanes == 1 ? name : name + " in vectors of " + std::to_string(type.lanes);
}

/// "on a CUDA device"
std::string described_device(int device) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {2, "a CUDA device"},    {4, "an OpenCL device"}, {7, "a Vulkan device"},
      {8, "a Metal device"},   {10, "a ROCm device"},   {13, "CUDA's managed memory"},
      {14, "a oneAPI device"}, {16, "a Hexagon device"}};
  const auto* const known = std::ranges::find(kNames, device, &std::pair<int, const char*>::first);
  if (known != std::end(kNames)) return std::string("on ") + known->second;
  return "on a device of another kind (DLPack's " + std::to_string(device) + ")";
}

/// Elements of the axes from `axis` on, which begin at `data`.
template <class T>
void copy_axes(const std::byte* data, const DLTensor& t, int axis, std::vector<int64_t>* to) {
  if (axis == t.ndim) {
    T value;
    std::memcpy(&value, data, sizeof value);
    to->push_back(std::cmp_greater(value, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value));
    return;
  }
  int64_t stride = 1;  // of a compact tensor
  for (int i = axis + 1; i < t.ndim; ++i) stride *= t.shape[i];
  if (t.strides != nullptr) stride = t.strides[axis];
  for (int64_t i = 0; i < t.shape[axis]; ++i)
    copy_axes<T>(data + i * stride * static_cast<int64_t>(sizeof(T)), t, axis + 1, to);
}

template <class T>
void copy_integers(const std::byte* data, const DLTensor& t, std::vector<int64_t>* to) {
  size_t count = 1;
  for (int i = 0; i < t.ndim; ++i) count *= static_cast<size_t>(t.shape[i]);
  to->reserve(count);
  copy_axes<T>(data, t, 0, to);
}

struct IntegerType {
  uint8_t code, bits;
  const char* name;
  void (*copy)(const std::byte* data, const DLTensor& t, std::vector<int64_t>* to);
};

/// nullptr: no integers.
const IntegerType* integer_type_of(const DLDataType& type) {
  static constexpr IntegerType kTypes[] = {
      {kDLInt, 8, "int8", copy_integers<int8_t>},
      {kDLInt, 16, "int16", copy_integers<int16_t>},
      {kDLInt, 32, "int32", copy_integers<int32_t>},
      {kDLInt, 64, "int64", copy_integers<int64_t>},
      {kDLUInt, 8, "uint8", copy_integers<uint8_t>},
      {kDLUInt, 16, "uint16", copy_integers<uint16_t>},
      {kDLUInt, 32, "uint32", copy_integers<uint32_t>},
      {kDLUInt, 64, "uint64", copy_integers<uint64_t>},
      {kBoolCode, 8, "bool", copy_integers<uint8_t>},
  };
  const auto* const known = std::ranges::find_if(kTypes, [&](const IntegerType& t) {
    return t.code == type.code && t.bits == type.bits && type.lanes == 1;
  });
  return known == std::end(kTypes) ? nullptr : known;
}

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

bool TensorReader::sized(const char* name, const DLTensor& t, int least, int most) {
  const auto axes = [](int n) { return std::to_string(n) + (n == 1 ? " axis" : " axes"); };
  if (t.ndim < least || t.ndim > most) {
    const std::string range = least == most ? "" : std::to_string(least) + " to ";
    fail("input.shape", name, range + axes(most), "a tensor of " + axes(t.ndim));
    return false;
  }
  if (t.shape == nullptr && t.ndim > 0) {
    fail("input.null", name, "a shape", "NULL");
    return false;
  }
  constexpr int64_t kMostElements = int64_t{1} << 56;
  int64_t count = 1;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0) {
      fail("input.shape", name, "sizes >= 0", std::to_string(t.shape[i]));
      return false;
    }
    if (__builtin_mul_overflow(count, t.shape[i], &count) || count > kMostElements) {
      fail("input.overflow", name, "at most 2^56 elements", "more");
      return false;
    }
  }
  return true;
}

/// *data stays null where there is no element, whatever the address.
bool TensorReader::located(const char* name, const DLTensor& t, size_t element_size,
                           std::byte** data) {
  int device = 0;  // newer numbers are outside DLPack 0.6's enum
  std::memcpy(&device, &t.device.device_type, sizeof device);
  if (device != kHostDevices[0] && device != kHostDevices[1]) {
    fail("input.device", name, "memory of the CPU: copy it there", described_device(device));
    return false;
  }
  for (int i = 0; i < t.ndim; ++i)
    if (t.shape[i] == 0) return true;
  if (t.data == nullptr) {
    fail("input.null", name, "memory", "NULL");
    return false;
  }
  *data = static_cast<std::byte*>(t.data) + t.byte_offset;
  const size_t behind = reinterpret_cast<uintptr_t>(*data) % element_size;
  if (behind == 0) return true;
  fail("input.align", name, "an address that " + std::to_string(element_size) + " divides",
       std::to_string(behind) + " bytes behind one");
  return false;
}

TensorView TensorReader::need(const char* name, const DLTensor* t, int rank) {
  if (t == nullptr) {
    fail("input.null", name, "a tensor", "NULL");
    return {};
  }
  const std::optional<DType> dtype = dtype_of(t->dtype);
  if (!dtype) fail("input.dtype", name, kDTypes, described(t->dtype));
  if (!sized(name, *t, rank, rank)) return {};
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
  if (!located(name, *t, size_of(view.dtype), &view.data) || !dtype) return {};
  return view;
}

TensorReader::Integers TensorReader::integers(const char* name, const DLTensor* t) {
  if (t == nullptr) {
    fail("input.null", name, "a tensor", "NULL");
    return {};
  }
  const IntegerType* type = integer_type_of(t->dtype);
  if (type == nullptr) fail("input.dtype", name, "integers or bool", described(t->dtype));
  constexpr int kMostAxes = 4;
  std::byte* data = nullptr;
  if (!sized(name, *t, 0, kMostAxes) ||
      !located(name, *t, type == nullptr ? 1 : t->dtype.bits / size_t{8}, &data) || type == nullptr)
    return {};
  Integers read{.dtype = type->name, .shape = {t->shape, t->shape + t->ndim}, .data = {}};
  if (data != nullptr) type->copy(data, *t, &read.data);
  return read;
}

template <class T>
std::vector<T> TensorReader::copied(const char* name, const DLTensor* t, int rank) {
  if (t == nullptr || !sized(name, *t, rank, rank)) return {};
  const Integers read = integers(name, t);
  std::vector<T> values;
  values.reserve(read.data.size());
  for (const int64_t value : read.data) {
    values.push_back(static_cast<T>(value));
    if (std::cmp_equal(values.back(), value)) continue;
    status_.add(make_finding("len.overflow", at(name, std::ssize(values) - 1),
                             "a number of " + std::to_string(8 * sizeof(T)) + " bits",
                             std::to_string(value)));
  }
  return values;
}

template std::vector<int32_t> TensorReader::copied(const char*, const DLTensor*, int);
template std::vector<int64_t> TensorReader::copied(const char*, const DLTensor*, int);
template std::vector<uint8_t> TensorReader::copied(const char*, const DLTensor*, int);

template <class T>
std::span<const T> TensorReader::list(const char* name, const DLTensor* t, int64_t least) {
  if (t == nullptr) return {};
  const TensorView view = need(name, t, 1);
  return elements<T>(name, view, least);
}

template <class T>
std::span<const T> TensorReader::flat(const char* name, const DLTensor* t, int rank) {
  if (t == nullptr) return {};
  TensorView view = need(name, t, rank);
  if (!view.defined()) return {};
  int64_t step = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (view.shape[axis] > 1 && view.stride[axis] != step) {
      fail("input.stride", name, "a compact tensor", "another");
      return {};
    }
    step *= view.shape[axis];
  }
  view.rank = 1, view.shape[0] = step, view.stride[0] = 1;
  return elements<T>(name, view, 1);
}

template <class T>
std::span<const T> TensorReader::elements(const char* name, const TensorView& view, int64_t least) {
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
template std::span<const int32_t> TensorReader::flat(const char*, const DLTensor*, int);
template std::span<const float> TensorReader::flat(const char*, const DLTensor*, int);

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
