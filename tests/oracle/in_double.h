// How far two computations of an attention row may lie apart where both are in double.
#pragma once

#include <cmath>

#include "check/bounds/rounding.h"
#include "oracle/oracle.h"

namespace shadowgraph {

struct InDouble {
  double logit = 0;  // of any key, absolute
  double sums = 0;   // of what is made of the logits, relative

  explicit InDouble(const OracleRow& row) {
    // The dot, the scale, and the difference from the largest logit: in each of the two.
    logit = 2 * gamma_of(row.terms + 6, 0x1p-53) * row.magnitudes.maxCoeff();
    // Each addend has an exponential, a product and additions behind it; then there is a division,
    // or a logarithm: a library's last place each.
    const auto n = static_cast<double>(row.keys.size()) + 1;
    sums = 2 * gamma_of(2 * n + 4, 0x1p-52);
  }
  double lse(double value) const { return logit + sums + std::abs(value) * 0x1p-51; }
  /// The bound of an element of out.
  double out(double value_max) const { return value_max * (std::expm1(2 * logit) + sums); }
};

}  // namespace shadowgraph
