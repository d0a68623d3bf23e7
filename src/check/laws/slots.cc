// Where a step's new tokens are stored, and which rows of req_to_token a launch is told.
#include <algorithm>
#include <vector>

#include "backends/fill/rows.h"
#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// Slots of the step's tokens, in a pool.
std::vector<int64_t> slots_of(const MetaFacts& m, bool window) {
  for (const KindFacts& kind : m.kinds()) {
    if (!kind.kind->cross && in_window_pool(m.model, *kind.kind) == window)
      return {kind.rows.stored.begin(), kind.rows.stored.end()};
  }
  LayerKind kind;
  if (window) kind.params.window_left = 0;
  const CanonicalRows rows = canonical_rows(m.batch, kind, m.model);
  return {rows.stored.begin(), rows.stored.end()};
}

/// Padding is stored there, or nowhere: another rank stores the token.
bool is_nowhere(const MetaFacts& m, int64_t slot) {
  return slot == m.info.engine->padding_slot.value_or(0) || (slot == -1 && m.model.dcp_size > 1);
}

void judge_stored(const MetaFacts& m, int buffer, std::vector<int64_t> want, LawReport& report) {
  const std::string& name = m.buffer(buffer).name;
  const int64_t size = m.size(buffer), tokens = std::ssize(want);
  if (size > 0) {
    judged("batch.capacity");
    judged("slot.duplicate");
    judged("slot.write", size);
  }
  if (tokens > size)
    report.fail("batch.capacity", at(name), ">= " + number(tokens) + " tokens", number(size));
  std::vector<int64_t> written;
  for (int64_t t = 0; t < size; ++t)
    if (!is_nowhere(m, m.value(buffer, t))) written.push_back(m.value(buffer, t));
  std::ranges::sort(written);
  if (const auto twice = std::ranges::adjacent_find(written); twice != written.end())
    report.fail("slot.duplicate", at(name), "every slot once", number(*twice) + " twice");
  for (int64_t t = 0; t < size; ++t) {
    const int64_t got = m.value(buffer, t);
    if (t >= tokens && !is_nowhere(m, got))
      report.fail("slot.write", at(name, t), "0 for padding", number(got));
    if (t < tokens && got != want[static_cast<size_t>(t)])
      report.fail("slot.write", at(name, t), number(want[static_cast<size_t>(t)]), number(got));
  }
}

/// Slots of a request's keys, one after the other.
void judge_listed(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const bool window = r.role == Role::kListedInWindow;
  for (int64_t i = 0; i < m.requests() && i + 1 < m.size(r.lens); ++i) {
    const auto row = m.batch.req_to_token.row(m.batch.req_pool_indices[static_cast<size_t>(i)]);
    const int64_t begin = m.value(r.lens, i), end = m.value(r.lens, i + 1);
    for (int64_t j = begin; j < std::min(end, m.size(r.buffer)) && j - begin < std::ssize(row);
         ++j) {
      int64_t want = row[static_cast<size_t>(j - begin)];
      if (window && want >= 0) want = m.batch.full_to_swa[static_cast<size_t>(want)];
      judged("table.slot");
      if (const int64_t got = m.value(r.buffer, j); got != want)
        report.fail("table.slot", at(m.buffer(r.buffer).name, i, j - begin), number(want),
                    number(got));
    }
  }
}

}  // namespace

void judge_slots(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (m.size(r.buffer) == 0) continue;
    if (r.role == Role::kStored) judge_stored(m, r.buffer, slots_of(m, false), report);
    if (r.role == Role::kStoredInWindow) judge_stored(m, r.buffer, slots_of(m, true), report);
    if (r.role == Role::kListedKeys || r.role == Role::kListedInWindow) judge_listed(m, r, report);
    if (r.role == Role::kStoredOfEncoder) {
      const auto slots = m.batch.encoder_out_cache_loc;
      judge_stored(m, r.buffer, {slots.begin(), slots.end()}, report);
    }
  }
}

void judge_pool_rows(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    if (r.role != Role::kPoolRows) continue;
    for (int64_t i = 0; i < m.size(r.buffer); ++i) {
      const int64_t want = i < m.requests() ? m.batch.req_pool_indices[static_cast<size_t>(i)] : 0;
      const int64_t got = m.value(r.buffer, i);
      judged("table.pool_row");
      if (got != want)
        report.fail("table.pool_row", at(m.buffer(r.buffer).name, i), number(want), number(got));
    }
  }
}

}  // namespace shadowgraph
