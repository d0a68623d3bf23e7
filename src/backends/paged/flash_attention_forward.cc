// Launches a step of FlashAttention: store, attend, and merge where keys are in several tables.
#include <algorithm>

#include "backends/fill/prefix_chunks.h"
#include "backends/fill/rows.h"
#include "backends/paged/flash_attention.h"
#include "launch/attention_launch.h"
#include "launch/gather_latents.h"
#include "launch/merge_launch.h"
#include "launch/ragged_launch.h"
#include "launch/scheduled_launch.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

using Fa = FlashAttention;

/// What one paged call reads.
struct FlashAttentionView {
  Fa::BufferId lens, cu_seqlens_q, table;
};
constexpr FlashAttentionView kWhole{Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kPageTable};
constexpr FlashAttentionView kSwa{Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kSwaPageTable};
constexpr FlashAttentionView kDraft{Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ, Fa::kDraftTable};
constexpr FlashAttentionView kTree{Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ, Fa::kTreeTable};
constexpr FlashAttentionView kMerged{Fa::kMergedSeqlens, Fa::kExpandCuSeqlensQ, Fa::kMergedTable};
constexpr FlashAttentionView kLocal{Fa::kLocalSeqlens, Fa::kLocalCuSeqlensQ, Fa::kLocalTable};
constexpr FlashAttentionView kEncoder{Fa::kEncoderSeqlens, Fa::kCuSeqlensQ, Fa::kEncoderTable};

template <class T>
std::span<const T> row(const Buffer& b, int64_t i, int64_t columns) {
  return elements<T>(b).subspan(static_cast<size_t>(i * columns), static_cast<size_t>(columns));
}

/// The most queries that a row of the view has.
int32_t max_queries(const FlashAttentionView& view, const Limits& limits) {
  if (view.cu_seqlens_q == Fa::kExpandCuSeqlensQ) return 1;
  return is_draft_tree(limits) ? limits.model.topk : limits.max_q_len;
}

/// One layer of a step.
class FlashAttentionLayer {
 public:
  FlashAttentionLayer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        io_(io),
        kind_(meta.limits.model.layers[static_cast<size_t>(io.kind)]),
        window_pool_(in_window_pool(meta.limits.model, kind_)),
        chunks_(reads_chunks(kind_) ? PrefixChunks::of(meta.limits) : PrefixChunks{}) {}

  void run() const {
    store();
    const bool tree = meta_.has(Fa::kExpandSeqlens);
    if (kind_.cross) {
      PagedAttention c = call(kEncoder);
      see_all(&c.params);
      attend(c);
    } else if (kind_.local) {
      attend(call(kLocal), 0);
    } else if (chunks_.one_shot) {
      attend(gathered(0, {io_.out, io_.lse}));
    } else if (chunks_.count > 0) {
      own_and_chunks();
    } else if (Fa::scheduled(meta_.limits, kind_)) {
      scheduled(call(kWhole));
    } else if (!tree) {
      attend(call(window_pool_ ? kSwa : kWhole));
    } else if (has_window(kind_)) {
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

  PagedAttention call(const FlashAttentionView& view) const {
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
    c.options.lse_sink = LseSink::kIncluded;
    return c;
  }

  static void see_all(AttentionParams* p) {
    p->causal = false;
    p->window_left = p->window_right = -1;
  }

  /// Attends over the view that the call reads, with rows_a_request rows of it per request.
  void attend(const PagedAttention& c, int32_t rows_a_request = 1) const {
    stream_.launch(attention_launch(c, {rows_a_request, meta_.limits.first_row}));
  }
  void scheduled(const PagedAttention& of) const {
    ScheduledAttention c{of};
    c.schedule = written<int32_t>(meta_[Fa::kSchedulerMetadata]);
    c.max_splits = Fa::most_splits(meta_.limits.model.split);
    stream_.launch(scheduled_launch(c, {1, meta_.limits.first_row}));
  }
  int32_t expand_rows() const {
    return is_draft_tree(meta_.limits) ? meta_.limits.model.topk : meta_.limits.max_q_len;
  }

  /// The prefix, the drafts, and both as one. A sink is in the drafts' half alone, which no real
  /// query finds empty; there its mass has to reach the merge.
  void cascade() const {
    PagedAttention prefix = call(kWhole),
                   drafts = call(meta_.has(Fa::kDraftTable) ? kDraft : kTree);
    for (PagedAttention* c : {&prefix, &drafts}) see_all(&c->params);
    const Result a = part(Fa::kPrefixOut, Fa::kPrefixLse), b = part(Fa::kExpandOut, Fa::kExpandLse);
    prefix.out = a.out, prefix.lse = a.lse;
    drafts.out = b.out, drafts.lse = b.lse;
    prefix.params.sinks = {};
    attend(prefix);
    attend(drafts, expand_rows());
    merge(a, b, {io_.out, io_.lse});
  }

  /// The result of a call over some of a query's keys, or over all.
  struct Result {
    TensorView out;
    NaturalLse lse;
  };
  Result part(Fa::BufferId out, Fa::BufferId lse) const {
    const int64_t tokens = io_.q.shape[0];
    const AttentionParams& p = kind_.params;
    return {scratch_rows(meta_[out], tokens, p.num_qo_heads, p.head_dim_vo),
            NaturalLse(scratch_rows(meta_[lse], tokens, p.num_qo_heads))};
  }
  void merge(const Result& a, const Result& b, const Result& to) const {
    MergeState<LseBase::kNatural> c;
    c.v_a = a.out, c.s_a = a.lse.tensor;
    c.v_b = b.out, c.s_b = b.lse.tensor;
    c.out = to.out, c.lse = to.lse;
    stream_.launch(merge_launch(c, elements<int32_t>(meta_[Fa::kCuSeqlensQ])));
  }

  /// The step's own tokens, then the prefix's chunks, each merged with what came before it. A sink
  /// is with the own tokens, which no query finds empty.
  void own_and_chunks() const {
    Result so_far = part(Fa::kExpandOut, Fa::kExpandLse);
    RaggedAttention own = ragged(so_far);
    own.k = io_.k, own.v = io_.v;
    own.cu_seqlens_k = own.cu_seqlens_q;
    attend(own);
    Result next = chunks_.count > 1 ? part(Fa::kMergedOut, Fa::kMergedLse) : Result{};
    const Result of_chunk = part(Fa::kPrefixOut, Fa::kPrefixLse);
    for (int32_t c = 0; c < chunks_.count; ++c) {
      RaggedAttention chunk = gathered(c, of_chunk);
      see_all(&chunk.params);
      chunk.params.sinks = {};
      attend(chunk);
      merge(so_far, of_chunk, c + 1 == chunks_.count ? Result{io_.out, io_.lse} : next);
      std::swap(so_far, next);
    }
  }

  RaggedAttention ragged(const Result& to) const {
    RaggedAttention c;
    c.q = io_.q;
    c.cu_seqlens_q = elements<int32_t>(meta_[Fa::kCuSeqlensQ]);
    c.params = kind_.params;
    c.out = to.out, c.lse = to.lse;
    c.max_seqlen_q = meta_.limits.max_q_len;
    c.options.lse_sink = LseSink::kIncluded;
    return c;
  }
  /// Over a chunk's latents, which it gathers first.
  RaggedAttention gathered(int32_t chunk, const Result& to) const {
    const Buffer& cu_k = meta_[chunks_.one_shot ? Fa::kCuSeqlensK : Fa::kChunkCuSeqlensK];
    const Buffer &slots = meta_[Fa::kChunkSlots], &latents = meta_[Fa::kLatents];
    const AttentionParams& p = kind_.params;
    GatherLatents gather;
    gather.cache = io_.cache;
    gather.slots = row<int64_t>(slots, chunk, slots.shape[1]);
    gather.cu_seqlens = row<int32_t>(cu_k, chunk, meta_.limits.rows + 1);
    gather.out = TensorView(latents.data, DType::kF32, {latents.shape[0], 1, p.head_dim_qk},
                            {latents.shape[1], p.head_dim_qk, 1});
    stream_.launch(gather_latents_launch(gather, {1, meta_.limits.first_row}));
    RaggedAttention c = ragged(to);
    c.k = c.v = gather.out;
    c.v.shape[2] = p.head_dim_vo;
    c.k_scale = io_.cache.k_scale, c.v_scale = io_.cache.v_scale;
    c.cu_seqlens_k = gather.cu_seqlens;
    return c;
  }
  void attend(const RaggedAttention& c) const {
    stream_.launch(ragged_launch(c, {1, meta_.limits.first_row}));
  }

  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const LayerKind& kind_;
  const bool window_pool_;
  const PrefixChunks chunks_;
};

}  // namespace

/// A tree has the two halves of a cascade; a prefill over latents has its own tokens and the
/// chunks.
std::vector<int32_t> FlashAttention::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                                  const LayerKind& kind) const {
  const bool tree = is_draft_tree(limits) || is_verify_tree(limits);
  const bool cascades = tree && !kind.cross && !kind.local && !has_window(kind);
  const PrefixChunks chunks = reads_chunks(kind) ? PrefixChunks::of(limits) : PrefixChunks{};
  std::vector<int32_t> parts;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const size_t branches = is_draft_tree(limits) ? static_cast<size_t>(batch.spec.topk) : 1;
    parts.insert(parts.end(), static_cast<size_t>(batch.q_len(i)) * branches,
                 cascades ? 2 : chunks.parts(batch.extent(i)));
  }
  return parts;
}

std::vector<KeyList> FlashAttention::key_lists(const Meta& meta, const LayerKind& kind) const {
  const auto list = [](const FlashAttentionView& v) {
    return table_of_keys(v.table, v.lens, v.cu_seqlens_q);
  };
  if (kind.cross) return {list(kEncoder)};
  if (kind.local) return {list(kLocal)};
  const PrefixChunks chunks = reads_chunks(kind) ? PrefixChunks::of(meta.limits) : PrefixChunks{};
  std::vector<KeyList> lists;
  for (int32_t c = 0; c < chunks.count; ++c)
    lists.push_back({.kind = KeyList::Kind::kChunk,
                     .keys = kChunkSlots,
                     .lens = chunks.one_shot ? kCuSeqlensK : kChunkCuSeqlensK,
                     .queries = kCuSeqlensQ,
                     .chunk = c});
  if (chunks.count > 0 && !chunks.one_shot) lists.push_back(own_tokens(kCuSeqlensQ));
  if (chunks.count > 0) return lists;
  const bool tree = meta.has(kExpandSeqlens), window = kind.params.window_left >= 0;
  if (tree && window) return {list(kMerged)};
  if (tree) return {list(kWhole), list(meta.has(kDraftTable) ? kDraft : kTree)};
  return {list(in_window_pool(meta.limits.model, kind) ? kSwa : kWhole)};
}

void FlashAttention::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  launch_gather(stream, meta, kTables, step);
  for (const LayerIo& io : step.layers) FlashAttentionLayer(stream, meta, io).run();
}

}  // namespace shadowgraph
