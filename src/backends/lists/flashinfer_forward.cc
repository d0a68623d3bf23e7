// Launches a step of FlashInfer: paged and ragged calls by their plans, and the merge of their
// parts.
#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_wrapper.h"
#include "launch/tile_launch.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;
using Part = Fi::Part;

/// One layer of a step.
class FlashInferLayer {
 public:
  FlashInferLayer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        io_(io),
        kind_(meta.limits.model.layers[static_cast<size_t>(io.kind)]),
        w_(wrapper_of(meta.limits.model, kind_)),
        wrapper_(FlashInferWrapper::of(meta.limits, w_)) {}

  void run() const {
    if (wrapper_.ragged) {
      own_and_prefix();
      store();
    } else {
      store();
      attend(paged(), Part::kPaged, {io_.out, io_.lse});
    }
  }

 private:
  /// The result of a call over some of a query's keys, or over all.
  struct Result {
    TensorView out;
    AnyLse lse;
  };

  const Buffer& buffer(int id) const { return meta_[static_cast<size_t>(id)]; }
  template <class T = int32_t>
  std::span<const T> array(int id) const {
    return elements<T>(buffer(id));
  }

  void store() const {
    const auto loc = kind_.cross            ? Fi::kEncoderOutCacheLoc
                     : wrapper_.window_pool ? Fi::kSwaOutCacheLoc
                                            : Fi::kOutCacheLoc;
    launch_store(stream_, io_, meta_[loc], kind_.cross ? RequestRows{0} : token_rows(meta_.limits));
  }

  /// Over the wrapper's list. Where a tree's mask says it, or all keys are an encoder's, neither
  /// causal nor the window does. A prefix is run with the window, too, as the engine does: counted
  /// from the end of the list it hides none of the keys that the mask shows.
  TiledAttention paged() const {
    TiledAttention c;
    c.kv_indptr = array(Fi::list(w_, Fi::kKvIndptr));
    c.kv_indices = array(Fi::list(w_, Fi::kKvIndices));
    c.cache = slot_view(io_.cache);
    c.params = kind_.params;
    if (kind_.cross || wrapper_.masked || wrapper_.ragged) c.params.causal = false;
    if (kind_.cross || (wrapper_.masked && !wrapper_.ragged))
      c.params.window_left = c.params.window_right = -1;
    if (wrapper_.items)
      c.items = {array(Fi::kItemPrefixLens), array(Fi::kTokenPosInItems), array(Fi::kMaxItemLens)};
    if (wrapper_.masked) {
      c.packed_mask = array<uint8_t>(Fi::list(w_, Fi::kMask));
      c.mask_indptr = array(Fi::list(w_, Fi::kMaskIndptr));
    }
    return c;
  }

  /// The step's own tokens, the prefix, and both as one. A sink is with the own tokens, of which
  /// every query sees one.
  void own_and_prefix() const {
    TiledAttention own;
    own.kv_indptr = array(Fi::kQoIndptr);
    own.k = io_.k, own.v = io_.v;
    own.params = kind_.params;
    TiledAttention prefix = paged();
    prefix.params.sinks = {};
    const int64_t tokens = io_.q.shape[0];
    MergePair pair;
    const Result a = result(Fi::kOwnOut, Fi::kOwnLse, tokens),
                 b = result(Fi::kPrefixOut, Fi::kPrefixLse, tokens);
    attend(own, Part::kRagged, a);
    attend(prefix, Part::kPaged, b);
    pair.v_a = a.out, pair.s_a = a.lse;
    pair.v_b = b.out, pair.s_b = b.lse;
    pair.out = io_.out, pair.lse = io_.lse;
    pair.qo_indptr = array(Fi::kQoIndptr);
    stream_.launch(merge_pair_launch(pair));
  }

  /// Scratch of so many rows.
  Result result(Fi::BufferId out, Fi::BufferId lse, int64_t rows) const {
    const AttentionParams& p = kind_.params;
    return {scratch_rows(meta_[out], rows, p.num_qo_heads, p.head_dim_vo),
            Log2Lse(scratch_rows(meta_[lse], rows, p.num_qo_heads))};
  }

  /// By its plan, and merged where that cuts keys.
  void attend(TiledAttention c, Part part, const Result& to) const {
    const PlanShape shape = wrapper_.shape(meta_.limits, part);
    const auto plan = [&](Fi::PlanId id) { return Fi::plan(w_, part, id); };
    const bool prefill = shape.kind == PlanKind::kPrefill;
    c.q = io_.q;
    if (prefill) c.qo_indptr = array(Fi::kQoIndptr);
    c.plan.request_indices = array(plan(Fi::kRequestIndices));
    if (prefill) c.plan.qo_tile_indices = array(plan(Fi::kQoTileIndices));
    c.plan.kv_tile_indices = array(plan(Fi::kKvTileIndices));
    c.plan.o_indptr = array(plan(Fi::kOIndptr));
    c.plan.merge_indptr = prefill ? array(plan(Fi::kMergeIndptr)) : c.plan.o_indptr;
    c.plan.kv_chunk_size = array(plan(Fi::kKvChunkSize));
    c.plan.block_valid_mask = array<uint8_t>(plan(Fi::kBlockValidMask));
    c.plan.cta_tile_q = shape.cta_tile_q();
    c.plan.split_kv = meta_.scalars[static_cast<size_t>(Fi::split_kv(w_, part))] != 0;
    c.out = to.out, c.lse = to.lse;
    if (c.plan.split_kv) {
      const Result partial =
          result(Fi::kPartialOut, Fi::kPartialLse, meta_[Fi::kPartialOut].shape[0]);
      c.out = partial.out, c.lse = partial.lse;
    }
    stream_.launch(tile_launch(c, {lists_a_row(meta_.limits), meta_.limits.first_row}));
    if (c.plan.split_kv) merge(c, to);
  }

  void merge(const TiledAttention& partial, const Result& to) const {
    MergeTiles c;
    c.v = partial.out, c.s = partial.lse;
    c.merge_indptr = partial.plan.merge_indptr;
    c.out = to.out, c.lse = to.lse;
    c.qo_indptr = partial.qo_indptr;
    stream_.launch(merge_tiles_launch(c));
  }

  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const LayerKind& kind_;
  const int w_;
  const FlashInferWrapper wrapper_;
};

}  // namespace

std::vector<KeyList> FlashInfer::key_lists(const Meta& meta, const LayerKind& kind) const {
  const int w = wrapper_of(meta.limits.model, kind);
  const FlashInferWrapper wrapper = FlashInferWrapper::of(meta.limits, w);
  const auto plan_of = [w](Part part) {
    return KeyPlan{.request_indices = plan(w, part, kRequestIndices),
                   .qo_tile_indices = plan(w, part, kQoTileIndices),
                   .kv_tile_indices = plan(w, part, kKvTileIndices),
                   .o_indptr = plan(w, part, kOIndptr),
                   .merge_indptr = plan(w, part, kMergeIndptr),
                   .kv_chunk_size = plan(w, part, kKvChunkSize),
                   .block_valid_mask = plan(w, part, kBlockValidMask),
                   .split_kv = split_kv(w, part),
                   .partial = kPartialLse};
  };
  KeyList paged = list_of_slots(list(w, kKvIndices), list(w, kKvIndptr), kQoIndptr);
  paged.masked = wrapper.masked || wrapper.items, paged.plan = plan_of(Part::kPaged);
  if (wrapper.masked)
    paged.mask = {.bits = list(w, kMask), .indptr = list(w, kMaskIndptr), .packed = true};
  if (wrapper.items) paged.items = {kItemPrefixLens, kTokenPosInItems, kMaxItemLens};
  if (!wrapper.ragged) return {paged};
  KeyList own = own_tokens(kQoIndptr);
  own.plan = plan_of(Part::kRagged);
  return {paged, own};
}

void FlashInfer::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  for (const LayerIo& io : step.layers) FlashInferLayer(stream, meta, io).run();
}

}  // namespace shadowgraph
