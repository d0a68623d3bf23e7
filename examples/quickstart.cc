// Attention over a paged cache in one call, and what bad input gives back.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "shadowgraph/shadowgraph.h"

using namespace shadowgraph;

int main() {
  // Two requests with 3 and 2 keys; pages of 2 tokens, 1 KV head, head dim 4, pages in any order.
  std::vector<float> k(4 * 2 * 4, 0.5f), v(4 * 2 * 4), q(2 * 2 * 4, 1.0f), out(q.size());
  for (size_t slot = 0; slot < 8; ++slot) std::fill_n(&v[slot * 4], 4, static_cast<float>(slot));
  std::vector<int32_t> page_table = {3, 0, 1, 0}, cache_seqlens = {3, 2};

  PagedAttention call;
  call.q = TensorView(q.data(), DType::kF32, {2, 2, 4});  // one query a request, 2 heads
  call.cache = KvCache::nhd(TensorView(k.data(), DType::kF32, {4, 2, 1, 4}),
                            TensorView(v.data(), DType::kF32, {4, 2, 1, 4}));
  call.pages = PageTable::dense(page_table, 2, cache_seqlens);
  call.params.num_qo_heads = 2;
  call.params.num_kv_heads = 1;
  call.params.head_dim_qk = call.params.head_dim_vo = 4;
  call.params.sm_scale = 1 / std::sqrt(4.0f);
  call.out = TensorView(out.data(), DType::kF32, {2, 2, 4});
  Status status = attention_with_kvcache(call);
  std::printf("%s: request 0 got %.3f, request 1 got %.3f\n", status.to_string().c_str(), out[0],
              out[8]);

  // All keys are equal, so a result is the mean of the slots seen: (6 + 7 + 0) / 3 and (2 + 3) / 2.
  if (!status.ok() || out[0] != 13.0f / 3 || out[8] != 2.5f) return 1;

  // Every fault is named, not only the first; nothing is written.
  page_table[1] = 99;  // there are 4 pages
  page_table[2] = -1;
  call.out = TensorView(q.data(), DType::kF32, {2, 2, 4});  // over the queries
  status = attention_with_kvcache(call);
  std::printf("%s\n", status.to_string().c_str());
  return status.findings().size() == 3 && q[0] == 1 ? 0 : 1;
}
