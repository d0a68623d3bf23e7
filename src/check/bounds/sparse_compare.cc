#include "check/bounds/sparse_compare.h"

#include <algorithm>
#include <cmath>

#include "check/bounds/linear_bound.h"
#include "check/bounds/rounding.h"
#include "oracle/indexer_oracle.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// The value of the nearest e4m3, saturated.
double code_of(double x) {
  const float clamped = static_cast<float>(std::isnan(x) ? x : std::clamp(x, -448.0, 448.0));
  return decode_float(encode_float(clamped, kE4M3Format), kE4M3Format);
}

/// What a rounded number is, and how far it may be off where its argument is within `relative`.
struct Rounded {
  double right = 0, bound = 0;
};
template <class Round>
Rounded rounded(double x, double relative, const Round& round) {
  Rounded r{round(x), 0};
  for (const double side : {x * (1 - relative), x * (1 + relative)})
    r.bound = std::max(r.bound, std::abs(round(side) - r.right));
  return r;
}

double x_of(const PackLatents& call, int64_t token, int64_t i) {
  return load_float(call.latents.at(token), call.latents.dtype, i);
}

void take_group(const PackLatents& call, const LatentPool& pool, const LatentGroup& g,
                double relative, LatentJudges* j) {
  const bool dsa = pool.layout == LatentLayout::kDsa;
  const int64_t slot = call.out_cache_loc[static_cast<size_t>(g.token)];
  const double scale = latent_scale(pool, slot, g.index);
  const double of_dsa = static_cast<float>(g.amax * static_cast<double>(1.F / 448));
  const Rounded right =
      dsa ? Rounded{of_dsa, relative > 0 ? gamma_of(2, 0x1p-24) * g.amax / 448 : 0}
          : rounded(g.amax, relative, v4_scale_byte);
  j->scales.take(g.token, g.index, scale, right.right, right.bound);
  const double factor = dsa ? scale : std::ldexp(1.0, static_cast<int>(scale) - 127);
  for (int64_t i = g.first; i < g.first + g.count; ++i) {
    const double x = x_of(call, g.token, i);
    const double quotient = factor == 0          ? 0
                            : std::isnan(g.amax) ? g.amax
                                                 : double{static_cast<float>(x / factor)};
    const Rounded code = rounded(quotient, dsa ? relative : 0, code_of);
    j->codes.take(g.token, i, load_float(pool.data.data + pool.latent_at(slot), DType::kE4M3, i),
                  code.right, code.bound);
  }
}

}  // namespace

double latent_scale(const LatentPool& pool, int64_t slot, int64_t group) {
  const std::byte* data = pool.data.data;
  if (pool.layout == LatentLayout::kDsa)
    return load_float(data + pool.latent_at(slot) + kDsaCodes, DType::kF32, group);
  return std::to_integer<int>(data[pool.scales_at(slot) + group]);
}

double v4_scale_byte(double amax) {
  if (std::isnan(amax)) return 255;
  int e = -40;
  while (std::ldexp(448, e) < std::max(amax, double{1e-8F})) ++e;
  return e + 127;
}

void compare_latents(const PackLatents& call, const LatentPool& pool, double relative,
                     LatentJudges* judges) {
  const bool rows = pool.layout == LatentLayout::kRows;
  const DType plain = rows ? pool.data.dtype : DType::kBF16;
  if (!rows)
    for_each_latent_group(
        call, [&](const LatentGroup& g) { take_group(call, pool, g, relative, judges); });
  for (int64_t token = 0; token < std::ssize(call.out_cache_loc); ++token) {
    const int64_t slot = call.out_cache_loc[static_cast<size_t>(token)];
    if (call.drops(slot)) continue;
    const std::vector<double> latent = latent_of(pool, slot);
    for (int64_t i = rows ? 0 : pool.head_dim() - kRopeDim; i < pool.head_dim(); ++i) {
      const double x = x_of(call, token, i);
      judges->rope.take(token, i, latent[static_cast<size_t>(i)], x,
                        call.latents.dtype == plain ? 0 : with_rounding(x, 0, plain));
    }
  }
}

double largest_of_block(const ActQuant& call, int64_t block) {
  double amax = 0;
  for (int64_t i = 0; i < kIndexDim; ++i)
    amax = std::max(amax, std::abs(element(call.x, block * kIndexDim + i)));
  return amax;
}

void compare_blocks(const ActQuant& call, const ConstTensorView& y, const ConstTensorView& scale,
                    double quotient, ArrayJudge* scales, ArrayJudge* values) {
  for (int64_t block = 0; block < scale.numel(); ++block) {
    const double amax = largest_of_block(call, block), error = gamma_of(2, 0x1p-24);
    const double got = element(scale, block);
    double right = block_scale(amax, call.ue8m0), bound = right * error;
    if (call.ue8m0) {
      // What is rounded up may have been wrong by two roundings: across a power, where it is one.
      const double low = block_scale(amax * (1 - error), true);
      right = got == low ? low : block_scale(amax * (1 + error), true), bound = 0;
    }
    scales->take(block / scale.shape[1], block % scale.shape[1], got, right, bound);
    for (int64_t i = block * kIndexDim; i < (block + 1) * kIndexDim; ++i) {
      const double q = element(call.x, i) / got, e = std::abs(q) * quotient;
      const double value = element(y, i);
      const double nearest =
          std::isnan(q) ? q : std::clamp(value, nearest_e4m3(q - e), nearest_e4m3(q + e));
      values->take(i / call.x.shape[1], i % call.x.shape[1], value, nearest, 0);
    }
  }
}

}  // namespace shadowgraph
