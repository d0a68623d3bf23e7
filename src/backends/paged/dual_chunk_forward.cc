// Launches a step of dual-chunk attention: three calls for each layer, merged by their LSE.
#include <algorithm>

#include "attn/dual_chunk.h"
#include "backends/paged/dual_chunk.h"
#include "launch/attention_launch.h"
#include "launch/merge_launch.h"
#include "launch/scale_keys.h"

namespace shadowgraph {
namespace {

using Dc = DualChunkAttention;

/// What one call reads.
struct DualChunkView {
  DualChunkQuery query;
  Dc::BufferId lens, table;
};
constexpr DualChunkView kIntra{DualChunkQuery::kIntra, Dc::kSeqLensIntra, Dc::kBlockTablesIntra};
constexpr DualChunkView kSucc{DualChunkQuery::kSucc, Dc::kSeqLensSucc, Dc::kBlockTablesSucc};
constexpr DualChunkView kInter{DualChunkQuery::kInter, Dc::kSeqLensInter, Dc::kBlockTables};

/// One layer of a step.
class DualChunkLayer {
 public:
  DualChunkLayer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        io_(io),
        params_(meta.limits.model.layers[static_cast<size_t>(io.kind)].params) {}

  void run() const {
    store();
    const Result out{io_.out, io_.lse};
    if (!meta_.has(kSucc.table)) return attend(kIntra, out);
    const bool inter = meta_.has(kInter.table);
    const Result a = part(Dc::kIntraOut, Dc::kIntraLse), b = part(Dc::kSuccOut, Dc::kSuccLse);
    attend(kIntra, a);
    attend(kSucc, b);
    if (!inter) return merge(a, b, out);
    const Result c = part(Dc::kInterOut, Dc::kInterLse);
    const Result both = part(Dc::kMergedOut, Dc::kMergedLse);
    attend(kInter, c);
    merge(a, b, both);
    merge(both, c, out);
  }

 private:
  /// The result of a call over some of a query's keys, or over all.
  struct Result {
    TensorView out;
    NaturalLse lse;
  };
  Result part(Dc::BufferId out, Dc::BufferId lse) const {
    const int64_t tokens = io_.q.shape[0];
    return {scratch_rows(meta_[out], tokens, params_.num_qo_heads, params_.head_dim_vo),
            NaturalLse(scratch_rows(meta_[lse], tokens, params_.num_qo_heads))};
  }

  std::span<const int32_t> query_starts() const {
    return elements<int32_t>(meta_[Dc::kQueryStartLoc]);
  }
  bool cuts_rows() const { return meta_.has(Dc::kRowStartLoc); }

  /// A key carries its factor in the cache: it is there before the store.
  void store() const {
    LayerIo io = io_;
    if (meta_.has(Dc::kScalingFactor)) {
      ScaleKeys scale;
      scale.k = io_.k;
      scale.cu_seqlens = query_starts();
      scale.factors = elements<float>(meta_[Dc::kScalingFactor]);
      scale.out = scratch_rows(meta_[Dc::kScaledKeys], io_.k.shape[0], params_.num_kv_heads,
                               params_.head_dim_qk);
      stream_.launch(scale_keys_launch(scale, {1, meta_.limits.first_row}));
      io.k = scale.out;
    }
    launch_store(stream_, io, meta_[Dc::kOutCacheLoc], token_rows(meta_.limits));
  }

  ConstTensorView queries(DualChunkQuery copy) const {
    ConstTensorView q = io_.q;
    q.data += static_cast<int64_t>(copy) * params_.num_qo_heads * q.stride[1] *
              static_cast<int64_t>(size_of(q.dtype));
    q.shape[1] = params_.num_qo_heads;
    return q;
  }

  /// Behind its own chunk's keys no key is hidden.
  void attend(const DualChunkView& view, const Result& to) const {
    const Buffer& table = meta_[view.table];
    PagedAttention c;
    c.q = queries(view.query);
    c.cache = io_.cache;
    c.pages = PageTable::dense(elements<int32_t>(table), table.shape[1],
                               elements<int32_t>(meta_[view.lens]));
    c.cu_seqlens_q = cuts_rows() ? elements<int32_t>(meta_[Dc::kRowStartLoc]) : query_starts();
    c.params = params_;
    c.params.causal = view.query == DualChunkQuery::kIntra;
    c.out = to.out, c.lse = to.lse;
    const Limits& limits = meta_.limits;
    c.max_seqlen_q = std::min(limits.max_q_len, limits.model.dual_chunk.chunk_len());
    stream_.launch(attention_launch(c, {cuts_rows() ? 0 : 1, limits.first_row}));
  }

  void merge(const Result& a, const Result& b, const Result& to) const {
    MergeState<LseBase::kNatural> c;
    c.v_a = a.out, c.s_a = a.lse.tensor;
    c.v_b = b.out, c.s_b = b.lse.tensor;
    c.out = to.out, c.lse = to.lse;
    stream_.launch(merge_launch(c, query_starts()));
  }

  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const AttentionParams& params_;
};

}  // namespace

std::vector<int32_t> DualChunkAttention::merged_parts(const ForwardBatch& batch,
                                                      const Limits& limits,
                                                      const LayerKind& /*kind*/) const {
  const DualChunk chunks{limits.model.dual_chunk.chunk_len()};
  std::vector<int32_t> parts;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    for (int32_t p = e.prefix_len; p < e.kv_len; ++p) parts.push_back(chunks.parts(p));
  }
  return parts;
}

void DualChunkAttention::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  for (const LayerIo& io : step.layers) DualChunkLayer(stream, meta, io).run();
}

}  // namespace shadowgraph
