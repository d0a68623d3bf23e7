#include "backends/paged/flash_attention.h"

#include <algorithm>
#include <numeric>

#include "backends/fill/buffer_rows.h"
#include "backends/fill/local_attention.h"
#include "backends/fill/prefix_chunks.h"
#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

using Fa = FlashAttention;

constexpr ForwardMode kFlashAttentionModes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill, ForwardMode::kDllmExtend,
    ForwardMode::kDraftDecode};

using field::dead, field::of_virtual, field::padded, field::rows, field::scalar, field::table;

// Offsets of keys are for new keys that a paged kernel would append.
constexpr std::string_view kToldLengths = "the kernel takes lengths, and no offsets of keys",
                           kNoLongest = "the kernel takes lengths, and not the longest of them";

constexpr BufferInfo kFlashAttentionBuffers[] = {
    padded(rows(Fa::kCacheSeqlens, "cache_seqlens_int32", "fa.I-03 fa.I-19")),
    recorded(Fa::kCuSeqlensQ, Role::kQueryOffsets, "cu_seqlens_q", "fa.I-15 fa.I-17"),
    recorded(Fa::kCuSeqlensK, Role::kKeyOffsets, "cu_seqlens_k", "fa.I-23"),
    dead(FieldShape::kIndptr, "cu_seqlens_k",
         "the kernel takes lengths; only a prefill in chunks of the prefix takes these offsets"),
    recorded(Fa::kMaxSeqLenQ, Role::kLongestQuery, "max_seq_len_q", "fa.I-18 fa.I-72"),
    recorded(Fa::kMaxSeqLenK, Role::kLongestKeys, "max_seq_len_k", "fa.I-21", Fa::kCacheSeqlens),
    table(Fa::kPageTable, Fa::kCacheSeqlens, "page_table", "fa.I-28 fa.I-34 fa.I-45"),
    table(Fa::kSwaPageTable, Fa::kCacheSeqlens, "swa_page_table", "fa.I-35 fa.I-36"),
    {Fa::kOutCacheLoc, Role::kStored},
    recorded(Fa::kSwaOutCacheLoc, Role::kStoredInWindow, "swa_out_cache_loc", "fa.I-37"),
    {Fa::kPoolRows, Role::kPoolRows},
    rows(Fa::kExpandSeqlens, "expand.cache_seqlens_int32", "fa.I-30 fa.I-38"),
    field::with_rule(
        recorded(Fa::kExpandCuSeqlensQ, Role::kQueryOffsets, "expand.cu_seqlens_q", "fa.I-15"),
        FieldRule::kConstant),
    dead(FieldShape::kIndptr, "expand.cu_seqlens_k", kToldLengths),
    dead(FieldShape::kScalar, "expand.max_seq_len_k", kNoLongest),
    unread(scalar(Fa::kExpandMaxSeqLenQ, "expand.max_seq_len_q", "fa.I-18", FieldRule::kBaked),
           "1, or 0 where it is not there: no batch changes it"),
    table(Fa::kDraftTable, Fa::kExpandSeqlens, "expand.page_table", "fa.I-30 fa.I-32 fa.I-42"),
    table(Fa::kTreeTable, Fa::kExpandSeqlens, "expand.page_table", "fa.I-34 fa.I-38", false),
    rows(Fa::kMergedSeqlens, "swa_spec.cache_seqlens_int32", "fa.I-41"),
    field::indptr(Fa::kExpandCuSeqlensQ, "swa_spec.cu_seqlens_q", "fa.I-15"),
    dead(FieldShape::kIndptr, "swa_spec.cu_seqlens_k", kToldLengths),
    scalar(Fa::kExpandMaxSeqLenQ, "swa_spec.max_seq_len_q", "fa.I-18", FieldRule::kBaked),
    dead(FieldShape::kScalar, "swa_spec.max_seq_len_k", kNoLongest),
    table(Fa::kMergedTable, Fa::kMergedSeqlens, "swa_spec.page_table", "fa.I-41", false),
    of_virtual(
        recorded(Fa::kLocalCuSeqlensQ, Role::kCutOffsets, "local.query_start_loc", "fa.I-49")),
    of_virtual(padded(rows(Fa::kLocalSeqlens, "local.seqused_k", "fa.I-50"))),
    of_virtual(table(Fa::kLocalTable, Fa::kLocalSeqlens, "local.block_table", "fa.I-50 fa.I-52")),
    unread(scalar(Fa::kLocalMaxQueryLen, "local.max_query_len", "fa.I-18", FieldRule::kBaked),
           "the step's longest query again, as kMaxSeqLenQ is"),
    recorded(Fa::kLocalMaxSeqLen, Role::kLongestKeys, "local.max_seq_len", "fa.I-21",
             Fa::kLocalSeqlens),
    rows(Fa::kEncoderSeqlens, "encoder_lens_int32", "fa.I-43"),
    dead(FieldShape::kIndptr, "encoder_cu_seqlens_k", kToldLengths),
    recorded(Fa::kEncoderMaxSeqLenK, Role::kLongestKeys, "encoder_max_seq_len_k", "fa.I-43",
             Fa::kEncoderSeqlens),
    // Cross-attention views the cache in pages, as every layer of the engine does.
    table(Fa::kEncoderTable, Fa::kEncoderSeqlens, "encoder_page_table", "fa.I-44 fa.I-47 fa.I-48"),
    // A schedule counts padding rows, and so has no counterpart in a batch without them: a trace
    // records none.
    {Fa::kSchedulerMetadata, Role::kRowSplits, Fa::kCacheSeqlens},
    dead(named("encoder_out_cache_loc", {Fa::kEncoderOutCacheLoc, Role::kStoredOfEncoder}),
         kEncodersInExtends, kDecodeModes),
};

constexpr BackendInfo kFlashAttentionInfo{.name = "flashattention",
                                          .about = "FlashAttention 3 and 4 (SGLang)",
                                          .modes = kFlashAttentionModes,
                                          .page_sizes = {},
                                          .tree = true,
                                          .latent = true,
                                          .swa_pool = true,
                                          .encoder = true,
                                          .local = true,
                                          .in_graph_tables = true,
                                          .prefix_chunks = true,
                                          .sinks = true,
                                          .lse_sink = LseSink::kIncluded,
                                          .graph_storage = kDictionaries,
                                          .buffers = kFlashAttentionBuffers};

/// One bind: which buffers the limits ask for.
class FlashAttentionBind {
 public:
  FlashAttentionBind(const Backend& backend, const Arena& arena, const Limits& limits)
      : limits_(limits),
        model_(limits.model),
        unit_(model_.max_encoder_len > 0 ? 1 : model_.page_size),
        tree_(is_draft_tree(limits) || is_verify_tree(limits)),
        expand_rows_(tree_ ? limits.tokens : 0),
        chunks_(PrefixChunks::of(limits)),
        b_(backend, arena, limits, Fa::kNumBuffers, Fa::kNumScalars) {}

  Status run(Meta* meta) {
    bind_rows();
    if (tree_) bind_expand();
    if (chunks_.count > 0) bind_chunks();
    if (any([](const LayerKind& k) { return k.local; })) bind_local();
    if (model_.max_encoder_len > 0) bind_encoder();
    return b_.bind(meta);
  }

 private:
  template <class Predicate>
  bool any(Predicate predicate) const {
    return std::ranges::any_of(model_.layers, predicate);
  }
  static bool ranged(const LayerKind& k) { return !k.cross && (k.local || has_window(k)); }
  static bool cascades(const LayerKind& k) { return !k.cross && !ranged(k); }

  void bind_rows() {
    const int32_t rows = limits_.rows;
    b_.ints(Fa::kCacheSeqlens, "cache_seqlens", {rows});
    b_.query_offsets(Fa::kCuSeqlensQ, "cu_seqlens_q", rows,
                     is_draft_tree(limits_) ? model_.topk : 1);
    b_.tables(Fa::kTables, limits_.max_kv_len, unit_, model_.swa_pool && !tree_);
    b_.out_cache_loc(Fa::kOutCacheLoc, Fa::kSwaOutCacheLoc);
    if (any([&](const LayerKind& k) { return Fa::scheduled(limits_, k); }))
      b_.ints(Fa::kSchedulerMetadata, "scheduler_metadata", {1 + rows});
  }

  void bind_expand() {
    b_.ints(Fa::kExpandSeqlens, "expand_seqlens", {expand_rows_});
    b_.constant_steps(Fa::kExpandCuSeqlensQ, "expand_cu_seqlens_q", expand_rows_ + 1, 1);
    if (is_draft_tree(limits_)) {
      // The prefix ends at most unit - 1 tokens behind the page's beginning.
      b_.table(Fa::kDraftTable, "draft_table", expand_rows_, unit_ + limits_.step, unit_);
    } else {
      b_.table(Fa::kTreeTable, "tree_table", expand_rows_, limits_.max_q_len, 1);
    }
    if (any(ranged)) {
      b_.ints(Fa::kMergedSeqlens, "merged_seqlens", {expand_rows_});
      b_.table(Fa::kMergedTable, "merged_table", expand_rows_, limits_.max_kv_len,
               is_draft_tree(limits_) ? unit_ : 1);
    }
    if (any(cascades)) bind_halves(cascades);
  }

  template <class Predicate>
  void bind_halves(Predicate uses) {
    ResultRoom room;
    for (const LayerKind& k : model_.layers)
      if (uses(k)) room.add(k.params, limits_.tokens);
    b_.result(Fa::kPrefixOut, Fa::kPrefixLse, "prefix", room);
    b_.result(Fa::kExpandOut, Fa::kExpandLse, "expand", room);
    if (chunks_.count > 1) b_.result(Fa::kMergedOut, Fa::kMergedLse, "merged", room);
  }

  void bind_chunks() {
    const int64_t slots = int64_t{limits_.rows} * chunks_.len;
    if (chunks_.one_shot) {
      b_.ints(Fa::kCuSeqlensK, "cu_seqlens_k", {limits_.rows + 1});
    } else {
      b_.ints(Fa::kChunkCuSeqlensK, "chunk_cu_seqlens_k", {chunks_.count, limits_.rows + 1});
      bind_halves([](const LayerKind& k) { return reads_chunks(k); });
    }
    b_.slot_table(Fa::kChunkSlots, "chunk_slots", chunks_.count, slots);
    int64_t width = 0, granule = 0;
    for (const LayerKind& k : model_.layers) {
      if (!reads_chunks(k)) continue;
      width = std::max<int64_t>(width, k.params.head_dim_qk);
      granule = std::gcd(granule, k.params.head_dim_qk);
    }
    b_.scratch(Fa::kLatents, "latents", DType::kF32, {slots, width}, std::max<int64_t>(granule, 1));
  }

  void bind_local() {
    const int32_t chunk = model_.attention_chunk;
    const int64_t rows = tree_ ? expand_rows_ : max_local_rows(limits_.rows, limits_.tokens, chunk);
    const int32_t longest = std::min(chunk, limits_.max_kv_len);
    b_.ints(Fa::kLocalSeqlens, "local_seqlens", {rows});
    b_.ints(Fa::kLocalCuSeqlensQ, "local_cu_seqlens_q", {rows + 1});
    b_.table(Fa::kLocalTable, "local_table", rows, longest, is_verify_tree(limits_) ? 1 : unit_);
  }

  void bind_encoder() {
    b_.ints(Fa::kEncoderSeqlens, "encoder_seqlens", {limits_.rows});
    b_.table(Fa::kEncoderTable, "encoder_table", limits_.rows, model_.max_encoder_len, 1);
    b_.slots(Fa::kEncoderOutCacheLoc, "encoder_out_cache_loc",
             int64_t{limits_.rows} * model_.max_encoder_len);
  }

  const Limits& limits_;
  const ModelConfig& model_;
  const int32_t unit_;
  const bool tree_;
  const int32_t expand_rows_;
  const PrefixChunks chunks_;
  Binder b_;
};

}  // namespace

bool FlashAttention::scheduled(const Limits& limits, const LayerKind& kind) {
  const bool decode = limits.mode == ForwardMode::kDecode || limits.mode == ForwardMode::kIdle;
  return decode && !kind.cross && !kind.local && !kind.mla && !has_window(kind);
}

int32_t FlashAttention::most_splits(const SplitConfig& split) {
  return split.off ? 1 : std::max(1, split.max_splits);
}

const BackendInfo& FlashAttention::info() const { return kFlashAttentionInfo; }

Status FlashAttention::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(kFlashAttentionInfo, limits);
  if (status.ok()) status = FlashAttentionBind(*this, arena, limits).run(meta);
  if (!status.ok()) return status;
  // What a capture freezes, until a batch says more.
  meta->scalars[kMaxSeqLenQ] = is_draft_tree(limits) ? limits.model.topk : limits.max_q_len;
  meta->scalars[kExpandMaxSeqLenQ] = meta->has(kExpandSeqlens) ? 1 : 0;
  meta->scalars[kLocalMaxQueryLen] = meta->has(kLocalSeqlens) ? 1 : 0;
  return status;
}

}  // namespace shadowgraph
