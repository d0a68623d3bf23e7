// Every violation of a call of the compressor at once: shapes, dtypes, lengths, pages outside the
// state or another request's, memory that overlaps. Tested by tests/attn/validate_indexer_test.cc.
#pragma once

#include "shadowgraph/layers/compress.h"

namespace shadowgraph {

Status validate(const Compress& call);
Status validate(const PoolNormRope& call);
Status validate(const NormRope& call);

}  // namespace shadowgraph
