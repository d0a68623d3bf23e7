#include "fuzz/gapped.h"

#include <utility>

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// Poison over the elements of t from axis `axis` on; `at` is where its first one lies.
void poison_elements(const ConstTensorView& t, int axis, std::byte* at) {
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  const bool run = axis == t.rank - 1 && t.stride[axis] == 1;
  if (run || axis == t.rank) {
    const int64_t count = run ? t.shape[axis] : 1;
    std::memset(at, std::to_integer<int>(kPoison), static_cast<size_t>(count * size));
    return;
  }
  for (int64_t i = 0; i < t.shape[axis]; ++i)
    poison_elements(t, axis + 1, at + i * t.stride[axis] * size);
}

}  // namespace

TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::initializer_list<int64_t> shape,
                       Rng& rng) {
  TensorView t(nullptr, dtype, shape);
  const uint32_t widest = rng.below(3) == 0 ? 1 : 4;
  int64_t extent = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.stride[axis] = extent;
    extent = extent * t.shape[axis] + (axis > 0 ? rng.below(widest) : 0);
  }
  const auto size = static_cast<int64_t>(size_of(dtype));
  buffer = GuardedBuffer(extent * size, rng.below(8) * size);
  t.data = buffer.data();
  return t;
}

TensorView make_gapped_lse(GuardedBuffer& buffer, int64_t rows, int64_t heads, Rng& rng) {
  if (rng.below(3) != 0) return make_gapped(buffer, DType::kF32, {rows, heads}, rng);
  TensorView t = make_gapped(buffer, DType::kF32, {heads, rows}, rng);
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.stride[0], t.stride[1]);
  return t;
}

Status check_write_set(const GuardedBuffer& buffer, const ConstTensorView& written,
                       const char* field) {
  Status status;
  if (!written.defined()) return status;
  GuardedBuffer rest = buffer;
  poison_elements(written, 0, rest.data() + (written.data - buffer.data()));
  if (!rest.untouched())
    status.add(make_finding("num.write_set", at(field), "writes to its rows only", "others"));
  return status;
}

}  // namespace shadowgraph
