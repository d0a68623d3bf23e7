#include "backends/paged/flash_mla.h"

#include <algorithm>

#include "attn/page_table.h"
#include "backends/fill/buffer_rows.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kFlashMlaModes[] = {ForwardMode::kDecode,        ForwardMode::kIdle,
                                          ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                          ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode};
constexpr int32_t kFlashMlaPageSizes[] = {64};     // edge: keys
constexpr int32_t kRowCost = 5, kBlockHeads = 64;  // edge: heads

// The schedule counts padding rows, and so has no counterpart in a batch without them: not judged.
constexpr auto kFlashMlaBuffers = with_family(
    kPagedBuffers,
    {field::table(FlashMla::kPageTable, FlashMla::kKvLens, "block_kv_indices", "fa.I-28 fa.I-85"),
     recorded(FlashMla::kSeqLensK, Role::kWidthLens, "seq_lens_k", "fa.I-19 fa.I-87"),
     {FlashMla::kTileMetadata, Role::kParts, FlashMla::kSeqLensK},
     {FlashMla::kNumSplits, Role::kPartSplits, FlashMla::kSeqLensK}});

constexpr BackendInfo kFlashMlaInfo{.name = "flashmla",
                                    .about = "FlashMLA decode (SGLang)",
                                    .modes = kFlashMlaModes,
                                    .page_sizes = kFlashMlaPageSizes,
                                    .heads = false,
                                    .latent = true,
                                    .in_graph_tables = true,
                                    .batch_splits = kFlashMlaModes,
                                    .fixed_splits = false,
                                    .graph_storage = kOneTable,
                                    .buffers = kFlashMlaBuffers};

int32_t blocks_of(int32_t len) { return static_cast<int32_t>(pages_for(len, kMlaBlockKeys)); }

}  // namespace

void share_out(std::span<const int32_t> lens, std::span<int32_t> parts,
               std::span<int32_t> num_splits) {
  const auto rows = static_cast<int32_t>(lens.size());
  const auto n = static_cast<int64_t>(parts.size() / kMlaPartInts);
  int64_t total = 0;
  for (const int32_t len : lens) total += blocks_of(len) + kRowCost;
  const int64_t share = pages_for(total, n) + kRowCost;
  int32_t row = 0, block = 0, split = 0;
  num_splits[0] = 0;
  std::ranges::fill(parts, 0);
  for (int32_t* part = parts.data(); part != parts.data() + n * kMlaPartInts;
       part += kMlaPartInts) {
    part[kBeginRow] = row, part[kBeginKey] = block * kMlaBlockKeys, part[kBeginSplit] = split;
    int64_t room = share;
    for (; row < rows; ++row, block = split = 0) {
      const auto at = static_cast<size_t>(row);
      const int64_t cost = blocks_of(lens[at]) - block + kRowCost;
      if (room < cost) break;
      room -= cost;
      num_splits[at + 1] = num_splits[at] + split + 1;
    }
    if (row < rows && room > kRowCost) {
      block += static_cast<int32_t>(room - kRowCost);
      ++split;
    }
    part[kEndRow] = block > 0 ? row : row - 1;
    if (block > 0) part[kEndKey] = block * kMlaBlockKeys;
    if (block == 0 && row > 0) part[kEndKey] = lens[static_cast<size_t>(row) - 1];
  }
}

const BackendInfo& FlashMla::info() const { return kFlashMlaInfo; }

int32_t FlashMla::num_parts(const Limits& limits) {
  int32_t heads = 1;
  for (const LayerKind& layer : limits.model.layers)
    heads = std::max(heads, layer.params.num_qo_heads);
  const int64_t blocks = pages_for(int64_t{heads} * std::max(1, limits.max_q_len), kBlockHeads);
  return static_cast<int32_t>(std::max<int64_t>(1, limits.model.split.num_sms / blocks));
}

void FlashMla::bind_own(Binder& binder, const Limits& limits) const {
  binder.ints(kSeqLensK, "seq_lens_k", {limits.rows});
  binder.ints(kTileMetadata, "tile_metadata", {num_parts(limits), kMlaPartInts});
  binder.ints(kNumSplits, "num_splits", {limits.rows + 1});
  // A row has one split more than parts end inside of it.
  const int64_t splits = int64_t{num_parts(limits)} + limits.rows;
  ResultRoom room;
  for (const LayerKind& layer : limits.model.layers)
    room.add(layer.params, splits * std::max(1, limits.max_q_len));
  binder.result(kPartialOut, kPartialLse, "partial", room);
}

void FlashMla::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  MlaBackend::fill_own(batch, limits, filler);
  share_out(filler.ints(kSeqLensK), filler.ints(kTileMetadata), filler.ints(kNumSplits));
}

void FlashMla::attend(Stream& stream, const Meta& meta, const LayerIo& io,
                      std::span<const int32_t> kv_lens,
                      std::span<const int32_t> cu_seqlens_q) const {
  MlaParts parts{attention_of(meta, io, kv_lens, cu_seqlens_q)};
  const AttentionParams& p = parts.params;
  const Buffer &out = meta[kPartialOut], &lse = meta[kPartialLse];
  parts.tile_metadata = elements<int32_t>(meta[kTileMetadata]);
  parts.num_splits = elements<int32_t>(meta[kNumSplits]);
  parts.partial_out = scratch_rows(out, out.shape[0], p.num_qo_heads, p.head_dim_vo);
  parts.partial_lse = NaturalLse(scratch_rows(lse, lse.shape[0], p.num_qo_heads));
  const RequestRows rows{1, meta.limits.first_row};
  stream.launch(mla_parts_launch(parts, rows));
  stream.launch(mla_merge_launch(parts, rows));
}

std::vector<int32_t> FlashMla::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                            const LayerKind& /*kind*/) const {
  std::vector<int32_t> lens, parts;
  for (int32_t i = 0; i < limits.rows; ++i) lens.push_back(seq_len_k(batch, limits, i));
  std::vector<int32_t> tiles(static_cast<size_t>(num_parts(limits)) * kMlaPartInts);
  std::vector<int32_t> before(lens.size() + 1);
  share_out(lens, tiles, before);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto row = static_cast<size_t>(i);
    parts.insert(parts.end(), static_cast<size_t>(batch.extent(i).q_len),
                 before[row + 1] - before[row]);
  }
  return parts;
}

}  // namespace shadowgraph
