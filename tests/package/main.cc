// A consumer: one query over one key. The only key has weight 1, so out is its value, exactly, and
// the LSE is q.k. And a property test of its own lengths.
#include <cstdint>
#include <cstdio>

#include "shadowgraph/shadowgraph.h"
#include "shadowgraph/testing.h"

namespace {

using namespace shadowgraph;

bool lengths_are_right() {
  const Status status = testing::check({}, [](testing::Steps& steps) {
    testing::Shadowed<int32_t> lens(steps, "lens", 4);
    while (const testing::Case* c = steps.next()) {
      for (int64_t i = 0; i < c->batch.size(); ++i) lens.data()[i] = c->batch.extent(i).kv_len;
      steps.expect(check_kv_lens(lens, c->truth));
    }
  });
  std::printf("property test: %s\n", status.to_string().c_str());
  return status.ok();
}

}  // namespace

int main() {
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
  return status.ok() && out[0] == 5 && out[1] == -6 && lengths_are_right() ? 0 : 1;
}
