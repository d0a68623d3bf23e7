// Launches a step of DeepSeek sparse attention: store, score, choose, attend.
#include <variant>

#include "attn/tensor_rows.h"
#include "backends/sparse/dsa.h"
#include "launch/gather_rows.h"
#include "launch/index_launch.h"
#include "launch/row_numbers.h"
#include "launch/sparse_launch.h"

namespace shadowgraph {
namespace {

using Dsa = DeepSeekSparse;

/// One layer's launches.
class DsaLayer {
 public:
  DsaLayer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        io_(io),
        layer_(*sparse_of(meta.limits.model.layers[static_cast<size_t>(io.kind)])),
        tensors_(*std::get<const SparseTensors*>(io.own)),
        prefill_(is_sparse_prefill(meta.limits.mode)) {}

  /// In the engine's order: the indexer's own step, then the latents', then attention.
  void run() const {
    store_index_keys();
    if (prefill_) gather_index_keys();
    score();
    choose();
    store_latents();
    if (ragged()) gather_latents();
    attend();
  }

 private:
  RequestRows tokens() const { return token_rows(meta_.limits); }
  RequestRows requests() const { return {1, meta_.limits.first_row}; }
  bool ragged() const { return meta_.has(Dsa::kPackedLatents); }
  std::span<const int32_t> ints(Dsa::BufferId buffer) const {
    return elements<int32_t>(meta_[buffer]);
  }
  std::span<const int64_t> out_cache_loc() const {
    return elements<int64_t>(meta_[Dsa::kOutCacheLoc]);
  }

  void store_index_keys() const {
    StoreIndexKeys c;
    c.k = tensors_.index_k, c.k_scale = tensors_.index_k_scale;
    c.out_cache_loc = out_cache_loc();
    c.pages = tensors_.index_pages;
    stream_.launch(store_index_keys_launch(c, tokens()));
  }

  void gather_index_keys() const {
    GatherIndexKeys c;
    c.pages = tensors_.index_pages;
    c.page_table = meta_[Dsa::kRealPageTable].view();
    c.cu_seqlens_k = ints(Dsa::kCuSeqlensK);
    c.k = meta_[Dsa::kPackedKeys].view(), c.k_scale = meta_[Dsa::kPackedScales].view();
    stream_.launch(gather_index_keys_launch(c, requests()));
  }

  void score() const {
    IndexerLogits c;
    c.q = tensors_.index_q, c.weights = tensors_.index_weights;
    if (prefill_) {
      c.k = meta_[Dsa::kPackedKeys].view(), c.k_scale = meta_[Dsa::kPackedScales].view();
      c.ks = ints(Dsa::kKs), c.ke = ints(Dsa::kKe);
    } else {
      c.pages = tensors_.index_pages;
      c.page_table = meta_[Dsa::kRealPageTable].view();
      c.ke = ints(Dsa::kContextLens);
    }
    c.logits = meta_[Dsa::kLogits].view();
    stream_.launch(indexer_logits_launch(c, tokens()));
  }

  void choose() const {
    ChooseIndices c;
    c.select.logits = meta_[Dsa::kLogits].view();
    if (prefill_) c.select.ks = ints(Dsa::kKs);
    c.select.ke = ints(prefill_ ? Dsa::kChoiceEnds : Dsa::kExpanded);
    c.select.indices = meta_[Dsa::kChoice].view();
    c.transform.indices = c.select.indices;
    if (ragged()) {
      c.transform.offsets = ints(Dsa::kTopkOffset);
    } else {
      c.transform.page_table_1 = meta_[Dsa::kPageTable1].view();
      if (prefill_) c.transform.rows = ints(Dsa::kTokenToBatch);
    }
    c.transform.out = meta_[Dsa::kChosenSlots].view();
    stream_.launch(choose_indices_launch(c, tokens()));
  }

  void store_latents() const {
    PackLatents c;
    c.latents = io_.k;
    c.out_cache_loc = out_cache_loc();
    c.pool = tensors_.latents;
    c.first_slot = meta_.limits.model.page_size;
    stream_.launch(pack_latents_launch(c, tokens()));
  }

  void gather_latents() const {
    GatherRows c;
    c.rows = tensors_.latents.data;
    c.indices = ints(Dsa::kFlatSlots);
    c.cu_seqlens = ints(Dsa::kCuSeqlensK);
    c.out = meta_[Dsa::kPackedLatents].view();
    stream_.launch(gather_rows_launch(c, requests()));
  }

  void attend() const {
    SparseAttention c;
    c.q = io_.q;
    c.keys.pool = tensors_.latents;
    if (ragged()) c.keys.pool.data = meta_[Dsa::kPackedLatents].view();
    c.keys.indices = ints(Dsa::kChosenSlots), c.keys.width = layer_.topk;
    c.keys.lengths = ints(Dsa::kAttendedLens);
    c.head_dim_v = layer_.head_dim_v, c.sm_scale = layer_.sm_scale;
    c.out = io_.out, c.lse = io_.lse;
    stream_.launch(sparse_launch(c, tokens()));
  }

  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const SparseLayer& layer_;
  const SparseTensors& tensors_;
  const bool prefill_;
};

/// What top-k and attention are called with, made of what the engine's kernels are told: a choice
/// begins at ks and has dsa_seqlens_expanded keys; attention is told lengths and offsets of them.
void launch_lens(Stream& stream, const Meta& meta) {
  const auto ints = [&](Dsa::BufferId id) { return elements<int32_t>(meta[id]); };
  const RequestRows tokens = token_rows(meta.limits);
  if (meta.has(Dsa::kChoiceEnds)) {
    RowLens ends;
    ends.lens = ints(Dsa::kKs), ends.counts = ints(Dsa::kExpanded);
    ends.out = written<int32_t>(meta[Dsa::kChoiceEnds]);
    stream.launch(row_lens_launch(ends, tokens));
  }
  RowLens lens;
  lens.lens = ints(Dsa::kDsaCacheSeqlens), lens.of_lens = 2;
  lens.counts = ints(Dsa::kDsaCuSeqlensK), lens.of_counts = -1;
  lens.out = written<int32_t>(meta[Dsa::kAttendedLens]);
  stream.launch(row_lens_launch(lens, tokens));
}

}  // namespace

void DeepSeekSparse::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  if (meta.limits.tokens == 0) return;
  launch_lens(stream, meta);
  for (const LayerIo& io : step.layers) DsaLayer(stream, meta, io).run();
}

}  // namespace shadowgraph
