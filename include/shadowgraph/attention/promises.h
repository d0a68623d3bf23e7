// Promises that a recording makes of the kernel that ran: its arithmetic, and the mark that it
// leaves in rows that see no key.
#pragma once

#include <cstdint>
#include <optional>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// The mark that a kernel leaves in a row that sees no key.
struct EmptyRowMark {
  std::optional<double> lse = {};  // as stored, -inf if it is exact; absent: anything without mass
  bool nan_out = false;            // out may be NaN
};

/// How an arithmetic departs from the one that is named; check/bounds/declared.h makes a bound's
/// Arithmetic of both.
struct DeclaredArithmetic {
  // Type that weights are rounded to before they meet V, and what they are multiplied with before.
  // The sum sees them unrounded
  std::optional<DType> weights = {};
  float weights_scale = 1;
  DType scores = DType::kF32;  // type that q.k, its scaled form, and the masked one are rounded to
  bool tf32 = false;           // products of 10-bit fractions
  int32_t splits = 1;          // parts of a row's keys, each divided by its sum and stored in f32
};

}  // namespace shadowgraph
