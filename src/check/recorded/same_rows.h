// Rows that a recording says to be another's: the inputs are the same, and so must the bits be.
// Tested by tests/check/promises_test.cc.
#pragma once

#include "attn/cases/recorded_case.h"

namespace shadowgraph {

/// Whether two elements, by their offsets, have the same bits; a NaN is any.
bool same_element(const ConstTensorView& a, int64_t i, const ConstTensorView& b, int64_t j);

/// num.bits for out, and for the LSE where both cases have one: at the first element that differs.
/// vector.case where a row has other inputs, or the oracle other results for it.
/// Requires same_rows of find_same_rows(), and calls that the engine accepts.
Status judge_same_rows(const RecordedCase& c);

}  // namespace shadowgraph
