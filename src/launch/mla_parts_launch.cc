#include "launch/mla_parts_launch.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "attn/page_table.h"
#include "kernels/dense/attend_part.h"
#include "launch/checked_array.h"
#include "launch/partial_rows.h"

namespace shadowgraph {

namespace {

/// A row's own queries, as far as its window goes.
struct RowQueries {
  int64_t begin, count;
};

/// What both launches read, and both take to be so.
class MlaRows {
 protected:
  MlaRows(const MlaParts& c, Footprint* spans)
      : spans_(spans),
        c_(c),
        window_(std::max(1, c.max_seqlen_q)),
        offsets_(array(c.cu_seqlens_q)),
        num_splits_(array(c.num_splits)) {}

  CheckedArray<const int32_t> array(std::span<const int32_t> of) const {
    return {of.data(), std::ssize(of), spans_};
  }
  int32_t rows() const { return static_cast<int32_t>(c_.pages.batch()); }

  /// Nothing where q and out do not have them all: those that out has are lost.
  std::optional<RowQueries> queries_of(int32_t row) {
    if (c_.cu_seqlens_q.empty()) return RowQueries{row, 1};
    const auto begin = offsets_.load(row, row), end = offsets_.load(row + 1, row);
    if (!begin || !end) return {};
    const RowQueries q{*begin, std::clamp<int64_t>(int64_t{*end} - *begin, 0, window_)};
    const int64_t known = std::min(c_.q.shape[0], c_.out.shape[0]);
    if (q.begin >= 0 && q.begin + q.count <= known) return q;
    if (spans_ != nullptr) add_rows_beyond(spans_, c_.q, q.begin, q.count, row);
    lose(row, q);
    return {};
  }
  void lose(int32_t row, const RowQueries& q) const {
    lose_rows(c_.out, c_.lse.tensor, row, q.begin, q.count);
  }
  void lose_partial(int32_t row, int64_t split, int64_t count) const {
    lose_rows(c_.partial_out, c_.partial_lse.tensor, row, split * window_, count);
  }

  Footprint* spans_;
  MlaParts c_;
  int64_t window_;

 private:
  void lose_rows(const TensorView& out, const TensorView& lse, int32_t request, int64_t first,
                 int64_t count) const {
    for (int64_t j = 0; j < count; ++j) {
      lose_row(out, first + j, request, spans_);
      lose_row(lse, first + j, request, spans_);
    }
  }

  CheckedArray<const int32_t> offsets_;

 protected:
  CheckedArray<const int32_t> num_splits_;
};

class MlaPartsRun : MlaRows {
 public:
  MlaPartsRun(const MlaParts& c, Footprint* spans)
      : MlaRows(c, spans),
        parts_(array(c.tile_metadata)),
        lens_(array(c.pages.cache_seqlens)),
        table_(array(c.pages.page_table)) {}

  void run() {
    for (int64_t first = 0; first < parts_.size(); first += kMlaPartInts) run_part(first);
  }

 private:
  /// Keys of a row, [begin, end), and the first block behind them.
  struct Range {
    int64_t begin_block, end_block, len;
    int64_t split;  // of the row; -1: it is the only one
  };

  void run_part(int64_t first) {
    int32_t part[kBeginSplit + 1];
    for (int64_t i = 0; i <= kBeginSplit; ++i) {
      const auto value = parts_.load(first + i, -1);
      if (!value) return;
      part[i] = *value;
    }
    if (part[kBeginRow] >= rows()) return;
    for (int32_t row = part[kBeginRow]; row <= part[kEndRow]; ++row) {
      const auto len = lens_.load(row, row);
      if (!len) return;  // and so are the rows behind it
      const int64_t end = row == part[kEndRow] ? part[kEndKey] : *len;
      Range r{.begin_block = 0, .end_block = blocks_of(end), .len = *len, .split = 0};
      if (row == part[kBeginRow])
        r.begin_block = part[kBeginKey] / kMlaBlockKeys, r.split = part[kBeginSplit];
      if (r.begin_block == 0 && r.end_block == blocks_of(*len)) r.split = -1;
      run_row(row, r);
    }
  }
  static int64_t blocks_of(int64_t keys) {
    return pages_for(std::max<int64_t>(keys, 0), kMlaBlockKeys);
  }

  void run_row(int32_t row, const Range& r) {
    const std::optional<RowQueries> q = queries_of(row);
    if (!q || q->count == 0) return;
    int64_t place = 0;
    if (r.split >= 0) {
      const auto before = num_splits_.load(row, row);
      if (!before) return lose(row, *q);
      place = *before + r.split;
    }
    AttentionPart p;
    const bool known = find_keys(row, *q, r, &p);
    p.q = rows_of(c_.q, q->begin, q->count);
    p.q_position = r.len - window_;
    p.key_position = r.begin_block * kMlaBlockKeys;
    p.params = c_.params;
    p.options.num_threads = 1;
    if (r.split < 0) {
      p.out = rows_of(c_.out, q->begin, q->count);
      if (c_.lse.defined()) p.lse = NaturalLse(rows_of(c_.lse.tensor, q->begin, q->count));
    } else if (place >= 0 && (place + 1) * window_ <= c_.partial_out.shape[0]) {
      p.params.sinks = {};
      p.out = rows_of(c_.partial_out, place * window_, q->count);
      p.lse = NaturalLse(rows_of(c_.partial_lse.tensor, place * window_, q->count));
    } else {
      return lose_partial(row, place, q->count);
    }
    if (known && spans_ == nullptr && attend_part(p).ok()) return;
    if (known && spans_ != nullptr && validate(p).ok()) return add_footprint(p, row);
    if (r.split < 0) return lose(row, *q);
    lose_partial(row, place, q->count);
  }

  /// The keys that some query sees. False where a block lies behind the row's keys or beyond the
  /// table, or its page outside of the pool: what a GPU would have read then is noted.
  bool find_keys(int32_t row, const RowQueries& q, const Range& r, AttentionPart* p) {
    const KvCache& cache = c_.cache;
    const int64_t columns = c_.pages.max_pages, first_entry = row * columns;
    slots_.clear();
    p->keys.cache = slot_view(cache);
    const int64_t last_block = std::max(blocks_of(r.len), r.begin_block);
    if (r.begin_block < 0 || r.end_block > last_block) {
      const int64_t from = r.begin_block < 0 ? r.begin_block : last_block;
      note_entries(row, first_entry + from, r.end_block - from);
      return false;
    }
    bool known = true;
    const int64_t end = std::min(r.end_block * kMlaBlockKeys, r.len - window_ + q.count);
    for (int64_t key = r.begin_block * kMlaBlockKeys; key < end; key += kMlaBlockKeys) {
      const int64_t block = key / kMlaBlockKeys;
      if (block >= columns) {
        note_entries(row, first_entry + block, blocks_of(end) - block);
        return false;
      }
      const auto page = table_.load(first_entry + block, row);
      if (!page || *page < 0 || *page >= cache.num_pages) {
        if (page && spans_ != nullptr) add_beyond_pool(spans_, cache, *page, Access::kRead, row);
        known = false;
        continue;
      }
      for (int64_t slot = int64_t{*page} * kMlaBlockKeys, i = 0;
           i < std::min<int64_t>(kMlaBlockKeys, end - key); ++i)
        slots_.push_back(static_cast<int32_t>(slot + i));
    }
    p->keys.slots = slots_;
    return known;
  }
  void note_entries(int32_t row, int64_t first, int64_t count) const {
    if (spans_ != nullptr && count > 0)
      spans_->push_back(
          {c_.pages.page_table.data(), first, count, sizeof(int32_t), Access::kRead, row});
  }
  /// Without the list of slots, which no launch has.
  void add_footprint(const AttentionPart& p, int32_t row) const {
    Footprint all;
    add_part_footprint(p, row, &all);
    for (const AccessSpan& span : all)
      if (span.buffer != slots_.data()) spans_->push_back(span);
  }

  CheckedArray<const int32_t> parts_, lens_, table_;
  std::vector<int32_t> slots_;
};

class MlaMerge : MlaRows {
 public:
  MlaMerge(const MlaParts& c, Footprint* spans)
      : MlaRows(c, spans),
        partial_(c.partial_lse.tensor, LseBase::kNatural),
        lse_(c.lse.tensor, LseBase::kNatural),
        most_(c.partial_out.shape[0] / window_),
        merge_(most_, c.partial_out.shape[2], spans) {}

  void run() {
    if (spans_ != nullptr) add_whole(spans_, c_.params.sinks);
    for (int32_t row = 0; row < rows(); ++row) run_row(row);
  }

 private:
  void run_row(int32_t row) {
    const auto begin = num_splits_.load(row, row), end = num_splits_.load(row + 1, row);
    if (begin && end && int64_t{*end} - *begin == 1) return;
    const std::optional<RowQueries> q = queries_of(row);
    if (!q) return;
    if (!begin || !end || *begin < 0 || *end <= *begin || *end > most_) {
      if (begin && end && spans_ != nullptr)
        add_rows_beyond(spans_, c_.partial_out, *begin * window_,
                        (int64_t{*end} - *begin) * window_, row);
      return lose(row, *q);
    }
    for (int64_t j = 0; j < q->count; ++j) {
      for (int32_t head = 0; head < c_.params.num_qo_heads; ++head) {
        merge_.clear();
        for (int64_t split = *begin; split < *end; ++split)
          merge_.add(c_.partial_out, partial_, split * window_ + j, head);
        merge_.finish(c_.out, lse_, q->begin + j, head, sink_of(c_.params, head));
      }
    }
  }

  AnyLse partial_, lse_;
  int64_t most_;  // partial results of a query
  RowMerge<LseBase::kNatural> merge_;
};

KernelLaunch launch_rows(const Kernel& kernel, const MlaParts& c, const RequestRows& rows,
                         int64_t blocks) {
  assert(c.cache.page_size == kMlaBlockKeys && c.pages.form == PageTable::Form::kDense &&
         c.plan.empty() && c.params.custom_mask.kind == CustomMask::Kind::kNone);
  return launch_of(kernel, c, rows, blocks);
}

}  // namespace

constinit const Kernel kMlaParts = walked_kernel<MlaParts, MlaPartsRun>("mla_parts_attention");
constinit const Kernel kMlaMerge = walked_kernel<MlaParts, MlaMerge>("merge_mla_parts");

KernelLaunch mla_parts_launch(const MlaParts& call, const RequestRows& rows) {
  return launch_rows(kMlaParts, call, rows, std::ssize(call.tile_metadata) / kMlaPartInts);
}

KernelLaunch mla_merge_launch(const MlaParts& call, const RequestRows& rows) {
  return launch_rows(kMlaMerge, call, rows, call.pages.batch());
}

}  // namespace shadowgraph
