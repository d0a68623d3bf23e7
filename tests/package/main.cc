// A consumer: one query over one key. The only key has weight 1, so out is its value, exactly, and
// the LSE is q.k.
#include <cstdint>
#include <cstdio>

#include "shadowgraph/shadowgraph.h"

int main() {
  using namespace shadowgraph;
  float q[2] = {1, 2}, k[2] = {3, 4}, v[2] = {5, -6}, out[2] = {}, lse[1] = {};
  const int32_t page_table[1] = {0}, cache_seqlens[1] = {1};

  PagedAttention call;
  call.q = TensorView(q, DType::kF32, {1, 1, 2});
  call.cache = KvCache::nhd(TensorView(k, DType::kF32, {1, 1, 1, 2}),
                            TensorView(v, DType::kF32, {1, 1, 1, 2}));
  call.pages = PageTable::dense(page_table, 1, cache_seqlens);
  call.params.num_qo_heads = call.params.num_kv_heads = 1;
  call.params.head_dim_qk = call.params.head_dim_vo = 2;
  call.params.sm_scale = 1;
  call.out = TensorView(out, DType::kF32, {1, 1, 2});
  call.lse = NaturalLse(TensorView(lse, DType::kF32, {1, 1}));

  const Status status = attention_with_kvcache(call);
  std::printf("shadowgraph %s: %s, out = [%g, %g], lse = %g\n", SHADOWGRAPH_VERSION,
              status.to_string().c_str(), out[0], out[1], lse[0]);
  return status.ok() && out[0] == 5 && out[1] == -6 ? 0 : 1;
}
