// Lengths of rows: how many keys and queries each has, and what padding may have.
#include <algorithm>

#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// Keys that a role counts, of one request.
int64_t keys_of(const MetaFacts& m, Role role, const RequestExtent& e) {
  if (role == Role::kFlatLens) return e.kv_len;
  if (role == Role::kPrefixLens) return m.on_rank(e.prefix_len);
  if (role == Role::kWidthLens) return m.on_rank(int64_t{e.prefix_len} + m.limits.max_q_len);
  return m.on_rank(e.kv_len);
}

/// The most keys that padding may say it has: none is behind its table.
int64_t most_keys(const MetaFacts& m, Role role) {
  return m.limits.max_kv_len + (role == Role::kWidthLens ? m.limits.max_q_len : 0);
}

void judge_rows(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const bool offsets = r.role == Role::kKeyOffsets;
  const int64_t rows = m.size(r.buffer) - (offsets ? 1 : 0), each = m.rows_a_request(rows);
  const std::string& name = m.buffer(r.buffer).name;
  const auto keys = [&](int64_t row) {
    const int64_t got = m.value(r.buffer, row);
    if (r.role == Role::kKeyEnds) return row == 0 ? got : got - m.value(r.buffer, row - 1);
    return offsets ? m.value(r.buffer, row + 1) - got : got;
  };
  if (rows == 0) return;
  judged("trace.shape");
  if (each == 0) return report.fail("trace.shape", at(name), "rows of requests", number(rows));
  for (int64_t row = 0; row < m.requests() * each; ++row) {
    const int64_t want = keys_of(m, r.role, m.extent(row / each));
    judged("len.kv_extent");
    if (keys(row) != want)
      report.fail("len.kv_extent", at(name, row), number(want), number(keys(row)));
  }
  int64_t least = std::min(m.on_rank(m.model.seq_len_fill), int64_t{1});
  if (r.role == Role::kPrefixLens) least = 0;
  for (int64_t row = m.requests() * each; row < rows; ++row) {
    const int64_t got = keys(row), most = most_keys(m, r.role);
    judged("len.padding");
    if (got >= least && got <= most) continue;
    report.fail("len.padding", at(name, row), number(least) + " to " + number(most), number(got));
  }
}

/// Lists of a prefix begin so far behind its first token that they end with its last.
void judge_first_listed(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const std::string& name = m.buffer(r.buffer).name;
  for (int64_t row = 0; row < m.size(r.buffer) && row + 1 < m.size(r.lens); ++row) {
    const int64_t got = m.value(r.buffer, row);
    judged(row >= m.requests() ? LawId("len.padding") : LawId("len.kv_extent"));
    if (row >= m.requests()) {
      if (got < 0 || got > m.model.seq_len_fill)
        report.fail("len.padding", at(name, row), "0 to " + number(m.model.seq_len_fill),
                    number(got));
      continue;
    }
    const int64_t listed = m.value(r.lens, row + 1) - m.value(r.lens, row);
    const int64_t want = m.extent(row).prefix_len - listed;
    if (got != want) report.fail("len.kv_extent", at(name, row), number(want), number(got));
  }
}

}  // namespace

void judge_lengths(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    const bool rows = r.role == Role::kKeyLens || r.role == Role::kKeyOffsets ||
                      r.role == Role::kKeyEnds || r.role == Role::kPrefixLens ||
                      r.role == Role::kFlatLens || r.role == Role::kWidthLens;
    if (r.role == Role::kFirstListed) judge_first_listed(m, r, report);
    if (rows && m.size(r.buffer) > 0) judge_rows(m, r, report);
  }
}

void judge_last_pages(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role != Role::kOnes) continue;
    for (int64_t i = 0; i < m.size(r.buffer); ++i) {
      judged("len.last_page");
      if (m.value(r.buffer, i) != 1)
        report.fail("len.last_page", at(m.buffer(r.buffer).name, i), "1, as a page is a token",
                    number(m.value(r.buffer, i)));
    }
  }
}

}  // namespace shadowgraph
