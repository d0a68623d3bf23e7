#include "check/worlds/layer_buffers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/bits.h"
#include "core/laws.h"

namespace shadowgraph {

BufferSpec vectors_of(const char* name, DType dtype, std::vector<int64_t> shape,
                      Lifetime lifetime) {
  const int64_t granule = std::max<int64_t>(1, shape.back());
  return {name, dtype, std::move(shape), lifetime, granule};
}

std::vector<float> layer_numbers(int64_t count, RunnerData data, Rng& rng) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) {
    v = rng.signed_unit();
    if (data != RunnerData::kRandom) v = std::round(v * 2);
  }
  return values;
}

void HostCopies::copy(std::byte* to, const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  in_flight_.emplace_back(first, first + bytes);
  stream_.copy(to, in_flight_.back().data(), bytes);
}

Status compare_outputs(const Buffer& out, int64_t first, std::span<const float> want) {
  Status status;
  const int64_t a_token = out.rows(0, 1).count;
  const auto* got = reinterpret_cast<const float*>(out.data) + first * a_token;
  judged("num.bits", std::ssize(want));
  const int64_t i = first_difference(want.data(), got, std::ssize(want), DType::kF32);
  if (i < 0) return status;
  status.add(make_finding(
      "num.bits", at(out.name, first + i / a_token, i % a_token),
      bits_of(&want[static_cast<size_t>(i)], DType::kF32) + ", which the request gives by itself",
      bits_of(got + i, DType::kF32)));
  return status;
}

}  // namespace shadowgraph
