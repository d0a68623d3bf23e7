#include "fuzz/call/data.h"

#include <algorithm>
#include <cmath>

#include "check/bounds/rounding.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// Uniform in [-1, 1), with as many bits as the type can hold.
float random_value(DType t, Rng& rng) {
  switch (t) {
    case DType::kF32: return rng.signed_unit();
    case DType::kF16: return static_cast<float>(static_cast<int>(rng.below(2048)) - 1024) / 1024;
    case DType::kBF16: return static_cast<float>(static_cast<int>(rng.below(256)) - 128) / 128;
    default: return static_cast<float>(static_cast<int>(rng.below(16)) - 8) / 8;
  }
}

/// What store_kv makes of a token and head again: a code of 127 or -127 is among its own, and scale
/// times code, of few bits, is exact. Or nothing but 0.
void fill_random_codes(LogicalTensor& t, Rng& rng) {
  for (int64_t token = 0; token < t.tokens(); ++token) {
    for (int64_t head = 0; head < t.heads; ++head) {
      if (rng.below(16) == 0) continue;
      const auto bits = static_cast<float>(256 + rng.below(256));
      t.scale(token, head) = std::ldexp(bits, -16 - static_cast<int>(rng.below(4)));
      for (int64_t d = 0; d < t.dim; ++d) {
        int code = static_cast<int>(rng.below(255)) - 127;
        if (d == t.dim - 1) code = code < 0 ? -127 : 127;
        store_float(t.row(token, head), t.dtype, d, static_cast<float>(code));
      }
    }
  }
}

}  // namespace

void fill(LogicalTensor& t, const std::function<float()>& next) {
  for (int64_t i = 0; i < t.count(); ++i) store_float(t.bytes.data(), t.dtype, i, next());
}

float far_factor(CaseData data, DType type, int exponent_of_one, Rng& rng) {
  constexpr int kLeast = 10;
  const int most = data == CaseData::kHuge ? 110 : 17;
  const Rounding of_type = rounding_to(type);
  const int smallest = std::ilogb(of_type.half_subnormal / of_type.u);  // that is normal
  const int last = std::min(most - exponent_of_one, std::ilogb(of_type.largest));
  const int first = std::clamp(kLeast - exponent_of_one, smallest, last);
  const float sign = rng.below(2) != 0 ? 1.F : -1.F;
  return std::ldexp(sign,
                    first + static_cast<int>(rng.below(static_cast<uint32_t>(last - first + 1))));
}

void fill_random(LogicalTensor& t, float factor, Rng& rng) {
  if (t.dtype == DType::kI8) return fill_random_codes(t, rng);
  fill(t, [&] { return factor * random_value(t.dtype, rng); });
}

float LogicalTensor::value(int64_t token, int64_t head, int64_t d) const {
  return load_float(row(token, head), dtype, d) * scale(token, head);
}

}  // namespace shadowgraph
