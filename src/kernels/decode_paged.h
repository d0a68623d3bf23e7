// decode_paged: one query a request over a paged cache.
//
// A unit of work is (request, KV head, split): splits are kDecodeSplit keys long and start at
// multiples of it, whatever the batch and the number of threads, and their states are merged in
// order. So the reduction is a function of the row's own visible range (fixed split size, not fixed
// split count; DESIGN, Numbers). Tested by tests/kernels/attention_test.cc and
// tests/kernels/bits_test.cc.
#pragma once

#include "shadowgraph/attention.h"

namespace shadowgraph {

inline constexpr int32_t kDecodeTile = 64;    // keys between two looks at the running maximum
inline constexpr int32_t kDecodeSplit = 512;  // keys

/// Requires a call that validate() accepts, with empty cu_seqlens_q. Throws std::bad_alloc before
/// anything is written.
void decode_paged(const PagedAttention& call);

}  // namespace shadowgraph
