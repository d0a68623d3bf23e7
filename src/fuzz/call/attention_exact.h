// T0: what the result must be on exact data, worked out with integers. Tested by
// tests/fuzz/attention_exact_test.cc.
#pragma once

#include <limits>

#include "check/bounds/arithmetic.h"
#include "fuzz/call/attention_data.h"
#include "fuzz/call/row_pieces.h"
#include "shadowgraph/attention/promises.h"

namespace shadowgraph {

/// A kernel's arithmetic, and its promises about LSE and empty rows.
struct KernelNumbers {
  Arithmetic arithmetic;
  LseBase lse_base = LseBase::kNatural;
  EmptyRowMark empty_row = {.lse = -std::numeric_limits<double>::infinity()};
  bool sees_nan = false;  // some key or value that a row sees is NaN
};

/// Holds every row of a case of exact data against its known value: to the bit, or within
/// the roundings of the kernel's own division. Rows that the kernel's arithmetic cannot give
/// exactly are left out. One finding at most: the first row that differs, naming the key whose
/// value stands there instead if there is one.
Status check_exact(const AttentionCase& x, const AttentionData& data, const RowResults& results,
                   const KernelNumbers& numbers);

}  // namespace shadowgraph
