#include "fuzz/sparse_call.h"

#include "kernels/act_quant.h"
#include "kernels/compress.h"
#include "kernels/index_keys.h"
#include "kernels/index_lists.h"
#include "kernels/indexer_logits.h"
#include "kernels/sparse_attention.h"

namespace shadowgraph {
namespace {

struct Execute {
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
};

struct FootprintOf {
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
};

}  // namespace

Status execute(const SparseCall& call) { return std::visit(Execute(), call); }
Footprint footprint_of(const SparseCall& call) { return std::visit(FootprintOf(), call); }

}  // namespace shadowgraph
