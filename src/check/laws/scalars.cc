// Numbers of the host, which shape a launch: never below what the batch has, nor above what the
// limits allow; and what a graph keeps of its capture.
#include <algorithm>

#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

std::string name_of(Role role) {
  switch (role) {
    case Role::kLongestQuery: return "max_q_len";
    case Role::kLongestKeys: return "max_kv_len";
    default: return "sum_q_lens";
  }
}

struct Range {
  int64_t least = 0, most = 0;
};

/// A graph has its bucket's; an eager step the batch's own.
Range queries_of(const MetaFacts& m) {
  Range r;
  for (int64_t i = 0; i < m.requests(); ++i) r.least = std::max(r.least, m.queries(i));
  r.most = m.limits.is_bucket() ? m.limits.max_q_len : r.least;
  return r;
}

/// The longest of a request's rows. Rows that keys make are padding's from some place on.
Range keys_of(const MetaFacts& m, int lens) {
  Range r{0, std::max({m.limits.max_kv_len, m.model.max_encoder_len, 1})};
  const int64_t rows = m.size(lens), each = m.rows_a_request(rows);
  const bool padded = m.requests() < m.limits.rows;
  const bool cut = std::ranges::any_of(m.info.buffers, [&](const BufferInfo& role) {
    return role.role == Role::kCutOffsets && m.size(role.buffer) == rows + 1;
  });
  const int64_t real = !padded ? rows : cut ? 0 : m.requests() * each;
  for (int64_t row = 0; row < real; ++row) r.least = std::max(r.least, m.value(lens, row));
  return r;
}

/// Queries of a request in the widest batch of the mode; 0: whatever its graph was captured for.
int64_t width_of(const MetaFacts& m) {
  const ForwardMode mode = m.limits.mode;
  if (is_target_verify(mode) || is_draft_extend_v2(mode)) return m.model.num_draft_tokens;
  return is_draft_extend(mode) ? m.model.num_steps + 1 : 0;
}

}  // namespace

void judge_scalars(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    Range range;
    switch (r.role) {
      case Role::kLongestQuery:
        if (is_decode_or_idle(m.limits.mode)) continue;  // one, whatever is said
        range = queries_of(m);
        break;
      case Role::kLongestKeys:
        if (m.size(r.lens) == 0) continue;
        range = keys_of(m, r.lens);
        break;
      case Role::kAllQueries: range = {m.tokens(), m.limits.tokens}; break;
      default: continue;
    }
    const int64_t got = m.meta.scalars[static_cast<size_t>(r.buffer)];
    judged("len.bound");
    if (got < range.least || got > range.most)
      report.fail("len.bound", at(name_of(r.role)),
                  number(range.least) + " to " + number(range.most), number(got));
  }
}

void judge_baked(const MetaFacts& m, LawReport& report) {
  const bool graph = m.limits.is_bucket();
  if (graph && width_of(m) > 0) judged("len.baked_q");
  if (graph && m.limits.max_q_len < width_of(m))
    report.fail("len.baked_q", at("max_q_len"), ">= " + number(width_of(m)),
                number(m.limits.max_q_len));
}

void judge_window(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role != Role::kWindow) continue;
    const int64_t got = m.meta.scalars[static_cast<size_t>(r.buffer)];
    for (const KindFacts& kind : m.kinds()) {
      const KeyList& list = kind.lists.front();
      const int64_t window = kind.kind->params.window_left, rows = m.size(list.lens) - 1;
      if (window < 0 || kind.kind->cross) continue;
      bool hides = false;  // something before the last query's window
      for (int64_t row = 0; !list.masked && row < std::ssize(kind.rows.kv_lens) && row < rows;
           ++row)
        hides |= m.value(list.lens, row + 1) - m.value(list.lens, row) > window + 1;
      judged("mask.window");
      if (hides ? got != window : got >= 0 && got < window)
        report.fail("mask.window", at("window_left"), (hides ? "" : "-1, or ") + number(window),
                    number(got));
    }
  }
}

}  // namespace shadowgraph
