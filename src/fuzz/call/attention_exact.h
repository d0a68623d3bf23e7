// T0: what the result must be on exact data, worked out with integers.
#pragma once

#include "fuzz/call/attention_data.h"
#include "fuzz/call/row_pieces.h"

namespace shadowgraph {

/// Every row of a kUniform or kSelector case against its known value, to the bit. One finding at
/// most: the first row that differs, naming the key whose value stands there instead if there is
/// one.
Status check_exact(const AttentionCase& x, const AttentionData& data, const RowResults& results);

}  // namespace shadowgraph
