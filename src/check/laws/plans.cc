// FlashInfer's plans: a work list over tiles of queries and chunks of keys, as the lengths beside
// it ask for. The engine's rule is said here once more, apart from the planner's. Source:
// docs/metadata.md "FlashInfer".
#include <algorithm>
#include <vector>

#include "check/laws/judges.h"
#include "core/int_math.h"

namespace shadowgraph {
namespace {

class PlanJudge {
 public:
  PlanJudge(const MetaFacts& m, const LayerKind& kind, const KeyList& list, LawReport& report)
      : m_(m),
        list_(list),
        plan_(*list.plan),
        params_(kind.params),
        kv_heads_(std::max(1, params_.num_kv_heads)),
        group_(std::max<int64_t>(kv_heads_, params_.num_qo_heads) / kv_heads_),
        prefill_(m.size(plan_.qo_tile_indices) > 0),
        report_(report) {}

  void run() {
    if (m_.size(plan_.kv_chunk_size) != 1 || !read_lengths()) return;
    tile_ = tile();
    chunk_ = m_.value(plan_.kv_chunk_size, 0);
    split_ = m_.meta.scalars[static_cast<size_t>(plan_.split_kv)] != 0;
    judge_rule();
    if (chunk_ <= 0) return;
    judge_items();
    judge_results();
  }

 private:
  struct Row {
    int64_t queries = 0, keys = 0;
  };

  const std::string& name(int buffer) const { return m_.buffer(buffer).name; }

  /// Reads lengths, of padding too. False where offsets fall.
  bool read_lengths() {
    const int64_t rows = m_.size(list_.lens) - 1;
    if (rows < 0 || (prefill_ && m_.size(list_.queries) <= rows)) return false;
    const auto step = [&](int buffer, int64_t i) {
      return m_.value(buffer, i + 1) - m_.value(buffer, i);
    };
    for (int64_t i = 0; i < rows; ++i) {
      rows_.push_back({prefill_ ? step(list_.queries, i) : 1, step(list_.lens, i)});
      if (rows_.back().queries < 0 || rows_.back().keys < 0) return false;
    }
    return true;
  }

  /// Packed rows of a tile. A kernel is compiled for it, so that it may depend only on the limits.
  int64_t tile() const {
    if (!prefill_) return group_;
    const bool graph = m_.limits.is_bucket();
    const auto rows = std::max<int64_t>(std::ssize(rows_), 1);
    const int64_t packed =
        graph ? std::max<int64_t>(1, m_.limits.tokens - std::ssize(rows_) + 1) * group_
              : m_.limits.tokens * group_ / rows;
    if (params_.head_dim_vo >= 512) return packed <= 32 ? 16 : 32;
    if (params_.head_dim_qk >= 512) return 16;
    if (packed > 64 && params_.head_dim_vo < 256) return 128;
    return packed > 16 ? 64 : 16;
  }
  int64_t tiles(const Row& row) const { return ceil_div(row.queries * group_, tile_); }
  static int64_t chunks(const Row& row, int64_t chunk) {
    return ceil_div(std::max<int64_t>(row.keys, 1), chunk);
  }
  int64_t items(int64_t chunk) const {
    int64_t count = 0;
    for (const Row& row : rows_) count += tiles(row) * chunks(row, chunk);
    return count;
  }

  /// How long chunks are, and whether there are several.
  void judge_rule() {
    const SplitConfig& s = m_.model.split;
    const bool graph = m_.limits.is_bucket();
    int64_t longest = 1;
    for (const Row& row : rows_) longest = std::max(longest, row.keys);
    const int64_t room = int64_t{s.num_sms} * s.blocks_per_sm;
    const bool full = !prefill_ && std::ssize(rows_) * kv_heads_ >= room;
    int64_t want = longest;
    bool split = false;
    if (!s.off && s.fixed_size > 0) {
      want = s.fixed_size, split = true;
    } else if (!s.off && !full) {
      const int64_t least = std::max(1, s.min_size), most = std::max(least, longest);
      want = least;
      for (int64_t high = most; want < high;) {
        const int64_t middle = (want + high) / 2;
        items(middle) > room / kv_heads_ ? want = middle + 1 : high = middle;
      }
      split = graph || want < longest;
    }
    judged("plan.split");
    if (split_ != split) report_.fail("plan.split", at("split_kv"), number(split), number(split_));
    if (split ? chunk_ != want : chunk_ < longest)
      report_.fail("plan.split", at(name(plan_.kv_chunk_size), 0),
                   (split ? "" : ">= ") + number(want), number(chunk_));
  }

  int64_t chunks(const Row& row) const { return split_ ? chunks(row, chunk_) : 1; }

  /// Every item once, and nothing behind them.
  void judge_items() {
    std::vector<int64_t> first = {0};  // item of each row
    for (const Row& row : rows_) first.push_back(first.back() + tiles(row) * chunks(row));
    const int64_t count = first.back(), grid = m_.size(plan_.request_indices);
    judged("plan.capacity");
    judged("plan.work", count);
    judged("plan.tail", std::max<int64_t>(0, m_.size(plan_.block_valid_mask) - count));
    if (count > grid)
      return report_.fail("plan.capacity", at(name(plan_.request_indices)),
                          "<= " + number(grid) + " items", number(count));
    std::vector<bool> planned(static_cast<size_t>(count));
    for (int64_t t = 0; t < m_.size(plan_.block_valid_mask); ++t) {
      const bool valid = m_.value(plan_.block_valid_mask, t) != 0;
      if (valid != (t < count))
        report_.fail("plan.tail", at(name(plan_.block_valid_mask), t), number(t < count),
                     number(valid));
      if (t >= count) continue;
      const int64_t row = m_.value(plan_.request_indices, t),
                    chunk = m_.value(plan_.kv_tile_indices, t);
      const int64_t tile = prefill_ ? m_.value(plan_.qo_tile_indices, t) : 0;
      const bool there = row >= 0 && row < std::ssize(rows_) &&
                         there_is(rows_[static_cast<size_t>(row)], tile, chunk);
      const size_t item =
          there ? static_cast<size_t>(first[static_cast<size_t>(row)] +
                                      tile * chunks(rows_[static_cast<size_t>(row)]) + chunk)
                : 0;
      if (there && !planned[item]) {
        planned[item] = true;
        continue;
      }
      report_.fail("plan.work", at(name(plan_.request_indices), t),
                   "each row's tiles and chunks once",
                   "row " + number(row) + ", tile " + number(tile) + ", chunk " + number(chunk) +
                       (there ? " again" : ": there is none"));
    }
  }
  bool there_is(const Row& row, int64_t tile, int64_t chunk) const {
    return tile >= 0 && tile < tiles(row) && chunk >= 0 && chunk < chunks(row);
  }

  /// Where partial results lie: a place for each query and chunk of its row.
  void judge_results() {
    std::vector<int64_t> of_rows = {0}, of_queries = {0};
    for (const Row& row : rows_) {
      of_rows.push_back(of_rows.back() + row.queries * chunks(row));
      for (int64_t q = 0; q < row.queries; ++q)
        of_queries.push_back(of_queries.back() + chunks(row));
    }
    compare(plan_.o_indptr, of_rows);
    if (prefill_) compare(plan_.merge_indptr, of_queries);
    if (!split_) return;
    const bool bound = m_.meta.has(static_cast<size_t>(plan_.partial));
    const int64_t room = bound ? m_.buffer(plan_.partial).shape[0] : 0;
    if (of_rows.back() > room)
      report_.fail("plan.split", at(m_.buffer(plan_.partial).name),
                   "<= " + number(room) + " partial results", number(of_rows.back()));
  }
  void compare(int buffer, const std::vector<int64_t>& want) {
    const int64_t size = m_.size(buffer);
    for (int64_t i = 0; i < std::min<int64_t>(size, std::ssize(want)); ++i) {
      const int64_t w = want[static_cast<size_t>(i)], got = m_.value(buffer, i);
      if (got != w) report_.fail("plan.work", at(name(buffer), i), number(w), number(got));
    }
  }

  const MetaFacts& m_;
  const KeyList& list_;
  const KeyPlan& plan_;
  const AttentionParams& params_;
  const int64_t kv_heads_, group_;
  const bool prefill_;
  LawReport& report_;
  std::vector<Row> rows_;
  int64_t tile_ = 1, chunk_ = 0;
  bool split_ = false;
};

}  // namespace

void judge_plans(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) {
    for (const KeyList& list : kind.lists)
      if (list.plan) PlanJudge(m, *kind.kind, list, report).run();
  }
}

}  // namespace shadowgraph
