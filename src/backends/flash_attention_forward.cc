#include <algorithm>

#include "backends/attention_launch.h"
#include "backends/flash_attention.h"
#include "backends/merge_launch.h"
#include "backends/rows.h"

namespace shadowgraph {
namespace {

using Fa = FlashAttention;

/// What one paged call reads.
struct View {
  Fa::BufferId lens, cu_seqlens_q, table;
};
constexpr View kWhole{Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kPageTable};
constexpr View kSwa{Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kSwaPageTable};
constexpr View kDraft{Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ, Fa::kDraftTable};
constexpr View kTree{Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ, Fa::kTreeTable};
constexpr View kMerged{Fa::kMergedSeqlens, Fa::kExpandCuSeqlensQ, Fa::kMergedTable};
constexpr View kLocal{Fa::kLocalSeqlens, Fa::kLocalCuSeqlensQ, Fa::kLocalTable};
constexpr View kEncoder{Fa::kEncoderSeqlens, Fa::kCuSeqlensQ, Fa::kEncoderTable};

/// The most queries that a row of the view has.
int32_t max_queries(const View& view, const Limits& limits) {
  if (view.cu_seqlens_q == Fa::kExpandCuSeqlensQ) return 1;
  return is_draft_tree(limits) ? limits.model.topk : limits.max_q_len;
}

/// One layer of a step.
class Layer {
 public:
  Layer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        io_(io),
        kind_(meta.limits.model.layers[static_cast<size_t>(io.kind)]),
        window_pool_(in_window_pool(meta.limits.model, kind_)) {}

  void run() const {
    store();
    const bool tree = meta_.has(Fa::kExpandSeqlens);
    if (kind_.cross) {
      PagedAttention c = call(kEncoder);
      see_all(&c);
      attend(c);
    } else if (kind_.local) {
      attend(call(kLocal), 0);
    } else if (!tree) {
      attend(call(window_pool_ ? kSwa : kWhole));
    } else if (kind_.params.window_left >= 0) {
      attend(call(kMerged), expand_rows());
    } else {
      cascade();
    }
  }

 private:
  void store() const {
    const auto loc = kind_.cross    ? Fa::kEncoderOutCacheLoc
                     : window_pool_ ? Fa::kSwaOutCacheLoc
                                    : Fa::kOutCacheLoc;
    launch_store(stream_, io_, meta_[loc], kind_.cross ? RequestRows{0} : token_rows(meta_.limits));
  }

  PagedAttention call(const View& view) const {
    const Buffer& table = meta_[view.table];
    PagedAttention c;
    c.q = io_.q;
    c.cache = meta_.units[view.table] == 1 ? slot_view(io_.cache) : io_.cache;
    c.pages = PageTable::dense(elements<int32_t>(table), table.shape[1],
                               elements<int32_t>(meta_[view.lens]));
    c.cu_seqlens_q = elements<int32_t>(meta_[view.cu_seqlens_q]);
    c.params = kind_.params;
    c.out = io_.out;
    c.lse = io_.lse;
    c.max_seqlen_q = max_queries(view, meta_.limits);
    return c;
  }

  static void see_all(PagedAttention* c) {
    c->params.causal = false;
    c->params.window_left = c->params.window_right = -1;
  }

  /// Of the view that the call reads: as many rows of it as a request has.
  void attend(const PagedAttention& c, int32_t rows_a_request = 1) const {
    stream_.launch(attention_launch(c, {rows_a_request, meta_.limits.first_row}));
  }
  int32_t expand_rows() const {
    return is_draft_tree(meta_.limits) ? meta_.limits.model.topk : meta_.limits.max_q_len;
  }

  /// The prefix, the drafts, and both as one. A sink is in the drafts' half alone, which no real
  /// query finds empty; there its mass has to reach the merge.
  void cascade() const {
    PagedAttention prefix = call(kWhole),
                   drafts = call(meta_.has(Fa::kDraftTable) ? kDraft : kTree);
    half(&prefix, Fa::kPrefixOut, Fa::kPrefixLse);
    half(&drafts, Fa::kExpandOut, Fa::kExpandLse);
    prefix.params.sinks = {};
    drafts.options.lse_sink = LseSink::kIncluded;
    attend(prefix);
    attend(drafts, expand_rows());
    MergeState<LseBase::kNatural> merge;
    merge.v_a = prefix.out, merge.s_a = prefix.lse.tensor;
    merge.v_b = drafts.out, merge.s_b = drafts.lse.tensor;
    merge.out = io_.out, merge.lse = io_.lse;
    stream_.launch(merge_launch(merge));
  }

  void half(PagedAttention* c, Fa::BufferId out, Fa::BufferId lse) const {
    see_all(c);
    const int64_t tokens = io_.q.shape[0];
    const AttentionParams& p = kind_.params;
    c->out = TensorView(meta_[out].data, DType::kF32, {tokens, p.num_qo_heads, p.head_dim_vo},
                        {meta_[out].shape[1], p.head_dim_vo, 1});
    c->lse = NaturalLse(TensorView(meta_[lse].data, DType::kF32, {tokens, p.num_qo_heads},
                                   {meta_[lse].shape[1], 1}));
  }

  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const LayerKind& kind_;
  const bool window_pool_;
};

}  // namespace

void FlashAttention::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  launch_gather(stream, meta, kTables, step);
  for (const LayerIo& io : step.layers) Layer(stream, meta, io).run();
}

}  // namespace shadowgraph
