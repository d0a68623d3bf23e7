#include "kernels/sparse/act_quant.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attn/validate/validate_indexer.h"
#include "core/e4m3_scale.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

constexpr int64_t kQuantTokens = 16;  // edge: tokens; of one item of work

void quantise_block(const ActQuant& call, int64_t token, int64_t block) {
  std::array<float, kIndexDim> values;
  float amax = kLeastAmax;
  const std::byte* from = call.x.at(token, block * kIndexDim);
  for (int64_t i = 0; i < kIndexDim; ++i) {
    const float x = load_float(from, call.x.dtype, i);
    values[static_cast<size_t>(i)] = x;
    amax = std::abs(x) > amax ? std::abs(x) : amax;
  }
  const bool power = call.ue8m0 && std::isfinite(amax);
  const float scale = power ? std::ldexp(1.F, e4m3_exponent(amax)) : amax * (1 / kLargestE4M3);
  store_float(call.scale.at(token, block), DType::kF32, 0, scale);
  std::byte* to = call.y.at(token, block * kIndexDim);
  for (int64_t i = 0; i < kIndexDim; ++i)
    store_float(to, DType::kE4M3, i, values[static_cast<size_t>(i)] / scale);
}

void quantise_tokens(const ActQuant& call, int64_t item) {
  const int64_t end = std::min(call.x.shape[0], (item + 1) * kQuantTokens);
  for (int64_t t = item * kQuantTokens; t < end; ++t)
    for (int64_t block = 0; block < call.x.shape[1] / kIndexDim; ++block)
      quantise_block(call, t, block);
}

}  // namespace

void act_quant_kernel(const ActQuant& call) {
  const int64_t items = (call.x.shape[0] + kQuantTokens - 1) / kQuantTokens;
  // One reference: a std::function takes memory for more than two.
  parallel_for(items, team_size(call.options.num_threads, items),
               [&call](int64_t item, int) { quantise_tokens(call, item); });
}

Footprint act_quant_footprint(const ActQuant& call) {
  Footprint spans;
  for (int64_t t = 0; t < call.x.shape[0]; ++t) {
    add_line(&spans, call.x, t, Access::kRead);
    add_line(&spans, call.y, t, Access::kWrite);
    add_line(&spans, call.scale, t, Access::kWrite);
  }
  return spans;
}

Status act_quant(const ActQuant& call) noexcept {
  return checked(call, [&] { act_quant_kernel(call); });
}

}  // namespace shadowgraph
