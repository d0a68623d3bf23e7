// Fills FlashAttention's metadata: lengths, offsets, page tables, cascades, chunks of a prefix.
#include <algorithm>
#include <iterator>

#include "attn/page_table.h"
#include "attn/tree_mask.h"
#include "backends/fill/local_attention.h"
#include "backends/fill/prefix_chunks.h"
#include "backends/fill/rows.h"
#include "backends/paged/flash_attention.h"
#include "shadowgraph/attention/conventions.h"

namespace shadowgraph {
namespace {

using Fa = FlashAttention;

// edge: keys, query_rows
constexpr int64_t kSplitKeys = 16, kTileRows = 128;  // a block of keys, a tile of packed queries

/// The rows of local layers, from the tables of whole rows.
class LocalFill {
 public:
  LocalFill(Filler& f, Meta& meta) : f_(f), meta_(meta) {
    if (!meta.has(Fa::kLocalTable)) return;
    lens_ = f.ints(Fa::kLocalSeqlens);
    cu_q_ = f.ints(Fa::kLocalCuSeqlensQ);
    cu_q_[0] = 0;
  }

  /// The next row; write(at, local_row) its columns.
  template <class Write>
  void add(const RequestExtent& e, bool padding, Write write) {
    if (cu_q_.empty()) return;
    for_each_local_row(e, meta_.limits.model.attention_chunk, [&](const LocalRow& row) {
      write(at_, row);
      close(row.q_len, row.kv_len);
      if (padding) return;
      max_q_ = std::max(max_q_, row.q_len);
      max_kv_ = std::max(max_kv_, row.kv_len);
    });
  }
  /// The next row, of one query and columns that are written already.
  void add_last(int32_t kv_len, bool padding, std::span<const int32_t> columns) {
    const int32_t unit = meta_.units[Fa::kLocalTable];
    add({kv_len - 1, 1, kv_len}, padding, [&](int64_t at, const LocalRow& row) {
      const std::span<int32_t> to = f_.row(Fa::kLocalTable, at, pages_for(row.kv_len, unit));
      std::ranges::copy(columns.last(to.size()), to.begin());
    });
  }

  /// The rows that nobody needed have no query.
  void finish() {
    if (cu_q_.empty()) return;
    while (at_ < std::ssize(lens_)) {
      f_.row(Fa::kLocalTable, at_, 0);
      close(0, 0);
    }
    meta_.scalars[Fa::kLocalMaxQueryLen] = max_q_;
    meta_.scalars[Fa::kLocalMaxSeqLen] = max_kv_;
  }

 private:
  void close(int32_t q_len, int32_t kv_len) {
    const auto at = static_cast<size_t>(at_++);
    lens_[at] = kv_len;
    cu_q_[at + 1] = cu_q_[at] + q_len;
  }

  Filler& f_;
  Meta& meta_;
  std::span<int32_t> lens_, cu_q_;
  int64_t at_ = 0;
  int32_t max_q_ = 0, max_kv_ = 0;
};

/// One fill of a batch that fits.
class FlashAttentionFill {
 public:
  FlashAttentionFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch),
        limits_(meta.limits),
        meta_(meta),
        f_(meta),
        local_(f_, meta),
        map_(limits_.model.swa_pool ? batch.full_to_swa : std::span<const int64_t>{}),
        mask_(batch.spec.custom_mask),
        lens_(f_.ints(Fa::kCacheSeqlens)) {
    if (!is_decode_or_idle(limits_.mode)) cu_q_ = f_.ints(Fa::kCuSeqlensQ);
    if (!cu_q_.empty()) cu_q_[0] = 0;
    if (meta.has(Fa::kExpandSeqlens)) expand_lens_ = f_.ints(Fa::kExpandSeqlens);
    if (meta.has(Fa::kMergedSeqlens)) merged_lens_ = f_.ints(Fa::kMergedSeqlens);
  }

  Status run() {
    int32_t max_q = 0, max_kv = 0;
    for (int32_t i = 0; i < limits_.rows; ++i) {
      RequestRow row = row_of(batch_, limits_, i);
      // What a bucket has no tokens for, padding does not ask for.
      row.extent.q_len = std::min(row.extent.q_len, limits_.tokens - tokens_);
      const int32_t queries = is_draft_tree(limits_) ? limits_.model.topk : row.extent.q_len;
      if (is_draft_tree(limits_)) {
        draft_branches(i, row);
      } else if (is_verify_tree(limits_)) {
        tree_tokens(i, row);
      } else {
        whole_row(i, row);
      }
      tokens_ += queries;
      if (!cu_q_.empty()) cu_q_[static_cast<size_t>(i) + 1] = tokens_;
      if (row.padding()) continue;
      max_q = std::max(max_q, queries);
      max_kv = std::max(max_kv, lens_[static_cast<size_t>(i)]);
    }
    meta_.scalars[Fa::kMaxSeqLenQ] = max_q;
    meta_.scalars[Fa::kMaxSeqLenK] = max_kv;
    meta_.scalars[Fa::kExpandMaxSeqLenQ] = expand_lens_.empty() ? 0 : 1;
    local_.finish();
    if (meta_.has(Fa::kEncoderTable)) encoder_rows();
    if (meta_.has(Fa::kSchedulerMetadata)) row_splits();
    if (meta_.has(Fa::kChunkSlots)) chunk_rows();
    f_.out_cache_loc(batch_, Fa::kOutCacheLoc, Fa::kSwaOutCacheLoc);
    return f_.take_status();
  }

 private:
  /// A row of req_to_token, for all layers but the local ones.
  void main_row(int64_t i, const RequestRow& row, int32_t tokens) {
    lens_[static_cast<size_t>(i)] = tokens;
    f_.tables(Fa::kTables, batch_, i, row, tokens);
  }

  /// All keys in one table.
  void whole_row(int64_t i, const RequestRow& row) {
    main_row(i, row, row.extent.kv_len);
    local_.add(row.extent, row.padding(), [&](int64_t at, const LocalRow& local) {
      const auto first = row.padding() ? 0 : static_cast<size_t>(local.first_key);
      f_.table_row(Fa::kLocalTable, at, row.slots.subspan(first), local.kv_len, map_);
    });
  }

  /// The prefix's whole pages, then a row for each branch: the pages from the prefix's last,
  /// partial one on, which every branch has a copy of.
  void draft_branches(int64_t i, const RequestRow& row) {
    const int32_t unit = meta_.units[Fa::kDraftTable], drafts = limits_.step + 1;
    const int32_t prefix = row.extent.kv_len - drafts, partial = prefix % unit;
    main_row(i, row, prefix - partial);
    for (int64_t r = i * limits_.model.topk; r < (i + 1) * limits_.model.topk; ++r) {
      std::span<const int64_t> branch;
      if (!row.padding()) branch = drafted_slots(batch_, limits_, r);
      expand_lens_[static_cast<size_t>(r)] = partial + drafts;
      const auto columns = f_.row(Fa::kDraftTable, r, pages_for(partial + drafts, unit));
      branch_columns(columns, branch, partial, unit, {});
      if (!merged_lens_.empty()) merged_branch(r, row, branch);
    }
  }

  void merged_branch(int64_t r, const RequestRow& row, std::span<const int64_t> branch) {
    const int32_t unit = meta_.units[Fa::kMergedTable];
    const int32_t kv_len = row.extent.kv_len, prefix = kv_len - limits_.step - 1;
    merged_lens_[static_cast<size_t>(r)] = kv_len;
    const auto columns = f_.row(Fa::kMergedTable, r, pages_for(kv_len, unit));
    const auto whole = static_cast<size_t>(prefix / unit);
    for (size_t c = 0; c < whole; ++c) {
      columns[c] = 0;
      if (row.padding()) continue;
      columns[c] = to_page(Slot(slot_of(row.slots[c * static_cast<size_t>(unit)])), unit).value;
    }
    branch_columns(columns.subspan(whole), branch, prefix % unit, unit, map_);
    local_.add_last(kv_len, row.padding(), columns);
  }

  /// Pages of a branch whose first token stands `partial` tokens into the first: of each page, the
  /// page of the first token on it.
  static void branch_columns(std::span<int32_t> columns, std::span<const int64_t> branch,
                             int32_t partial, int32_t unit, std::span<const int64_t> map) {
    int32_t first = 0;  // the branch's first token on the column's page
    for (int32_t& column : columns) {
      const int64_t slot = branch.empty() ? 0 : branch[static_cast<size_t>(first)];
      const Slot in_pool(map.empty() ? static_cast<int32_t>(slot) : translate(map, slot));
      column = to_page(in_pool, unit).value;
      first += first == 0 ? unit - partial : unit;
    }
  }

  /// The prefix, then a row for each draft token: the drafts that it sees, in order. Padding's see
  /// themselves.
  void tree_tokens(int64_t i, const RequestRow& row) {
    const RequestExtent e = row.extent;
    main_row(i, row, e.prefix_len);
    const TreeMask mask(mask_, e);
    for (int32_t t = 0; t < e.q_len; ++t) {
      const int64_t r = tokens_ + t;
      const int32_t visible = row.padding() ? 1 : mask.visible(t);
      expand_lens_[static_cast<size_t>(r)] = visible;
      const auto drafts = f_.row(Fa::kTreeTable, r, visible);
      drafts[0] = 0;
      for (size_t u = 0, n = 0; !row.padding() && n < drafts.size(); ++u)
        if (mask.row(t)[u] != 0) drafts[n++] = row.slots[static_cast<size_t>(e.prefix_len) + u];
      if (!merged_lens_.empty()) merged_token(r, row, drafts);
    }
    if (!row.padding()) mask_ = mask.rest();
  }

  /// A token sees only its ancestors, parents first: so a key stands where its position says, and
  /// the token itself last.
  void merged_token(int64_t r, const RequestRow& row, std::span<const int32_t> drafts) {
    const auto prefix = static_cast<size_t>(row.extent.prefix_len);
    const auto kv_len = static_cast<int32_t>(prefix + drafts.size());
    merged_lens_[static_cast<size_t>(r)] = kv_len;
    const auto columns = f_.row(Fa::kMergedTable, r, kv_len);
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool draft = c >= prefix;
      columns[c] = row.padding() ? 0 : slot_of(draft ? drafts[c - prefix] : row.slots[c]);
    }
    local_.add_last(kv_len, row.padding(), columns);
  }

  /// The blocks of all rows and heads, and a tenth more, are shared out among the machine's
  /// multiprocessors; a row has as many splits as shares.
  void row_splits() {
    const std::vector<LayerKind>& layers = limits_.model.layers;
    const SplitConfig& split = limits_.model.split;
    const AttentionParams& p = std::ranges::find_if(layers, [&](const LayerKind& k) {
                                 return Fa::scheduled(limits_, k);
                               })->params;
    const int64_t heads = std::max(1, p.num_kv_heads),
                  tiles = heads * pages_for(p.num_qo_heads / heads, kTileRows);
    int64_t total = 0;
    for (const int32_t len : lens_) total += pages_for(len, kSplitKeys) * tiles;
    const int64_t share =
        std::max<int64_t>(1, pages_for(total * 11, int64_t{10} * std::max(1, split.num_sms)));
    const std::span<int32_t> schedule = f_.ints(Fa::kSchedulerMetadata);
    schedule[0] = 0;
    for (size_t i = 0; i < lens_.size(); ++i) {
      const int64_t shares = pages_for(pages_for(lens_[i], kSplitKeys), share);
      schedule[1 + i] =
          static_cast<int32_t>(std::clamp<int64_t>(shares, 1, Fa::most_splits(split)));
    }
  }

  void encoder_rows() {
    const std::span<int32_t> lens = f_.ints(Fa::kEncoderSeqlens);
    for (size_t i = 0; i < lens.size(); ++i) {
      const bool real = i < batch_.encoder_lens.size();
      lens[i] = real ? batch_.encoder_lens[i] : 0;
      const auto slots =
          real ? batch_.req_to_token.row(batch_.req_pool_indices[i]) : std::span<const int32_t>{};
      f_.table_row(Fa::kEncoderTable, static_cast<int64_t>(i), slots, lens[i]);
    }
    meta_.scalars[Fa::kEncoderMaxSeqLenK] = lens.empty() ? 0 : *std::ranges::max_element(lens);
    f_.encoder_out_cache_loc(batch_, Fa::kEncoderOutCacheLoc);
  }

  /// For each chunk, the part of every request that lies in it; padding has no part.
  void chunk_rows() {
    const PrefixChunks chunks = PrefixChunks::of(limits_);
    for (int32_t c = 0; c < chunks.count; ++c) {
      const std::span<int32_t> cu_k = chunks.one_shot
                                          ? f_.ints(Fa::kCuSeqlensK)
                                          : f_.row(Fa::kChunkCuSeqlensK, c, limits_.rows + 1);
      cu_k[0] = 0;
      for (size_t i = 0; i + 1 < cu_k.size(); ++i) {
        const bool real = static_cast<int64_t>(i) < batch_.size();
        const ChunkKeys keys =
            real ? chunks.keys(c, batch_.extent(static_cast<int64_t>(i))) : ChunkKeys{};
        cu_k[i + 1] = cu_k[i] + keys.end - keys.first;
      }
      const std::span<int64_t> slots = f_.slot_row(Fa::kChunkSlots, c, cu_k.back());
      for (int64_t i = 0; i < batch_.size(); ++i) {
        const RequestRow row = row_of(batch_, limits_, i);
        const ChunkKeys keys = chunks.keys(c, row.extent);
        std::ranges::copy(row.slots.subspan(static_cast<size_t>(keys.first),
                                            static_cast<size_t>(keys.end - keys.first)),
                          slots.begin() + cu_k[static_cast<size_t>(i)]);
      }
    }
  }

  /// In the pool of the merged rows.
  int32_t slot_of(int32_t slot) const { return map_.empty() ? slot : translate(map_, slot); }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  LocalFill local_;
  const std::span<const int64_t> map_;
  std::span<const uint8_t> mask_;
  std::span<int32_t> lens_, cu_q_, expand_lens_, merged_lens_;
  int32_t tokens_ = 0;  // of the rows so far
};

}  // namespace

Status FlashAttention::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits(batch, meta.limits);
  if (!status.ok()) return status;
  if (is_verify_tree(meta.limits)) status.add(check_trees(batch));
  status.add(
      translates(batch, meta.limits, is_verify_tree(meta.limits) ? 1 : meta.units[kPageTable]));
  return status.ok() ? FlashAttentionFill(batch, meta).run() : status;
}

}  // namespace shadowgraph
