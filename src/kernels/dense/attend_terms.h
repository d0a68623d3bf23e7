// The body of calls whose logits have terms of their own (AttentionTerms::changes_scores), or whose
// heads have masks of their own: one for all instruction sets. Tested by
// tests/kernels/attend_terms_test.cc.
#pragma once

#include "kernels/dense/problem.h"

namespace shadowgraph {

/// Is a key's logit, or whether it is seen, more than q.k, scale, soft cap and a mask of all heads?
inline bool has_terms_of_keys(const AttentionParams& p) {
  return p.terms.changes_scores() || p.custom_mask.heads > 1;
}

/// Replaces Isa::attend for a unit at KV head `kv_head` and query `q_begin` of a request. It
/// computes logits and sums in double, one key after the other, so the bits of a row depend on
/// nothing else. A key whose bias is -inf is not seen.
void attend_terms(const Problem& p, const RequestView& r, int32_t kv_head, int32_t q_begin,
                  const AttendUnit& unit);

}  // namespace shadowgraph
