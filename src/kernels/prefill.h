// prefill_paged and prefill_ragged: queries of any length (varlen extend, a cached prefix
// included).
//
// A unit of work is (request, KV head, block of query tokens); its rows are tokens x the group's
// query heads, so that a packed tile of keys serves the whole group. One pass over the keys:
// running maximum per tile of kPrefillTile keys. Tested by tests/kernels/attention_test.cc and
// tests/kernels/bits_test.cc.
#pragma once

#include "shadowgraph/attention.h"

namespace shadowgraph {

inline constexpr int32_t kPrefillTile = 256;  // keys; tiles start at multiples of it
inline constexpr int32_t kPrefillRows = 64;   // rows of a block, at least one token's group

/// Require a call that validate() accepts. Throw std::bad_alloc before anything is written.
void prefill_paged(const PagedAttention& call);
void prefill_ragged(const RaggedAttention& call);

}  // namespace shadowgraph
