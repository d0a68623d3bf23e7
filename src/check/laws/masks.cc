// Masks, bit by bit: what a query sees of the keys that its lists have.
#include <algorithm>

#include "attn/mask.h"
#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// What a query sees by the canonical rows.
class Sight {
 public:
  Sight(const CanonicalRows& rows, const LayerKind& kind) : rows_(rows), kind_(kind) {}

  int64_t q_len(size_t row) const { return rows_.cu_seqlens_q[row + 1] - rows_.cu_seqlens_q[row]; }
  int64_t kv_len(size_t row) const { return rows_.kv_lens[row]; }
  bool sees(size_t row, int64_t q, int64_t key) const {
    if (!rows_.mask_indptr.empty())
      return rows_.mask[static_cast<size_t>(rows_.mask_indptr[row] + q * kv_len(row) + key)] != 0;
    const auto queries = static_cast<int32_t>(q_len(row)), keys = static_cast<int32_t>(kv_len(row));
    return attends(MaskShape::of(kind_.params, queries, keys), q, key);
  }

 private:
  const CanonicalRows& rows_;
  const LayerKind& kind_;
};

class MaskJudge {
 public:
  MaskJudge(const MetaFacts& m, const KindFacts& kind, const KeyList& list, LawReport& report)
      : m_(m),
        kind_(kind),
        list_(list),
        mask_(*list.mask),
        sight_(kind.rows, *kind.kind),
        report_(report) {}

  void run() {
    const auto rows = std::min<int64_t>(std::ssize(kind_.rows.kv_lens), m_.size(mask_.indptr) - 1);
    for (int64_t row = 0; row < rows; ++row) judge(static_cast<size_t>(row));
  }

 private:
  void judge(size_t row) {
    const auto i = static_cast<int64_t>(row);
    const int64_t keys = mask_.packed ? listed(i) : sight_.kv_len(row);
    const int64_t first_key = mask_.packed ? end_of_list(row) - keys : 0;
    const int64_t pairs = sight_.q_len(row) * keys;
    const int64_t begin = m_.value(mask_.indptr, i), end = m_.value(mask_.indptr, i + 1);
    const int64_t bytes = mask_.packed ? (pairs + 7) / 8 : pairs;
    judged("mask.size");
    if (end - begin != bytes)
      return report_.fail("mask.size", at(m_.buffer(mask_.indptr).name, i + 1),
                          number(begin + bytes), number(end));
    if (begin < 0 || end > m_.size(mask_.bits) || first_key < 0) return;  // len.total, table.slot
    judged("mask.bit", pairs);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t q = pair / keys, key = first_key + pair % keys;
      const bool want = sight_.sees(row, q, key);
      if (bit(begin, pair) == (want ? 1 : 0)) continue;
      report_.fail(
          "mask.bit", at(m_.buffer(mask_.bits).name, i, pair),
          "query " + number(q) + (want ? " sees" : " does not see") + " key " + number(key),
          number(bit(begin, pair)));
    }
    for (int64_t pair = pairs; mask_.packed && pair < bytes * 8; ++pair)
      if (bit(begin, pair) != 0)
        report_.fail("mask.bit", at(m_.buffer(mask_.bits).name, i, pair), "0 behind the last pair",
                     "1");
  }

  int64_t listed(int64_t row) const {
    return row + 1 < m_.size(list_.lens) ? m_.value(list_.lens, row + 1) - m_.value(list_.lens, row)
                                         : 0;
  }
  /// The list has all keys of a row, or those that this step does not store.
  int64_t end_of_list(size_t row) const {
    return kind_.lists.size() == 1 ? sight_.kv_len(row) : std::ssize(kind_.rows.old_keys(row));
  }
  int64_t bit(int64_t begin, int64_t pair) const {
    if (!mask_.packed) return m_.value(mask_.bits, begin + pair);
    return m_.value(mask_.bits, begin + pair / 8) >> (pair % 8) & 1;
  }

  const MetaFacts& m_;
  const KindFacts& kind_;
  const KeyList& list_;
  const KeyMask& mask_;
  const Sight sight_;
  LawReport& report_;
};

/// A tree's window is judged by depths, and its mask without it.
void judge_tree(const MetaFacts& m, const KindFacts& kind, const KeyList& list, LawReport& report) {
  LayerKind whole = *kind.kind;
  whole.params.window_left = whole.params.window_right = -1;
  const KindFacts all{&whole, kind.lists, canonical_rows(m.batch, whole, m.model)};
  MaskJudge(m, all, list, report).run();
  const Sight sight(all.rows, whole);
  int64_t t = 0;
  for (int64_t i = 0; i < m.requests(); ++i) {
    const RequestExtent& e = m.extent(i);
    for (int64_t q = 0; q < e.q_len && t < m.size(list.mask->depths); ++q, ++t) {
      int64_t want = -1;  // not itself
      for (int64_t k = e.prefix_len; k < e.kv_len; ++k)
        want += sight.sees(static_cast<size_t>(i), q, k);
      const int64_t got = m.value(list.mask->depths, t);
      judged("mask.window");
      if (got != want)
        report.fail("mask.window", at(m.buffer(list.mask->depths).name, t), number(want),
                    number(got));
    }
  }
}

/// Which keys items hide: of those behind a row's first delimiter all but its own item's.
void judge_row_items(const MetaFacts& m, const KindFacts& kind, const KeyItems& items, int64_t row,
                     LawReport& report) {
  const int places = items.places;
  const int64_t width = m.buffer(places).shape[1];
  const int64_t prefix = m.value(items.prefix_lens, row), most = m.value(items.longest, row);
  const RequestExtent& e = m.extent(row);
  const Sight sight(kind.rows, *kind.kind);
  for (int64_t q = 0; q < e.q_len; ++q) {
    const int64_t query = e.prefix_len + q, place = query - prefix;
    judged("table.capacity");
    judged("mask.items");
    if (place >= width)
      return report.fail("table.capacity", at(m.buffer(places).name, row),
                         "<= " + number(width) + " tokens", number(place + 1));
    const int64_t own =
        place < 0 ? 0 : query - std::min(m.value(places, row * width + place), most) + 1;
    for (int64_t k = 0; k < e.kv_len; ++k) {
      const bool want = sight.sees(static_cast<size_t>(row), q, k);
      const bool got = k <= query && (place < 0 || k < prefix || k >= own);
      if (got == want) continue;
      return report.fail(
          "mask.items", at(m.buffer(places).name, row, std::max<int64_t>(place, 0)),
          "query " + number(q) + (want ? " sees" : " does not see") + " key " + number(k),
          got ? "it does" : "it does not");
    }
  }
  int64_t longest = 0;
  for (int64_t place = 0; place < std::min(width, int64_t{e.kv_len} - prefix); ++place)
    longest = std::max(longest, m.value(places, row * width + place));
  if (most != longest)
    report.fail("mask.items", at(m.buffer(items.longest).name, row), number(longest), number(most));
}

}  // namespace

void judge_masks(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) {
    for (const KeyList& list : kind.lists) {
      if (!list.mask || m.size(list.mask->bits) == 0 || m.size(list.mask->indptr) == 0) continue;
      if (list.mask->depths >= 0) {
        judge_tree(m, kind, list, report);
      } else {
        MaskJudge(m, kind, list, report).run();
      }
    }
  }
}

void judge_items(const MetaFacts& m, LawReport& report) {
  for (const KindFacts& kind : m.kinds()) {
    for (const KeyList& list : kind.lists) {
      if (!list.items || m.size(list.items->prefix_lens) == 0) continue;
      for (int64_t row = 0; row < m.requests(); ++row)
        judge_row_items(m, kind, *list.items, row, report);
    }
  }
}

}  // namespace shadowgraph
