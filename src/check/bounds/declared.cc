#include "check/bounds/declared.h"

#include <algorithm>

#include "core/laws.h"
#include "core/nearest.h"

namespace shadowgraph {

Finding no_such_arithmetic(const char* field, const std::string& name) {
  std::vector<std::string> names;
  for (const Arithmetic& a : kArithmetics) names.emplace_back(a.kernel);
  return make_finding("vector.case", at(field),
                      "a name of `list arithmetics`" + did_you_mean(name, names), '"' + name + '"');
}

Arithmetic with_declared(const Arithmetic& named, const DeclaredArithmetic& declared) {
  Arithmetic a = named;
  if (declared.weights) {
    a.round_p = RoundP::kToType, a.p_type = *declared.weights;
    a.sum_sees_rounded_p = false;
  }
  if (declared.weights_scale != 1) {
    a.p_scale = static_cast<double>(declared.weights_scale);
    a.out_roundings += 2;  // the product, and the division of the result
  }
  a.scores_type = declared.scores;
  if (declared.tf32) {
    a.tf32 = true;
    // A tensor core's sums: four products and the accumulator in one truncating step, at least.
    a.u_sum = std::max(a.u_sum, 0x1p-23);
    if (a.adds_per_block == 0) a.adds_per_block = 4;
  }
  if (declared.splits > 1) {
    a.parts *= declared.splits;
    if (a.partials == Partials::kUnscaled) a.partials = Partials::kF32;
  }
  return a;
}

}  // namespace shadowgraph
