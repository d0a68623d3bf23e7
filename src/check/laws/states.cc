// Where recurrent states are, what a prefill starts from, a verify's parents, Mamba2's chunks, and
// where snapshots go.
#include <algorithm>
#include <set>
#include <vector>

#include "backends/recurrent/recurrent_backend.h"
#include "check/laws/judges.h"
#include "core/int_math.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {
namespace {

/// The slot that the pools have for a request.
int64_t slot_of(const MetaFacts& m, int64_t request) {
  const auto row = static_cast<size_t>(m.batch.req_pool_indices[static_cast<size_t>(request)]);
  return row < m.batch.states.slots.size() ? m.batch.states.slots[row] : -1;
}

template <class Want>
void judge_rows(const MetaFacts& m, const BufferInfo& r, LawId law, Want want_of,
                LawReport& report) {
  for (int64_t i = 0; i < m.size(r.buffer); ++i) {
    const int64_t want = want_of(i), got = m.value(r.buffer, i);
    judged(law);
    if (got != want) report.fail(law, at(m.buffer(r.buffer).name, i), number(want), number(got));
  }
}

/// Where a snapshot goes that lies behind at least one chunk.
int64_t track_of(const MetaFacts& m, int64_t i) {
  const StateInfo& s = m.batch.states;
  if (i >= m.requests() || s.track_slots.empty()) return -1;
  const auto row = static_cast<size_t>(i);
  const RequestExtent& e = m.extent(i);
  const int64_t behind = std::min<int64_t>(int64_t{s.track_lens[row]} - e.prefix_len, e.q_len);
  return behind >= state_chunk_size(m.model) ? s.track_slots[row] : -1;
}

/// Tokens of the request before its snapshot: whole chunks; 0: it has none.
int64_t before_snapshot(const MetaFacts& m, int64_t i) {
  if (track_of(m, i) < 0) return 0;
  const RequestExtent& e = m.extent(i);
  const int64_t behind = int64_t{m.batch.states.track_lens[static_cast<size_t>(i)]} - e.prefix_len;
  const int64_t chunk = state_chunk_size(m.model);
  return std::min<int64_t>(behind, e.q_len) / chunk * chunk;
}

/// Chunks of the requests before: of the batch's grid, or of one that begins with each request.
int64_t chunks_before(const MetaFacts& m, int64_t request, bool of_batch) {
  const int64_t chunk = state_chunk_size(m.model);
  int64_t chunks = 0;
  for (int64_t i = 0; i < request; ++i) {
    const int64_t begin = of_batch ? m.tokens(i) % chunk : 0;
    chunks +=
        ceil_div(begin + m.queries(i), chunk) - (m.queries(i) > 0 ? 0 : ceil_div(begin, chunk));
  }
  return chunks;
}

/// Where a snapshot's parts come from.
void judge_snapshots(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  if (m.size(r.buffer) == 0) return;
  const int64_t chunk = state_chunk_size(m.model), width = m.buffer(r.buffer).shape.back();
  const bool of_batch = std::ranges::find(m.info.buffers, Role::kChunkIndices, &BufferInfo::role) !=
                        m.info.buffers.end();
  judge_rows(
      m, r, "state.track",
      [&](int64_t i) {
        const int64_t row = r.role == Role::kTrackWindows ? i / width : i;
        const int64_t after = row < m.requests() ? before_snapshot(m, row) : 0;
        if (r.role == Role::kTrackWindows)
          return after == 0 ? 0 : std::max<int64_t>(0, m.tokens(row) + after - width + i % width);
        const bool last = after > 0 && after == m.queries(row);
        if (r.role == Role::kTrackFinals) return last ? slot_of(m, row) : -1;
        if (after == 0 || last) return int64_t{-1};
        if (!of_batch) return chunks_before(m, row, false) + after / chunk;
        const int64_t begin = m.tokens(row), end = begin + after;
        return end % chunk != 0 ? -1 : chunks_before(m, row, true) + end / chunk - begin / chunk;
      },
      report);
}

/// The rows that Mamba2 computes once more for snapshots inside its chunks.
void judge_cuts(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  if (m.size(r.buffer) == 0) return;
  const int64_t chunk = state_chunk_size(m.model);
  judge_rows(
      m, r, "state.track",
      [&](int64_t i) -> int64_t {
        if (r.role == Role::kTrackCuts && i == 0) return 0;
        const int64_t place = r.role == Role::kTrackCuts ? i - 1 : i;
        const int64_t row = r.role == Role::kTrackCutFrom ? i : place / 2;
        const bool is_rest = r.role != Role::kTrackCutFrom && place % 2 == 1;
        if (row >= m.requests()) {
          if (r.role == Role::kTrackCuts) return m.tokens();
          return r.role == Role::kTrackCutInitial ? 0 : -1;
        }
        const int64_t after = before_snapshot(m, row), end = m.tokens(row) + after;
        const bool again = after > 0 && after < m.queries(row) && end % chunk != 0;
        const bool cached = m.extent(row).prefix_len > 0;
        switch (r.role) {
          case Role::kTrackCuts: return is_rest ? m.tokens(row + 1) : end;
          case Role::kTrackCutSlots: return again && !is_rest ? track_of(m, row) : -1;
          case Role::kTrackCutInitial: return cached && !is_rest;
          default: return again && cached ? slot_of(m, row) : -1;
        }
      },
      report);
}

void judge_parents(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const SpecInfo& spec = m.batch.spec;
  const int64_t steps = spec.num_draft_tokens, tokens = m.requests() * steps;
  if (m.size(r.buffer) < tokens || std::ssize(spec.retrieve_next_token) != tokens) return;
  std::vector<int32_t> parents(static_cast<size_t>(steps));
  for (int64_t i = 0; i < m.requests(); ++i) {
    const auto first = static_cast<size_t>(i * steps), count = static_cast<size_t>(steps);
    if (!tree_parents(spec.retrieve_next_token.subspan(first, count),
                      spec.retrieve_next_sibling.subspan(first, count), steps, parents)
             .ok())
      return;  // step.links says it
    for (int64_t j = 1; j < steps; ++j) {
      const int64_t want = parents[static_cast<size_t>(j)];
      const int64_t got = m.value(r.buffer, i * steps + j);
      judged("state.parents");
      if (got != want)
        report.fail("state.parents", at(m.buffer(r.buffer).name, i, j), number(want), number(got));
    }
  }
}

/// Where runs begin: at the batch's chunks, and at every request's first token.
std::set<int64_t> starts_of_runs(const MetaFacts& m) {
  std::set<int64_t> starts;
  for (int64_t t = 0; t < m.tokens(); t += state_chunk_size(m.model)) starts.insert(t);
  for (int64_t i = 0; i < m.requests(); ++i)
    if (m.queries(i) > 0) starts.insert(m.tokens(i));
  return starts;
}

void judge_chunks(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  const int64_t chunk = state_chunk_size(m.model);
  int64_t i = 0;
  for (const int64_t start : starts_of_runs(m)) {
    if (i >= m.size(r.buffer)) break;
    const int64_t want = r.role == Role::kChunkIndices ? start / chunk : start % chunk;
    const int64_t got = m.value(r.buffer, i);
    judged("state.chunks");
    if (got != want)
      report.fail("state.chunks", at(m.buffer(r.buffer).name, i), number(want), number(got));
    ++i;
  }
}

void judge_token_rows(const MetaFacts& m, const BufferInfo& r, LawReport& report) {
  for (int64_t i = 0; i < m.requests(); ++i) {
    for (int64_t t = m.tokens(i); t < m.tokens(i + 1) && t < m.size(r.buffer); ++t) {
      judged("state.chunks");
      if (const int64_t got = m.value(r.buffer, t); got != i)
        report.fail("state.chunks", at(m.buffer(r.buffer).name, t), number(i), number(got));
    }
  }
}

}  // namespace

void judge_states(const MetaFacts& m, LawReport& report) {
  for (const BufferInfo& r : m.info.buffers) {
    switch (r.role) {
      case Role::kStateSlots:
      case Role::kStateSlotsZero: {
        const int64_t padding = r.role == Role::kStateSlots ? -1 : 0;
        const auto want = [&](int64_t i) { return i < m.requests() ? slot_of(m, i) : padding; };
        judge_rows(m, r, "state.slots", want, report);
        break;
      }
      case Role::kInitialStates: {
        const auto want = [&](int64_t i) { return i < m.requests() && m.extent(i).prefix_len > 0; };
        judge_rows(m, r, "state.initial", want, report);
        break;
      }
      case Role::kTrackSlots:
        judge_rows(
            m, r, "state.track", [&](int64_t i) { return track_of(m, i); }, report);
        break;
      case Role::kTrackFinals:
      case Role::kTrackChunks:
      case Role::kTrackWindows: judge_snapshots(m, r, report); break;
      case Role::kTrackCuts:
      case Role::kTrackCutSlots:
      case Role::kTrackCutInitial:
      case Role::kTrackCutFrom: judge_cuts(m, r, report); break;
      case Role::kDraftParents: judge_parents(m, r, report); break;
      case Role::kChunkIndices:
      case Role::kChunkOffsets: judge_chunks(m, r, report); break;
      case Role::kTokenRows: judge_token_rows(m, r, report); break;
      case Role::kChunkCount:
        judge_rows(
            m, r, "state.chunks", [&](int64_t) { return std::ssize(starts_of_runs(m)); }, report);
        break;
      default: break;
    }
  }
}

}  // namespace shadowgraph
