#include "backends/paged/dual_chunk.h"

#include <algorithm>
#include <numeric>

#include "attn/dual_chunk.h"
#include "backends/fill/buffer_rows.h"
#include "backends/fill/local_attention.h"

namespace shadowgraph {
namespace {

using Dc = DualChunkAttention;

constexpr ForwardMode kDualChunkModes[] = {ForwardMode::kExtend, ForwardMode::kDecode,
                                           ForwardMode::kMixed, ForwardMode::kIdle,
                                           ForwardMode::kSplitPrefill};

// Rows of a prefill are the engine's walk, which it keeps on no list.
constexpr BufferInfo kDualChunkBuffers[] = {
    dead(recorded(Dc::kCacheSeqlens, Role::kKeyLens, "seq_lens", "fi.I-107"),
         "the kernels take the lengths of the parts"),
    recorded(Dc::kQueryStartLoc, Role::kQueryOffsets, "query_start_loc", "fi.I-3"),
    dead(recorded(Dc::kSeqStartLoc, Role::kKeyOffsets, "seq_start_loc", "fi.I-107"),
         "a prefill walks its requests on the host"),
    {Dc::kRowStartLoc, Role::kCutOffsets},
    recorded(Dc::kSeqLensIntra, Role::kIntraLens, "seq_lens_intra", "fi.I-107"),
    recorded(Dc::kSeqLensSucc, Role::kSuccLens, "seq_lens_succ", "fi.I-107"),
    recorded(Dc::kSeqLensInter, Role::kInterLens, "seq_lens_inter", "fi.I-107"),
    field::table(Dc::kBlockTablesIntra, Dc::kSeqLensIntra, "block_tables_intra", "fi.I-107"),
    field::table(Dc::kBlockTablesSucc, Dc::kSeqLensSucc, "block_tables_succ", "fi.I-107"),
    field::table(Dc::kBlockTables, Dc::kSeqLensInter, "block_tables", "fi.I-107"),
    {Dc::kScalingFactor, Role::kFactors},
    {Dc::kOutCacheLoc, Role::kStored},
    {Dc::kMaxQueryLen, Role::kLongestQuery},
    recorded(Dc::kMaxIntra, Role::kLongestKeys, "max_seq_len_intra", "fi.I-107", Dc::kSeqLensIntra),
    recorded(Dc::kMaxSucc, Role::kLongestKeys, "max_seq_len_succ", "fi.I-107", Dc::kSeqLensSucc),
    recorded(Dc::kMaxInter, Role::kLongestKeys, "max_seq_len_inter", "fi.I-107", Dc::kSeqLensInter),
};

constexpr BackendInfo kDualChunkInfo{.name = "dual_chunk",
                                     .about = "dual-chunk attention (SGLang)",
                                     .modes = kDualChunkModes,
                                     .page_sizes = {},
                                     .dual_chunk = true,
                                     .graph_storage = kOneForEachBucket,
                                     .buffers = kDualChunkBuffers};

/// The longest row's parts.
KvRange longest(const Limits& limits, ChunkPart part) {
  const DualChunk chunks{limits.model.dual_chunk.chunk_len()};
  if (limits.max_kv_len == 0) return {};
  if (part == ChunkPart::kIntra) return {0, std::min(chunks.chunk_len, limits.max_kv_len)};
  return chunks.range(part, limits.max_kv_len - 1);
}

void bind_requests(Binder& b, const Limits& limits) {
  b.ints(Dc::kCacheSeqlens, "cache_seqlens", {limits.rows});
  b.ints(Dc::kSeqStartLoc, "seq_start_loc", {limits.rows + 1});
  b.slots(Dc::kOutCacheLoc, "out_cache_loc", limits.tokens);
  if (limits.model.dual_chunk.original_max_position == 0) return;
  b.list(Dc::kScalingFactor, "scaling_factor", limits.rows, DType::kF32);
  int64_t width = 0, granule = 0;
  for (const LayerKind& k : limits.model.layers) {
    width = std::max(width, int64_t{k.params.num_kv_heads} * k.params.head_dim_qk);
    granule = std::gcd(granule, int64_t{k.params.head_dim_qk});
  }
  b.scratch(Dc::kScaledKeys, "scaled_keys", DType::kF32, {limits.tokens, width},
            std::max<int64_t>(granule, 1));
}

void bind_parts(Binder& b, const Limits& limits, int64_t rows) {
  const int32_t unit = limits.model.page_size;
  ResultRoom room;
  for (const LayerKind& k : limits.model.layers) room.add(k.params, limits.tokens);
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
  b.result(Dc::kIntraOut, Dc::kIntraLse, "intra", room);
  b.result(Dc::kSuccOut, Dc::kSuccLse, "succ", room);
  const int32_t inter = longest(limits, ChunkPart::kInter).size();
  if (inter == 0) return;
  part(Dc::kSeqLensInter, "seq_lens_inter", Dc::kBlockTables, "block_tables", inter);
  b.result(Dc::kInterOut, Dc::kInterLse, "inter", room);
  b.result(Dc::kMergedOut, Dc::kMergedLse, "merged", room);
}

}  // namespace

const BackendInfo& DualChunkAttention::info() const { return kDualChunkInfo; }

Status DualChunkAttention::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(kDualChunkInfo, limits);
  if (!status.ok()) return status;
  Binder b(*this, arena, limits, kNumBuffers, kNumScalars);
  bind_requests(b, limits);
  b.query_offsets(kQueryStartLoc, "query_start_loc", limits.rows);
  if (is_decode_or_idle(limits.mode)) {
    bind_parts(b, limits, limits.rows);
  } else {
    const int64_t rows =
        max_local_rows(limits.rows, limits.tokens, limits.model.dual_chunk.chunk_len());
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
    if (meta.has(table)) lists.push_back(table_of_keys(table, lens, queries));
  };
  add(kBlockTables, kSeqLensInter);
  add(kBlockTablesSucc, kSeqLensSucc);
  add(kBlockTablesIntra, kSeqLensIntra);
  return lists;
}

}  // namespace shadowgraph
