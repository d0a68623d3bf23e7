#include "backends/paged/flash_attention.h"

#include <algorithm>
#include <numeric>

#include "backends/fill/fields.h"
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

using field::bound, field::indptr, field::key_indptr, field::lens, field::of_virtual, field::rows,
    field::slots, field::table;

// Paged kernels read no cu_seqlens_k: it is for new keys that they would append. A ragged call over
// all keys reads it.
constexpr Field kFlashAttentionFields[] = {
    lens("cache_seqlens_int32", Fa::kCacheSeqlens, "fa.I-03 fa.I-19"),
    indptr("cu_seqlens_q", Fa::kCuSeqlensQ, "fa.I-15 fa.I-17"),
    key_indptr("cu_seqlens_k", Fa::kCuSeqlensK, "fa.I-23"),
    key_indptr("cu_seqlens_k", -1, "fa.I-23", FieldRule::kDead),
    bound("max_seq_len_q", Fa::kMaxSeqLenQ, "fa.I-18 fa.I-72", FieldRule::kBaked),
    bound("max_seq_len_k", Fa::kMaxSeqLenK, "fa.I-21"),
    table("page_table", Fa::kPageTable, Fa::kCacheSeqlens, "fa.I-28 fa.I-34 fa.I-45"),
    table("swa_page_table", Fa::kSwaPageTable, Fa::kCacheSeqlens, "fa.I-35 fa.I-36"),
    slots("swa_out_cache_loc", Fa::kSwaOutCacheLoc, "fa.I-37"),
    rows("expand.cache_seqlens_int32", Fa::kExpandSeqlens, "fa.I-30 fa.I-38"),
    indptr("expand.cu_seqlens_q", Fa::kExpandCuSeqlensQ, "fa.I-15", FieldRule::kConstant),
    key_indptr("expand.cu_seqlens_k", -1, "fa.I-23", FieldRule::kDead),
    bound("expand.max_seq_len_k", -1, "fa.I-21", FieldRule::kDead),
    bound("expand.max_seq_len_q", Fa::kExpandMaxSeqLenQ, "fa.I-18", FieldRule::kBaked),
    table("expand.page_table", Fa::kDraftTable, Fa::kExpandSeqlens, "fa.I-30 fa.I-32 fa.I-42"),
    table("expand.page_table", Fa::kTreeTable, Fa::kExpandSeqlens, "fa.I-34 fa.I-38", false),
    rows("swa_spec.cache_seqlens_int32", Fa::kMergedSeqlens, "fa.I-41"),
    indptr("swa_spec.cu_seqlens_q", Fa::kExpandCuSeqlensQ, "fa.I-15"),
    key_indptr("swa_spec.cu_seqlens_k", -1, "fa.I-23", FieldRule::kDead),
    bound("swa_spec.max_seq_len_q", Fa::kExpandMaxSeqLenQ, "fa.I-18", FieldRule::kBaked),
    bound("swa_spec.max_seq_len_k", -1, "fa.I-21", FieldRule::kDead),
    table("swa_spec.page_table", Fa::kMergedTable, Fa::kMergedSeqlens, "fa.I-41", false),
    of_virtual(indptr("local.query_start_loc", Fa::kLocalCuSeqlensQ, "fa.I-49")),
    of_virtual(lens("local.seqused_k", Fa::kLocalSeqlens, "fa.I-50")),
    of_virtual(table("local.block_table", Fa::kLocalTable, Fa::kLocalSeqlens, "fa.I-50 fa.I-52")),
    bound("local.max_query_len", Fa::kLocalMaxQueryLen, "fa.I-18", FieldRule::kBaked),
    bound("local.max_seq_len", Fa::kLocalMaxSeqLen, "fa.I-21"),
    rows("encoder_lens_int32", Fa::kEncoderSeqlens, "fa.I-43"),
    key_indptr("encoder_cu_seqlens_k", -1, "fa.I-43", FieldRule::kDead),
    bound("encoder_max_seq_len_k", Fa::kEncoderMaxSeqLenK, "fa.I-43"),
    // Cross-attention views the cache in pages, as every layer of the engine does.
    table("encoder_page_table", Fa::kEncoderTable, Fa::kEncoderSeqlens, "fa.I-44 fa.I-47 fa.I-48"),
};

constexpr BufferRole kFlashAttentionRoles[] = {
    {Fa::kCuSeqlensQ, Role::kQueryOffsets},
    {Fa::kExpandCuSeqlensQ, Role::kQueryOffsets},
    {Fa::kLocalCuSeqlensQ, Role::kCutOffsets},
    {Fa::kCuSeqlensK, Role::kKeyOffsets},
    {Fa::kOutCacheLoc, Role::kStored},
    {Fa::kSwaOutCacheLoc, Role::kStoredInWindow},
    {Fa::kEncoderOutCacheLoc, Role::kStoredOfEncoder},
    {Fa::kPoolRows, Role::kPoolRows},
    {Fa::kMaxSeqLenQ, Role::kLongestQuery},
    {Fa::kMaxSeqLenK, Role::kLongestKeys, Fa::kCacheSeqlens},
    {Fa::kLocalMaxSeqLen, Role::kLongestKeys, Fa::kLocalSeqlens},
    {Fa::kEncoderMaxSeqLenK, Role::kLongestKeys, Fa::kEncoderSeqlens},
    role::unread_scalar(Fa::kExpandMaxSeqLenQ,
                        "1, or 0 where it is not there: no batch changes it"),
    role::unread_scalar(Fa::kLocalMaxQueryLen, "the step's longest query again, as kMaxSeqLenQ is"),
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
                                          .fields = kFlashAttentionFields,
                                          .roles = kFlashAttentionRoles};

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
    if (is_decode_or_idle(limits_.mode)) {
      const int32_t queries = is_draft_tree(limits_) ? model_.topk : 1;
      b_.constant_steps(Fa::kCuSeqlensQ, "cu_seqlens_q", rows + 1, queries);
    } else {
      b_.ints(Fa::kCuSeqlensQ, "cu_seqlens_q", {rows + 1});
    }
    b_.tables(Fa::kTables, limits_.max_kv_len, unit_, model_.swa_pool && !tree_);
    b_.slots(Fa::kOutCacheLoc, "out_cache_loc", limits_.tokens);
    if (model_.swa_pool) b_.slots(Fa::kSwaOutCacheLoc, "swa_out_cache_loc", limits_.tokens);
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

  /// Room for the widest layer of those that ask for it. A granule is what every layer writes
  /// whole.
  template <class Predicate>
  void bind_halves(Predicate uses) {
    int64_t heads = 0, width = 0, granule = 0;
    for (const LayerKind& k : model_.layers) {
      if (!uses(k)) continue;
      const int64_t dim = k.params.head_dim_vo;
      heads = std::max<int64_t>(heads, k.params.num_qo_heads);
      width = std::max(width, k.params.num_qo_heads * dim);
      granule = std::gcd(granule, dim);
    }
    granule = std::max<int64_t>(granule, 1);
    const auto half = [&](Fa::BufferId out, const char* out_name, Fa::BufferId lse,
                          const char* lse_name) {
      b_.scratch(out, out_name, DType::kF32, {limits_.tokens, width}, granule);
      b_.scratch(lse, lse_name, DType::kF32, {limits_.tokens, heads}, 1);
    };
    half(Fa::kPrefixOut, "prefix_out", Fa::kPrefixLse, "prefix_lse");
    half(Fa::kExpandOut, "expand_out", Fa::kExpandLse, "expand_lse");
    if (chunks_.count > 1) half(Fa::kMergedOut, "merged_out", Fa::kMergedLse, "merged_lse");
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
