#include "backends/paged/dual_chunk.h"

#include <algorithm>
#include <numeric>

#include "attn/dual_chunk.h"
#include "backends/fill/fields.h"
#include "backends/fill/local_attention.h"

namespace shadowgraph {
namespace {

using Dc = DualChunkAttention;

constexpr ForwardMode kDualChunkModes[] = {ForwardMode::kExtend, ForwardMode::kDecode,
                                           ForwardMode::kMixed, ForwardMode::kIdle,
                                           ForwardMode::kSplitPrefill};

// Rows of a prefill are the engine's walk, which it keeps on no list.
constexpr Field kDualChunkFields[] = {
    field::indptr("query_start_loc", Dc::kQueryStartLoc, "fi.I-3"),
    field::key_indptr("seq_start_loc", Dc::kSeqStartLoc, "fi.I-107"),
    field::lens("seq_lens", Dc::kCacheSeqlens, "fi.I-107"),
    field::lens("seq_lens_intra", Dc::kSeqLensIntra, "fi.I-107"),
    field::rows("seq_lens_succ", Dc::kSeqLensSucc, "fi.I-107"),
    field::rows("seq_lens_inter", Dc::kSeqLensInter, "fi.I-107"),
    field::table("block_tables_intra", Dc::kBlockTablesIntra, Dc::kSeqLensIntra, "fi.I-107"),
    field::table("block_tables_succ", Dc::kBlockTablesSucc, Dc::kSeqLensSucc, "fi.I-107"),
    field::table("block_tables", Dc::kBlockTables, Dc::kSeqLensInter, "fi.I-107"),
    field::bound("max_seq_len_intra", Dc::kMaxIntra, "fi.I-107"),
    field::bound("max_seq_len_succ", Dc::kMaxSucc, "fi.I-107"),
    field::bound("max_seq_len_inter", Dc::kMaxInter, "fi.I-107"),
};

constexpr BufferRole kDualChunkRoles[] = {
    {Dc::kCacheSeqlens, Role::kKeyLens},
    {Dc::kQueryStartLoc, Role::kQueryOffsets},
    {Dc::kSeqStartLoc, Role::kKeyOffsets},
    {Dc::kRowStartLoc, Role::kCutOffsets},
    {Dc::kSeqLensIntra, Role::kIntraLens},
    {Dc::kSeqLensSucc, Role::kSuccLens},
    {Dc::kSeqLensInter, Role::kInterLens},
    {Dc::kScalingFactor, Role::kFactors},
    {Dc::kOutCacheLoc, Role::kStored},
    {Dc::kMaxQueryLen, Role::kLongestQuery},
    {Dc::kMaxIntra, Role::kLongestKeys, Dc::kSeqLensIntra},
    {Dc::kMaxSucc, Role::kLongestKeys, Dc::kSeqLensSucc},
    {Dc::kMaxInter, Role::kLongestKeys, Dc::kSeqLensInter},
};

constexpr BackendInfo kDualChunkInfo{.name = "dual_chunk",
                                     .about = "dual-chunk attention (SGLang)",
                                     .modes = kDualChunkModes,
                                     .page_sizes = {},
                                     .dual_chunk = true,
                                     .fields = kDualChunkFields,
                                     .roles = kDualChunkRoles};

/// The longest row's parts.
KvRange longest(const Limits& limits, ChunkPart part) {
  const DualChunk chunks{limits.model.dual_chunk.chunk_len()};
  if (limits.max_kv_len == 0) return {};
  if (part == ChunkPart::kIntra) return {0, std::min(chunks.chunk_len, limits.max_kv_len)};
  return chunks.range(part, limits.max_kv_len - 1);
}

/// Room for the widest layer of so many heads of a size. A granule is what every layer writes
/// whole.
template <class Heads, class Dim>
void bind_rows(Binder& b, const Limits& limits, Dc::BufferId buffer, const char* name, Heads heads,
               Dim dim) {
  int64_t width = 0, granule = 0;
  for (const LayerKind& k : limits.model.layers) {
    width = std::max<int64_t>(width, int64_t{k.params.*heads} * (k.params.*dim));
    granule = std::gcd(granule, k.params.*dim);
  }
  b.scratch(buffer, name, DType::kF32, {limits.tokens, width}, std::max<int64_t>(granule, 1));
}

void bind_result(Binder& b, const Limits& limits, Dc::BufferId out, const char* out_name,
                 Dc::BufferId lse, const char* lse_name) {
  bind_rows(b, limits, out, out_name, &AttentionParams::num_qo_heads,
            &AttentionParams::head_dim_vo);
  int64_t heads = 0;
  for (const LayerKind& k : limits.model.layers)
    heads = std::max<int64_t>(heads, k.params.num_qo_heads);
  b.scratch(lse, lse_name, DType::kF32, {limits.tokens, heads}, 1);
}

void bind_requests(Binder& b, const Limits& limits) {
  b.ints(Dc::kCacheSeqlens, "cache_seqlens", {limits.rows});
  b.ints(Dc::kSeqStartLoc, "seq_start_loc", {limits.rows + 1});
  b.slots(Dc::kOutCacheLoc, "out_cache_loc", limits.tokens);
  if (limits.model.dual_chunk.original_max_position == 0) return;
  b.list(Dc::kScalingFactor, "scaling_factor", limits.rows, DType::kF32);
  bind_rows(b, limits, Dc::kScaledKeys, "scaled_keys", &AttentionParams::num_kv_heads,
            &AttentionParams::head_dim_qk);
}

void bind_parts(Binder& b, const Limits& limits, int64_t rows) {
  const int32_t unit = limits.model.page_size;
  const auto part = [&](Dc::BufferId lens, const char* lens_name, Dc::BufferId table,
                        const char* table_name, int32_t keys) {
    b.ints(lens, lens_name, {rows});
    b.table(table, table_name, rows, keys, unit);
  };
  part(Dc::kSeqLensIntra, "seq_lens_intra", Dc::kBlockTablesIntra, "block_tables_intra",
       longest(limits, ChunkPart::kIntra).size());
  const int32_t succ = longest(limits, ChunkPart::kSucc).size();
  if (succ == 0) return;
  part(Dc::kSeqLensSucc, "seq_lens_succ", Dc::kBlockTablesSucc, "block_tables_succ", succ);
  bind_result(b, limits, Dc::kIntraOut, "intra_out", Dc::kIntraLse, "intra_lse");
  bind_result(b, limits, Dc::kSuccOut, "succ_out", Dc::kSuccLse, "succ_lse");
  const int32_t inter = longest(limits, ChunkPart::kInter).size();
  if (inter == 0) return;
  part(Dc::kSeqLensInter, "seq_lens_inter", Dc::kBlockTables, "block_tables", inter);
  bind_result(b, limits, Dc::kInterOut, "inter_out", Dc::kInterLse, "inter_lse");
  bind_result(b, limits, Dc::kMergedOut, "merged_out", Dc::kMergedLse, "merged_lse");
}

}  // namespace

const BackendInfo& DualChunkAttention::info() const { return kDualChunkInfo; }

Status DualChunkAttention::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(kDualChunkInfo, limits);
  if (!status.ok()) return status;
  Binder b(*this, arena, limits, kNumBuffers, kNumScalars);
  bind_requests(b, limits);
  if (is_decode_or_idle(limits.mode)) {
    b.constant_steps(kQueryStartLoc, "query_start_loc", limits.rows + 1, 1);
    bind_parts(b, limits, limits.rows);
  } else {
    const int64_t rows =
        max_local_rows(limits.rows, limits.tokens, limits.model.dual_chunk.chunk_len());
    b.ints(kQueryStartLoc, "query_start_loc", {limits.rows + 1});
    b.ints(kRowStartLoc, "row_start_loc", {rows + 1});
    bind_parts(b, limits, rows);
  }
  status = b.bind(meta);
  if (status.ok()) meta->scalars[kMaxQueryLen] = limits.max_q_len;
  return status;
}

std::vector<KeyList> DualChunkAttention::key_lists(const Meta& meta,
                                                   const LayerKind& /*kind*/) const {
  const int queries = meta.has(kRowStartLoc) ? kRowStartLoc : kQueryStartLoc;
  std::vector<KeyList> lists;
  const auto add = [&](BufferId table, BufferId lens) {
    if (meta.has(table)) lists.push_back({.keys = table, .lens = lens, .queries = queries});
  };
  add(kBlockTables, kSeqLensInter);
  add(kBlockTablesSucc, kSeqLensSucc);
  add(kBlockTablesIntra, kSeqLensIntra);
  return lists;
}

}  // namespace shadowgraph
