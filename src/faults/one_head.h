// Calls of one query head.
#pragma once

#include "launch/partial_rows.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// One head of a view [rows, heads, ...].
template <class View>
View one_head(View t, int64_t head) {
  if (!t.defined()) return t;
  t.data = t.at(0, head);
  t.shape[1] = 1;
  return t;
}
inline NaturalLse one_head(const NaturalLse& lse, int64_t head) {
  return NaturalLse(one_head(lse.tensor, head));
}
inline AnyLse one_head(const AnyLse& lse, int64_t head) {
  return {one_head(lse.tensor, head), lse.base};
}
/// One head of a cache whose scales are not its tokens'.
inline KvCache one_head(KvCache cache, int64_t head) {
  for (KvPlane* p : {&cache.k, &cache.v})
    p->data += head * p->head_stride * static_cast<int64_t>(size_of(p->dtype));
  cache.num_kv_heads = 1;
  return cache;
}
inline AttentionParams one_head(AttentionParams p, int64_t head) {
  if (!p.sinks.empty()) p.sinks = p.sinks.subspan(static_cast<size_t>(head), 1);
  p.num_qo_heads = p.num_kv_heads = 1;
  return p;
}

}  // namespace shadowgraph
