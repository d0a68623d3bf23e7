#include "backends/sparse/dsa.h"

#include <algorithm>

#include "backends/fill/buffer_rows.h"
#include "backends/paged/paged_backend.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {
namespace {

using Dsa = DeepSeekSparse;

constexpr ForwardMode kDsaModes[] = {ForwardMode::kExtend,       ForwardMode::kDecode,
                                     ForwardMode::kMixed,        ForwardMode::kIdle,
                                     ForwardMode::kTargetVerify, ForwardMode::kDraftExtendV2,
                                     ForwardMode::kSplitPrefill, ForwardMode::kDraftDecode};
constexpr int32_t kDsaPageSizes[] = {static_cast<int32_t>(kIndexPageTokens)};  // edge: keys

constexpr BufferInfo kDsaBuffers[] = {
    dead(named("cache_seqlens_int32", {Dsa::kCacheSeqlens, Role::kKeyLens}),
         "the kernels take a length for each token"),
    dead(named("cu_seqlens_k", {Dsa::kCuSeqlensK, Role::kKeyOffsets}),
         "only prefills gather keys, which lie by these offsets",
         {ForwardMode::kDecode, ForwardMode::kIdle, ForwardMode::kTargetVerify,
          ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode}),
    dead(named("cu_seqlens_q", {Dsa::kCuSeqlensQ, Role::kQueryOffsets}),
         "token_to_batch_idx says it token by token"),
    {Dsa::kOutCacheLoc, Role::kStored},
    {Dsa::kMaxSeqLenQ, Role::kLongestQuery},
    {Dsa::kMaxSeqLenK, Role::kLongestKeys, Dsa::kCacheSeqlens},
    {Dsa::kExpanded, Role::kExpandedLens},
    {Dsa::kContextLens, Role::kExpandedLens},
    {Dsa::kDsaCacheSeqlens, Role::kChosenLens},
    {Dsa::kDsaCuSeqlensQ, Role::kTokenOffsets},
    {Dsa::kDsaCuSeqlensK, Role::kChosenOffsets},
    {Dsa::kPageTable1, Role::kTokenTable},
    {Dsa::kRealPageTable, Role::kTokenPages},
    {Dsa::kTokenToBatch, Role::kRequestOfToken},
    {Dsa::kKs, Role::kFirstKey},
    {Dsa::kTopkOffset, Role::kFirstKey},
    {Dsa::kKe, Role::kBehindKeys},
    {Dsa::kFlatSlots, Role::kFlatSlots},
    {Dsa::kChoice, Role::kChoice},
    {Dsa::kChosenSlots, Role::kChosenSlots},
};

// A graph has max_q_len tokens of each request, and no fewer.
constexpr BackendInfo kDsaInfo{.name = "dsa",
                               .about = "DeepSeek sparse attention (SGLang)",
                               .modes = kDsaModes,
                               .page_sizes = kDsaPageSizes,
                               .ragged_graphs = false,
                               .dense = false,
                               .sparse = true,
                               .graph_storage = kOneForAllModes,
                               .buffers = kDsaBuffers};

/// Shapes that kernels know, and layers that share their metadata.
void check_layer(const SparseLayer& l, const SparseLayer& first, Status* status) {
  if (l.num_heads < 1) refuse(status, "num_heads", ">= 1", l.num_heads);
  if (l.head_dim_v < 1 || l.head_dim_v > l.head_dim)
    refuse(status, "head_dim_v", "1 to head_dim " + std::to_string(l.head_dim), l.head_dim_v);
  if (l.topk < 1) refuse(status, "topk", ">= 1", l.topk);
  if (l.index_heads < 1) refuse(status, "index_heads", ">= 1", l.index_heads);
  if (l.latents == LatentLayout::kV4)
    refuse(status, "latents", "rows, or DSA's packed ones", static_cast<int64_t>(l.latents));
  if (l.latents == LatentLayout::kDsa && l.head_dim != kDsaCodes + kRopeDim)
    refuse(status, "head_dim", std::to_string(kDsaCodes + kRopeDim), l.head_dim);
  if (l.topk != first.topk) refuse(status, "topk", "the same in all layers", l.topk);
  if (l.latents != first.latents || l.latent_dtype != first.latent_dtype ||
      l.head_dim != first.head_dim)
    refuse(status, "latents", "the same in all layers", l.head_dim);
  if (l.ragged_prefill != first.ragged_prefill)
    refuse(status, "ragged_prefill", "the same in all layers", l.ragged_prefill ? 1 : 0);
}

Status check_dsa(const Limits& limits) {
  Status status = serves(kDsaInfo, limits);
  const ModelConfig& m = limits.model;
  const SparseLayer* first = sparse_layer_of(m);
  if (first == nullptr) refuse(&status, "layers", "sparse ones", 0);
  for (const LayerKind& kind : m.layers)
    if (const SparseLayer* layer = sparse_of(kind)) check_layer(*layer, *first, &status);
  // Keys of padding are slots of page 0, each once.
  const int64_t padding = int64_t{m.seq_len_fill} + limits.max_q_len + limits.step;
  if (!is_sparse_prefill(limits.mode) && padding > kIndexPageTokens)
    refuse(&status, "seq_len_fill", "a page with the queries", m.seq_len_fill);
  return status;
}

int64_t at_least_one(int64_t n) { return std::max<int64_t>(1, n); }

/// What a prefill gathers, and by what.
void bind_prefill(Binder& b, const Limits& limits, const SparseLayer& layer) {
  const int64_t keys = limits.most_keys();
  b.ints(Dsa::kCuSeqlensQ, "cu_seqlens_q", {limits.rows + 1});
  b.ints(Dsa::kTokenToBatch, "token_to_batch_idx", {limits.tokens});
  b.ints(Dsa::kKs, "indexer_ks", {limits.tokens});
  b.ints(Dsa::kKe, "indexer_ke", {limits.tokens});
  b.scratch(Dsa::kPackedKeys, "index_k_packed", DType::kE4M3, {keys, kIndexDim}, kIndexDim);
  b.scratch(Dsa::kPackedScales, "index_k_scale_packed", DType::kF32, {keys}, 1);
  b.scratch(Dsa::kLogits, "index_logits", DType::kF32, {limits.tokens, keys}, at_least_one(keys));
  if (!layer.ragged_prefill) return;
  b.ints(Dsa::kTopkOffset, "topk_indices_offset", {limits.tokens});
  b.list(Dsa::kFlatSlots, "page_table_1_flattened", keys);
  const bool packed = layer.latents == LatentLayout::kDsa;
  const int64_t width = packed ? kDsaBytes : layer.head_dim;
  b.scratch(Dsa::kPackedLatents, "latents_packed", packed ? DType::kU8 : layer.latent_dtype,
            {keys, width}, at_least_one(width));
}

void bind_paged(Binder& b, const Limits& limits) {
  const int64_t keys = limits.max_kv_len;
  b.ints(Dsa::kContextLens, "paged_mqa_ctx_lens", {limits.tokens});
  b.scratch(Dsa::kLogits, "index_logits", DType::kF32, {limits.tokens, keys}, at_least_one(keys));
}

}  // namespace

const SparseLayer* sparse_layer_of(const ModelConfig& model) {
  for (const LayerKind& kind : model.layers)
    if (const SparseLayer* layer = sparse_of(kind)) return layer;
  return nullptr;
}

const BackendInfo& DeepSeekSparse::info() const { return kDsaInfo; }

Status DeepSeekSparse::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check_dsa(limits);
  if (!status.ok()) return status;
  const SparseLayer& layer = *sparse_layer_of(limits.model);
  const bool prefill = is_sparse_prefill(limits.mode);
  const int64_t rows = prefill ? limits.rows : limits.tokens, tokens = limits.tokens;
  Binder b(*this, arena, limits, kNumBuffers, kNumScalars);
  b.ints(kCacheSeqlens, "cache_seqlens_int32", {limits.rows});
  b.ints(kCuSeqlensK, "cu_seqlens_k", {limits.rows + 1});
  b.table(kPageTable1, "page_table_1", rows, limits.max_kv_len, 1);
  b.table(kRealPageTable, "real_page_table", rows, limits.max_kv_len, limits.model.page_size);
  b.ints(kExpanded, "dsa_seqlens_expanded", {tokens});
  b.ints(kDsaCacheSeqlens, "dsa_cache_seqlens_int32", {tokens});
  b.constant_steps(kDsaCuSeqlensQ, "dsa_cu_seqlens_q", tokens + 1, 1);
  b.ints(kDsaCuSeqlensK, "dsa_cu_seqlens_k", {tokens + 1});
  b.slots(kOutCacheLoc, "out_cache_loc", tokens);
  if (prefill) {
    bind_prefill(b, limits, layer);
  } else {
    bind_paged(b, limits);
  }
  if (prefill) b.scratch(kChoiceEnds, "topk_ends", DType::kI32, {tokens}, 1);
  b.scratch(kAttendedLens, "attended_lens", DType::kI32, {tokens}, 1);
  b.scratch(kChoice, "topk_indices", DType::kI32, {tokens, layer.topk}, layer.topk);
  b.scratch(kChosenSlots, "topk_slots", DType::kI32, {tokens, layer.topk}, layer.topk);
  status = b.bind(meta);
  if (status.ok()) meta->scalars[kMaxSeqLenQ] = limits.max_q_len;
  return status;
}

}  // namespace shadowgraph
