// Footprints of sparse attention and of packing latents.
#include "kernels/recurrent/state_spans.h"
#include "kernels/spans.h"
#include "kernels/sparse/sparse_attention.h"

namespace shadowgraph {
namespace {

/// A slot's bytes: its latent, and of kV4 its scales; read ones but the eighth.
template <class Byte>
void add_latent(Footprint* spans, const BasicLatentPool<Byte>& pool, int64_t slot, Access access,
                int32_t row) {
  const LatentLayout layout = pool.layout;
  const int64_t count = layout == LatentLayout::kRows  ? pool.head_dim()
                        : layout == LatentLayout::kDsa ? kDsaBytes
                                                       : kV4Bytes;
  append(spans, {pool.data.data, pool.latent_at(slot), count, element_bytes(pool.data.dtype),
                 access, row});
  if (layout != LatentLayout::kV4) return;
  const int64_t scales = access == Access::kRead ? kV4Codes / kV4Group : kV4Scales;
  append(spans, {pool.data.data, pool.scales_at(slot), scales, 1, access, row});
}

void add_list(Footprint* spans, const ChosenKeys& list, int64_t tokens) {
  if (list.indptr.empty()) {
    add_list(spans, list.lengths);
  } else {
    add_list(spans, list.indptr);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const auto row = static_cast<int32_t>(t);
    if (list.count(t) > 0)
      append(spans, {list.indices.data(), list.begin(t), list.count(t), sizeof(int32_t),
                     Access::kRead, row});
    for (const int32_t slot : list.of(t))
      if (slot >= 0) add_latent(spans, list.pool, slot, Access::kRead, row);
  }
}

}  // namespace

Footprint sparse_attention_footprint(const SparseAttention& call) {
  Footprint spans;
  const int64_t tokens = call.q.shape[0];
  add_list(&spans, call.sinks);
  add_list(&spans, call.keys, tokens);
  if (call.extra.defined()) add_list(&spans, call.extra, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    add_plane(&spans, call.q, call.q.offset(t), Access::kRead, t);
    add_plane(&spans, call.out, call.out.offset(t), Access::kWrite, t);
    if (!call.lse.defined()) continue;
    const TensorView& lse = call.lse.tensor;
    add_block(&spans,
              {lse.data, lse.offset(t), 1, sizeof(float), Access::kWrite, static_cast<int32_t>(t)},
              {}, {lse.shape[1], lse.stride[1]});
  }
  return spans;
}

Footprint pack_latents_footprint(const PackLatents& call) {
  Footprint spans;
  for (size_t i = 0; i < call.out_cache_loc.size(); ++i) {
    const int64_t slot = call.out_cache_loc[i];
    const auto token = static_cast<int32_t>(i);
    append(&spans, {call.out_cache_loc.data(), token, 1, sizeof(int64_t), Access::kRead, token});
    if (call.drops(slot)) continue;
    append(&spans, {call.latents.data, call.latents.offset(token), call.pool.head_dim(),
                    element_bytes(call.latents.dtype), Access::kRead, token});
    add_latent(&spans, call.pool, slot, Access::kWrite, token);
  }
  return spans;
}

}  // namespace shadowgraph
