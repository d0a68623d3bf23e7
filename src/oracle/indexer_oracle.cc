#include "oracle/indexer_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attn/index_page.h"
#include "core/float_formats.h"

namespace shadowgraph {

IndexScore index_score(const IndexerLogits& call, int64_t token, int64_t s) {
  const IndexKeyPlace place = key_place(call, call.row(token), s);
  const std::byte* key = key_bytes(call, place);
  const double scale = key_scale(call, place);
  IndexScore r;
  for (int64_t head = 0; head < call.q.shape[1]; ++head) {
    const double w = load_float(call.weights.at(token, head), DType::kF32, 0);
    double dot = 0, products = 0;
    for (int64_t i = 0; i < kIndexDim; ++i) {
      const double q = load_float(call.q.at(token, head), DType::kE4M3, i);
      const double k = load_float(key, DType::kE4M3, i);
      dot += q * k, products += std::abs(q * k);
    }
    const double kept = dot > 0 ? dot : dot == dot ? 0 : dot;
    r.score += scale * w * kept;
    r.weighted += std::abs(scale * w * kept);
    r.products += std::abs(scale * w) * products;
  }
  return r;
}

std::vector<int32_t> largest_places(const std::vector<double>& scores, int64_t most) {
  std::vector<int32_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  const auto rank = [&](int32_t place) {
    const double x = scores[static_cast<size_t>(place)];
    return std::isnan(x) ? -std::numeric_limits<double>::infinity() : x;
  };
  std::ranges::stable_sort(places, [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  places.resize(static_cast<size_t>(std::min(most, std::ssize(places))));
  std::ranges::sort(places);
  return places;
}

double nearest_e4m3(double x) {
  if (std::isnan(x)) return x;
  double best = 0;
  bool best_even = true;
  // In the order of magnitudes, even ones and odd ones in turn.
  for (uint32_t bits = 0; bits < 0x7f; ++bits) {
    const double value = std::copysign(static_cast<double>(decode_float(bits, kE4M3Format)), x);
    const double nearer = std::abs(x - best) - std::abs(x - value);
    if (nearer < 0 || (nearer == 0 && best_even)) continue;
    best = value, best_even = bits % 2 == 0;
  }
  return best;
}

double block_scale(double amax, bool ue8m0) {
  const double scale = std::max(amax, static_cast<double>(kLeastAmax)) / 448;
  if (!ue8m0) return scale;
  double power = 0x1p-40;
  while (power < scale) power *= 2;
  return power;
}

}  // namespace shadowgraph
