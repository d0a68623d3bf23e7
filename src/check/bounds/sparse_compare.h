// What packing and quantising calls should have left, held against the oracle's numbers, whoever
// ran the call. Used by the judges of recorded cases and by src/fuzz.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "check/bounds/array_judge.h"
#include "core/float_formats.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// One for each part of a latent. rope: what is stored as it is, but for its type.
struct LatentJudges {
  LatentJudges(LawId law, const std::string& prefix)
      : scales(law, prefix + "scales"), codes(law, prefix + "codes"), rope(law, prefix + "rope") {}
  void add_to(Status* status) const {
    for (const ArrayJudge* a : {&scales, &codes, &rope}) a->add_to(status);
  }

  ArrayJudge scales, codes, rope;
};

/// Latents of `pool` that the call should have stored: of call.latents in the slots of
/// call.out_cache_loc. relative: how far a quotient or a logarithm may be off before it is rounded;
/// 0: nothing is.
void compare_latents(const PackLatents& call, const LatentPool& pool, double relative,
                     LatentJudges* judges);

/// Blocks of act_quant as y and scale. quotient: relative error of x / scale before it is rounded
/// to e4m3. A value is one of those that a number that close to the true quotient is rounded to, as
/// rounding is monotonous.
void compare_blocks(const ActQuant& call, const ConstTensorView& y, const ConstTensorView& scale,
                    double quotient, ArrayJudge* scales, ArrayJudge* values);
/// The largest magnitude in a block of call.x, before the floor.
double largest_of_block(const ActQuant& call, int64_t block);

/// What one group of a token is packed from. amax: NaN where an element is not finite.
struct LatentGroup {
  int64_t token, first, count, index;
  double amax;
};
/// Calls visit(group) for all groups of tokens that are stored in a packed pool.
template <class Visit>
void for_each_latent_group(const PackLatents& call, const Visit& visit) {
  const bool dsa = call.pool.layout == LatentLayout::kDsa;
  const int64_t codes = dsa ? kDsaCodes : kV4Codes, count = dsa ? kDsaGroup : kV4Group;
  for (int64_t token = 0; token < std::ssize(call.out_cache_loc); ++token) {
    if (call.drops(call.out_cache_loc[static_cast<size_t>(token)])) continue;
    for (int64_t g = 0; g * count < codes; ++g) {
      LatentGroup group{token, g * count, count, g, 0};
      for (int64_t i = group.first; i < group.first + count; ++i) {
        const double a = std::abs(load_float(call.latents.at(token), call.latents.dtype, i));
        if (!std::isfinite(a)) group.amax = std::numeric_limits<double>::quiet_NaN();
        if (a > group.amax) group.amax = a;
      }
      visit(group);
    }
  }
}
/// A group's scale in a packed pool: as f32 (kDsa) or as a byte.
double latent_scale(const LatentPool& pool, int64_t slot, int64_t group);
/// 2^e with the least e such that amax <= 448 2^e; as its byte.
double v4_scale_byte(double amax);

}  // namespace shadowgraph
