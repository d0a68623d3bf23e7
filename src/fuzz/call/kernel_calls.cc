#include "fuzz/call/kernel_calls.h"

#include "kernels/cache/store_kv.h"
#include "kernels/dense/merge_states.h"
#include "kernels/footprint.h"
#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/decay_gate.h"
#include "kernels/recurrent/linear_attention.h"
#include "kernels/sparse/act_quant.h"
#include "kernels/sparse/compress.h"
#include "kernels/sparse/index_keys.h"
#include "kernels/sparse/index_lists.h"
#include "kernels/sparse/indexer_logits.h"
#include "kernels/sparse/sparse_attention.h"

namespace shadowgraph {
namespace {

struct Execute {
  Status operator()(const PagedAttention& c) const { return attention_with_kvcache(c); }
  Status operator()(const RaggedAttention& c) const { return attention_varlen(c); }
  template <LseBase Base>
  Status operator()(const MergeStates<Base>& c) const {
    return merge_states(c);
  }
  template <LseBase Base>
  Status operator()(const MergeState<Base>& c) const {
    return merge_state(c);
  }
  Status operator()(const LinearAttention& c) const { return linear_attention(c); }
  Status operator()(const CausalConv1d& c) const { return causal_conv1d(c); }
  Status operator()(const DecayGate& c) const { return decay_gate(c); }
  Status operator()(const SparseAttention& c) const { return sparse_attention(c); }
  Status operator()(const PackLatents& c) const { return pack_latents(c); }
  Status operator()(const ActQuant& c) const { return act_quant(c); }
  Status operator()(const StoreIndexKeys& c) const { return store_index_keys(c); }
  Status operator()(const GatherIndexKeys& c) const { return gather_index_keys(c); }
  Status operator()(const IndexerLogits& c) const { return indexer_logits(c); }
  Status operator()(const SelectIndices& c) const { return select_indices(c); }
  Status operator()(const TransformIndices& c) const { return transform_indices(c); }
  Status operator()(const CompactIndices& c) const { return compact_indices(c); }
  Status operator()(const Compress& c) const { return compress(c); }
  Status operator()(const PoolNormRope& c) const { return pool_norm_rope(c); }
  Status operator()(const NormRope& c) const { return norm_rope(c); }
  Status operator()(const StoreKv& c) const { return store_kv(c); }
  Status operator()(const CopyKv& c) const { return copy_kv(c); }
};

/// All tokens of a page of a plane, and their scales.
void add_page(const KvPlane& p, const KvCache& cache, int64_t page, Access access,
              Footprint* spans) {
  const int64_t pieces =
      p.order == KvOrder::kStrided ? cache.page_size : cache.page_size / kPanelTokens;
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    for (int64_t piece = 0; piece < pieces; ++piece)
      spans->push_back({p.data,
                        page * p.page_stride + head * p.head_stride + piece * p.token_stride,
                        contiguous_elements(p.order, p.dtype, p.head_dim),
                        static_cast<uint32_t>(size_of(p.dtype)), access});
    for (int64_t token = 0; p.scales != nullptr && token < cache.page_size; ++token)
      spans->push_back({p.scales, p.scale_offset(page, token, head), 1, sizeof(float), access});
  }
}

struct FootprintOf {
  Footprint operator()(const PagedAttention& c) const { return attention_footprint(c); }
  Footprint operator()(const RaggedAttention& c) const { return attention_footprint(c); }
  template <LseBase Base>
  Footprint operator()(const MergeStates<Base>& c) const {
    return merge_states_footprint(StateViews<Base>::of(c));
  }
  template <LseBase Base>
  Footprint operator()(const MergeState<Base>& c) const {
    return merge_states_footprint(StateViews<Base>::of(c));
  }
  Footprint operator()(const LinearAttention& c) const { return linear_attention_footprint(c); }
  Footprint operator()(const CausalConv1d& c) const { return causal_conv1d_footprint(c); }
  Footprint operator()(const DecayGate& c) const { return decay_gate_footprint(c); }
  Footprint operator()(const SparseAttention& c) const { return sparse_attention_footprint(c); }
  Footprint operator()(const PackLatents& c) const { return pack_latents_footprint(c); }
  Footprint operator()(const ActQuant& c) const { return act_quant_footprint(c); }
  Footprint operator()(const StoreIndexKeys& c) const { return store_index_keys_footprint(c); }
  Footprint operator()(const GatherIndexKeys& c) const { return gather_index_keys_footprint(c); }
  Footprint operator()(const IndexerLogits& c) const { return indexer_logits_footprint(c); }
  Footprint operator()(const SelectIndices& c) const { return select_indices_footprint(c); }
  Footprint operator()(const TransformIndices& c) const { return transform_indices_footprint(c); }
  Footprint operator()(const CompactIndices& c) const { return compact_indices_footprint(c); }
  Footprint operator()(const Compress& c) const { return compress_footprint(c); }
  Footprint operator()(const PoolNormRope& c) const { return pool_norm_rope_footprint(c); }
  Footprint operator()(const NormRope& c) const { return norm_rope_footprint(c); }
  Footprint operator()(const StoreKv& c) const { return store_kv_footprint(c); }
  Footprint operator()(const CopyKv& c) const {
    Footprint spans;
    const int64_t pages = c.whole_pool ? c.target.num_pages : std::ssize(c.target_pages);
    const auto add = [&](const KvCache& cache, int64_t page, Access access) {
      add_page(cache.k, cache, page, access, &spans),
          add_page(cache.v, cache, page, access, &spans);
    };
    for (int64_t i = 0; i < pages; ++i) {
      const auto place = static_cast<size_t>(i);
      add(c.source, c.whole_pool ? i : c.source_pages[place], Access::kRead);
      add(c.target, c.whole_pool ? i : c.target_pages[place], Access::kWrite);
    }
    return spans;
  }
};

}  // namespace

Status execute(const AttentionCall& call) { return std::visit(Execute(), call); }
Status execute(const MergeCall& call) { return std::visit(Execute(), call); }
Status execute(const StateCall& call) { return std::visit(Execute(), call); }
Status execute(const GateCall& call) { return std::visit(Execute(), call); }
Status execute(const SparseCall& call) { return std::visit(Execute(), call); }
Status execute(const CacheCall& call) { return std::visit(Execute(), call); }

Footprint footprint_of(const AttentionCall& call) { return std::visit(FootprintOf(), call); }
Footprint footprint_of(const MergeCall& call) { return std::visit(FootprintOf(), call); }
Footprint footprint_of(const StateCall& call) { return std::visit(FootprintOf(), call); }
Footprint footprint_of(const GateCall& call) { return std::visit(FootprintOf(), call); }
Footprint footprint_of(const SparseCall& call) { return std::visit(FootprintOf(), call); }
Footprint footprint_of(const CacheCall& call) { return std::visit(FootprintOf(), call); }

}  // namespace shadowgraph
