// Fills dual-chunk metadata: the parts of each row, their tables, and the factors of keys.
#include <algorithm>

#include "attn/dual_chunk.h"
#include "backends/fill/local_attention.h"
#include "backends/paged/dual_chunk.h"

namespace shadowgraph {
namespace {

using Dc = DualChunkAttention;

/// One fill of a batch that fits.
class DualChunkFill {
 public:
  DualChunkFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch),
        limits_(meta.limits),
        meta_(meta),
        f_(meta),
        chunks_{limits_.model.dual_chunk.chunk_len()} {
    for (const Part& part : kParts)
      if (meta.has(part.lens)) lens_[part.lens - Dc::kSeqLensIntra] = f_.ints(part.lens);
    if (!meta.has(Dc::kRowStartLoc)) return;
    row_starts_ = f_.ints(Dc::kRowStartLoc);
    row_starts_[0] = 0;
  }

  Status run() {
    const std::span<int32_t> lens = f_.ints(Dc::kCacheSeqlens);
    const std::span<int32_t> key_starts = f_.ints(Dc::kSeqStartLoc);
    std::span<int32_t> query_starts;
    if (!row_starts_.empty()) query_starts = f_.ints(Dc::kQueryStartLoc);
    if (!query_starts.empty()) query_starts[0] = 0;
    key_starts[0] = 0;
    std::ranges::fill(meta_.scalars, 0);
    for (size_t i = 0; i < lens.size(); ++i) {
      RequestRow row = row_of(batch_, limits_, static_cast<int64_t>(i));
      row.extent.q_len = std::min(row.extent.q_len, limits_.tokens - tokens_);
      tokens_ += row.extent.q_len;
      lens[i] = row.extent.kv_len;
      key_starts[i + 1] = key_starts[i] + row.extent.kv_len;
      if (!query_starts.empty()) query_starts[i + 1] = tokens_;
      add_rows(row);
      if (!row.padding()) raise(Dc::kMaxQueryLen, row.extent.q_len);
    }
    while (at_ < std::ssize(lens_[0])) add_unused();
    if (meta_.has(Dc::kScalingFactor)) factors();
    f_.out_cache_loc(batch_, Dc::kOutCacheLoc, -1);
    return f_.take_status();
  }

 private:
  struct Part {
    ChunkPart of;
    Dc::BufferId lens, table;
    Dc::ScalarId longest;
  };
  static constexpr Part kParts[] = {
      {ChunkPart::kIntra, Dc::kSeqLensIntra, Dc::kBlockTablesIntra, Dc::kMaxIntra},
      {ChunkPart::kSucc, Dc::kSeqLensSucc, Dc::kBlockTablesSucc, Dc::kMaxSucc},
      {ChunkPart::kInter, Dc::kSeqLensInter, Dc::kBlockTables, Dc::kMaxInter}};

  void raise(Dc::ScalarId scalar, int64_t value) {
    meta_.scalars[scalar] = std::max(meta_.scalars[scalar], value);
  }

  /// A row for each chunk that the request's queries touch.
  void add_rows(const RequestRow& row) {
    for_each_local_row(row.extent, chunks_.chunk_len, [&](const LocalRow& local) {
      const int32_t last = local.first_key + local.kv_len - 1;
      for (const Part& part : kParts) {
        const KvRange keys = last < 0 ? KvRange{} : chunks_.range(part.of, last);
        if (!meta_.has(part.table)) continue;
        lens_[part.lens - Dc::kSeqLensIntra][static_cast<size_t>(at_)] = keys.size();
        const auto first = row.padding() ? 0 : static_cast<size_t>(keys.begin);
        f_.table_row(part.table, at_, row.slots.subspan(first), keys.size());
        if (!row.padding()) raise(part.longest, keys.size());
      }
      end_row(local.q_len);
    });
  }

  /// The rows that nobody needed have no query and no key.
  void add_unused() {
    for (const Part& part : kParts) {
      if (!meta_.has(part.table)) continue;
      lens_[part.lens - Dc::kSeqLensIntra][static_cast<size_t>(at_)] = 0;
      f_.row(part.table, at_, 0);
    }
    end_row(0);
  }

  void end_row(int32_t q_len) {
    const auto at = static_cast<size_t>(at_++);
    if (!row_starts_.empty()) row_starts_[at + 1] = row_starts_[at] + q_len;
  }

  /// Padding stores nothing.
  void factors() {
    const std::span<float> to = f_.list<float>(Dc::kScalingFactor, 0, limits_.rows);
    const int32_t original = limits_.model.dual_chunk.original_max_position;
    for (size_t i = 0; i < to.size(); ++i) {
      const auto request = static_cast<int64_t>(i);
      const bool real = request < batch_.size();
      to[i] =
          real ? static_cast<float>(dual_chunk_factor(batch_.prompt_len(request), original)) : 1;
    }
  }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  const DualChunk chunks_;
  std::span<int32_t> lens_[3], row_starts_;
  int64_t at_ = 0;      // the next row
  int32_t tokens_ = 0;  // of the rows so far
};

}  // namespace

Status DualChunkAttention::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits(batch, meta.limits);
  return status.ok() ? DualChunkFill(batch, meta).run() : status;
}

}  // namespace shadowgraph
