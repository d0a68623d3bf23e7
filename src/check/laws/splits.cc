// Into how many partial results a decode's rows are cut: Triton's numbers, FlashMLA's schedule and
// FlashAttention's. Facts: docs/metadata.md "Triton", "Siblings", "FlashAttention".
#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/page_table.h"
#include "backends/paged/flash_mla.h"
#include "check/laws/judges.h"
#include "core/int_math.h"

namespace shadowgraph {
namespace {

/// Keys that a row is cut by: a draft's are those of the committed prefix, in all of its steps.
std::vector<int64_t> keys_to_cut(const MetaFacts& m, const LayerKind& kind, int64_t rows) {
  const int64_t each = std::max<int64_t>(m.rows_a_request(rows), 1),
                window = kind.params.window_left;
  const int64_t drafted = m.limits.mode == ForwardMode::kDraftDecode ? m.limits.step + 1 : 0;
  std::vector<int64_t> keys;
  for (int64_t row = 0; row < rows; ++row) {
    const bool real = row / each < m.requests();
    int64_t of_row = real ? m.extent(row / each).kv_len - drafted : m.model.seq_len_fill;
    if (window >= 0) of_row = std::min(of_row, window + 1);
    keys.push_back(std::max<int64_t>(of_row, 1));
  }
  return keys;
}

/// Triton's dynamic rule: as many splits as level rows of different lengths, or as fill the GPU.
int64_t dynamic_splits(const MetaFacts& m, const AttentionParams& p,
                       const std::vector<int64_t>& keys, int64_t most, int64_t of_row) {
  const int64_t longest = std::ranges::max(keys), least = std::ranges::min(keys);
  const int64_t shortest = longest * 8 < least * 10 ? longest : least;
  const int64_t heads = std::max(1, p.num_qo_heads);
  const int64_t group = heads / std::clamp<int64_t>(p.num_kv_heads, 1, heads);
  const int64_t blocks = group == 1 ? heads : ceil_div(heads, std::min<int64_t>(group, 16));
  const float doublings = std::log2(static_cast<float>(longest) / 64.0f);
  const auto programs =
      static_cast<int64_t>(static_cast<float>(m.model.split.num_sms) * std::max(doublings, 1.0f));
  int64_t splits = 1;
  for (const int64_t wanted :
       {ceil_div(longest, shortest), ceil_div(programs, std::ssize(keys) * blocks)}) {
    const int64_t chunk = ceil_div(longest, std::min(wanted, most));
    splits = std::max(splits, ceil_div(of_row, chunk));
  }
  return splits;
}

void judge_numbers(const MetaFacts& m, const KindFacts& kind, const KeySplits& of_rows,
                   LawReport& report) {
  const SplitConfig& s = m.model.split;
  const int64_t rows = m.size(of_rows.num_splits);
  if (rows == 0) return;
  const std::vector<int64_t> keys = keys_to_cut(m, *kind.kind, rows);
  const int64_t most = m.buffer(of_rows.partial).shape[2];
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t of_row = keys[static_cast<size_t>(row)];
    int64_t want = 1;
    if (!s.off) {
      want = s.fixed_size > 0 ? ceil_div(of_row, s.fixed_size)
                              : dynamic_splits(m, kind.kind->params, keys, most, of_row);
    }
    const int64_t got = m.value(of_rows.num_splits, row);
    judged("plan.split");
    if (got != want || got > most)
      report.fail("plan.split", at(m.buffer(of_rows.num_splits).name, row),
                  number(std::min(want, most)), number(got));
  }
}

/// The parts of the machine, one after the other, have all keys; none has more than its share.
class Schedule {
 public:
  Schedule(const MetaFacts& m, const BufferInfo& parts, LawReport& report)
      : m_(m), role_(parts), report_(report), splits_(static_cast<size_t>(m.size(parts.lens))) {}

  /// The splits of each row; nothing more is known once a part is wrong.
  std::vector<int64_t> run() {
    const int64_t parts = m_.size(role_.buffer) / kMlaPartInts, rows = m_.size(role_.lens);
    int64_t total = 0;
    for (int64_t row = 0; row < rows; ++row) total += cost(0, length(row));
    const int64_t share = ceil_div(total, std::max<int64_t>(parts, 1)) + kRowCost;
    judged("plan.work", parts);
    judged("plan.split", parts);
    for (int64_t part = 0; part < parts && ok_; ++part) read(part, share);
    if (ok_ && row_ < rows) fail(parts - 1, "all keys", "row " + number(row_) + " has more");
    return ok_ ? splits_ : std::vector<int64_t>{};
  }

 private:
  static constexpr int64_t kBlock = 64, kRowCost = 5;
  static int64_t cost(int64_t begin, int64_t end) {
    return pages_for(std::max<int64_t>(end, 0), kBlock) - begin / kBlock + kRowCost;
  }
  int64_t length(int64_t row) const { return m_.value(role_.lens, row); }

  void read(int64_t part, int64_t share) {
    const auto at_part = [&](MlaPart i) { return m_.value(role_.buffer, part * kMlaPartInts + i); };
    const int64_t rows = m_.size(role_.lens), end_row = at_part(kEndRow),
                  end_key = at_part(kEndKey);
    for (int64_t i = kBeginSplit + 1; i < kMlaPartInts; ++i) {
      if (m_.value(role_.buffer, part * kMlaPartInts + i) != 0)
        return fail(part, "0 in what no kernel reads",
                    number(m_.value(role_.buffer, part * kMlaPartInts + i)));
    }
    if (row_ == rows) return read_idle(part);
    if (at_part(kBeginRow) >= rows || end_row < at_part(kBeginRow)) return;  // has no work
    if (at_part(kBeginRow) != row_ || at_part(kBeginKey) != key_)
      return fail(part, "from key " + number(key_) + " of row " + number(row_),
                  "key " + number(at_part(kBeginKey)) + " of row " + number(at_part(kBeginRow)));
    if (at_part(kBeginSplit) != splits_[static_cast<size_t>(row_)])
      return fail(part, number(splits_[static_cast<size_t>(row_)]) + " splits before",
                  number(at_part(kBeginSplit)));
    if (end_row >= rows || end_key > length(end_row))
      return fail(part, "keys of the rows",
                  "key " + number(end_key) + " of row " + number(end_row));
    int64_t work = 0;
    for (; row_ <= end_row; ++row_, key_ = 0) {
      const int64_t end = row_ == end_row ? end_key : length(row_);
      work += cost(key_, end);
      ++splits_[static_cast<size_t>(row_)];
      if (end >= length(row_)) continue;
      key_ = end;
      break;
    }
    if (work > share)
      report_.fail("plan.split", at(m_.buffer(role_.buffer).name, part),
                   "<= " + number(share) + " blocks", number(work));
  }
  /// What is behind the last key begins and ends there.
  void read_idle(int64_t part) {
    const int64_t rows = m_.size(role_.lens);
    const int64_t want[] = {rows, 0, rows - 1, rows > 0 ? length(rows - 1) : 0, 0};
    for (int64_t i = kBeginRow; i <= kBeginSplit; ++i) {
      const int64_t got = m_.value(role_.buffer, part * kMlaPartInts + i);
      if (got != want[i]) return fail(part, number(want[i]) + ", as it has no work", number(got));
    }
  }
  void fail(int64_t part, std::string expected, std::string got) {
    report_.fail("plan.work", at(m_.buffer(role_.buffer).name, part), std::move(expected),
                 std::move(got));
    ok_ = false;
  }

  const MetaFacts& m_;
  const BufferInfo& role_;
  LawReport& report_;
  std::vector<int64_t> splits_;  // of each row, so far
  int64_t row_ = 0, key_ = 0;    // the next
  bool ok_ = true;
};

/// FlashMLA's rule: a block has 64 rows of query heads, and each block a share of the machine.
int64_t parts_of_machine(const MetaFacts& m) {
  int64_t heads = 1;
  for (const LayerKind& kind : m.model.layers)
    heads = std::max<int64_t>(heads, kind.params.num_qo_heads);
  const int64_t blocks = ceil_div(heads * std::max(1, m.limits.max_q_len), 64);
  return std::max<int64_t>(1, m.model.split.num_sms / blocks);
}

void judge_schedule(const MetaFacts& m, const BufferInfo& parts, LawReport& report) {
  if (m.size(parts.buffer) == 0 || m.size(parts.lens) == 0) return;
  const int64_t want = parts_of_machine(m), got = m.size(parts.buffer) / kMlaPartInts;
  judged("plan.split");
  if (got != want)
    return report.fail("plan.split", at(m.buffer(parts.buffer).name), number(want) + " parts",
                       number(got));
  const std::vector<int64_t> splits = Schedule(m, parts, report).run();
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role != Role::kPartSplits || m.size(r.buffer) <= std::ssize(splits)) continue;
    if (const int64_t first = m.value(r.buffer, 0); first != 0)
      report.fail("plan.work", at(m.buffer(r.buffer).name, 0), "0", number(first));
    int64_t before = 0;
    for (size_t row = 0; row < splits.size(); ++row) {
      before += splits[row];
      const auto i = static_cast<int64_t>(row) + 1;
      judged("plan.work");
      if (m.value(r.buffer, i) != before)
        report.fail("plan.work", at(m.buffer(r.buffer).name, i), number(before),
                    number(m.value(r.buffer, i)));
    }
  }
}

/// FlashAttention's rule: a multiprocessor's share is of all rows' blocks of 16 keys, a tenth more,
/// and a row has a split for each share.
void judge_row_splits(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const auto scheduled = [](const LayerKind& k) {
    return is_dense_attention(k) && !k.cross && !k.local && !k.mla && k.params.window_left < 0;
  };
  const auto kind = std::ranges::find_if(m.model.layers, scheduled);
  const int64_t rows = m.size(r.lens);
  if (m.size(r.buffer) <= rows || kind == m.model.layers.end()) return;
  const std::string& name = m.buffer(r.buffer).name;
  const SplitConfig& s = m.model.split;
  const int64_t heads = std::max(1, kind->params.num_kv_heads),
                group = kind->params.num_qo_heads / heads;
  int64_t blocks = 0;
  for (int64_t row = 0; row < rows; ++row)
    blocks += heads * ceil_div(group, 128) * ceil_div(m.value(r.lens, row), 16);
  const int64_t share = ceil_div(11 * blocks, int64_t{10} * std::max(1, s.num_sms));
  judged("plan.split", rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t wanted =
        ceil_div(ceil_div(m.value(r.lens, row), 16), std::max<int64_t>(share, 1));
    const int64_t want = s.off ? 1 : std::max<int64_t>(std::min<int64_t>(wanted, s.max_splits), 1);
    if (const int64_t got = m.value(r.buffer, 1 + row); got != want)
      report.fail("plan.split", at(name, 1 + row), number(want), number(got));
  }
}

}  // namespace

/// A schedule's first cell, which the fill writes, and whole workspaces, as a step leaves them.
void judge_counters(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role != Role::kCounters && r.role != Role::kRowSplits) continue;
    const int64_t most = r.role == Role::kCounters ? INT64_MAX : 1;
    const int64_t cells = std::min(m.size(r.buffer), most);
    judged("plan.counter", cells);
    for (int64_t i = 0; i < cells; ++i)
      if (const int64_t got = m.value(r.buffer, i); got != 0)
        report.fail("plan.counter", at(m.buffer(r.buffer).name, i), "0", number(got));
  }
}

void judge_splits(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) {
    for (const KeyList& list : kind.lists)
      if (list.splits) judge_numbers(m, kind, *list.splits, report);
  }
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role == Role::kParts) judge_schedule(m, r, report);
    if (r.role == Role::kRowSplits) judge_row_splits(m, r, report);
  }
}

}  // namespace shadowgraph
