#include "graph/races.h"

#include <algorithm>
#include <string>

#include "core/laws.h"

namespace shadowgraph {

namespace {

constexpr size_t kMaxIntervals = size_t{1} << 18;

/// The same node of the same graph in every launch; an operation outside graphs is one by itself.
uint64_t identity(NodeHandle source, const Origin& by) {
  return source ? 2 * source.value + 1 : 2 * by.serial;
}

std::string_view verb(bool writes) { return writes ? " writes" : " reads"; }

}  // namespace

std::vector<Races::Interval> Races::intervals_of(const Footprint& spans, bool writes) {
  std::vector<Interval> out;
  for (const AccessSpan& span : spans) {
    if ((span.access == Access::kWrite) != writes || span.count <= 0) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(span.buffer) +
                            static_cast<uintptr_t>(span.first) * span.element_bytes;
    const uintptr_t end = begin + static_cast<uintptr_t>(span.count) * span.element_bytes;
    if (!out.empty() && out.back().begin <= begin && begin <= out.back().end) {
      out.back().end = std::max(out.back().end, end);
    } else {
      out.push_back({begin, end});
    }
  }
  return out;
}

void Races::sort(Entry& entry) {
  if (entry.sorted) return;
  entry.sorted = true;
  for (std::vector<Interval>* list : {&entry.reads, &entry.writes}) {
    std::sort(list->begin(), list->end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    size_t kept = 0;  // disjoint ones
    for (const Interval& next : *list) {
      if (kept > 0 && next.begin <= (*list)[kept - 1].end) {
        (*list)[kept - 1].end = std::max((*list)[kept - 1].end, next.end);
      } else {
        (*list)[kept++] = next;
      }
    }
    list->resize(kept);
  }
}

uintptr_t Races::first_overlap(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const uintptr_t begin = std::max(a[i].begin, b[j].begin);
    if (begin < std::min(a[i].end, b[j].end)) return begin;
    a[i].end < b[j].end ? ++i : ++j;
  }
  return 0;
}

uintptr_t Races::first_conflict(Entry& a, Entry& b) {
  sort(a), sort(b);
  if (const uintptr_t at = first_overlap(a.writes, b.writes)) return at;
  if (const uintptr_t at = first_overlap(a.writes, b.reads)) return at;
  return first_overlap(a.reads, b.writes);
}

void Races::report(const Entry& a, const Entry& b, uintptr_t at) {
  const auto pair = std::minmax({identity(a.source, a.by), identity(b.source, b.by)});
  if (!reported_.insert(pair).second) return;
  const auto holds = [&](const std::vector<Interval>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Interval& i) { return i.begin <= at && at < i.end; });
  };
  Where where = shadowgraph::at(memory_.describe(reinterpret_cast<const void*>(at)));
  where.phase = b.by.phase == Phase::kReplay ? "replay" : "eager";
  std::string got = a.by.to_string();
  got.append(verb(holds(a.writes))).append(", ").append(b.by.to_string());
  got.append(verb(holds(b.writes))).append(", nothing orders them");
  const std::string expected = "one before the other";
  findings_->add(a.transfer || b.transfer
                     ? make_finding("mem.unordered_access", std::move(where), expected, got)
                     : make_finding("mem.race", std::move(where), expected, got));
}

void Races::overlap_with_itself(const AccessRun& run, const void* p) {
  const uint64_t self = identity(run.source, run.by);
  if (!reported_.insert({self, self}).second) return;
  Where where = at(memory_.describe(p));
  where.phase = run.by.phase == Phase::kReplay ? "replay" : "eager";
  findings_->add(make_finding("mem.race", std::move(where),
                              "a source and a destination that do not overlap",
                              run.by.to_string() + " reads and writes the same bytes"));
}

void Races::compare(const AccessRun& run, Operation& with, Entry& entry) {
  const Position& own = run.operation.position;
  const bool same = with.position.lane == own.lane && with.position.tick == own.tick;
  for (Entry& other : with.entries) {
    const bool ordered = same ? is_not_after(other.id, run.id)
                              : run.operation.is_before(with.position, other.id, run.id);
    if (ordered) continue;
    const uintptr_t at = first_conflict(other, entry);
    if (at != 0) report(other, entry, at);
  }
}

void Races::access(const AccessRun& run, const Footprint& spans) {
  Entry entry{run.id,
              run.by,
              run.source,
              run.transfer,
              intervals_of(spans, false),
              intervals_of(spans, true)};
  entry.cost = entry.reads.size() + entry.writes.size();
  if (entry.cost == 0) return;
  const Position& own = run.operation.position;
  if (own.lane >= lanes_.size()) lanes_.resize(own.lane + 1);
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lane == own.lane) continue;  // a lane is in order
    std::deque<Operation>& log = lanes_[lane];
    const uint64_t covered = run.operation.before.tick(lane);
    for (size_t i = log.size(); i > 0 && log[i - 1].position.tick > covered; --i)
      compare(run, log[i - 1], entry);
  }
  std::deque<Operation>& log = lanes_[own.lane];
  if (log.empty() || log.back().position.tick != own.tick) {
    log.push_back({own, run.by.serial, {}});
  } else if (run.id.run != nullptr && !run.id.run->chain) {
    compare(run, log.back(), entry);
  }
  intervals_ += entry.cost;
  log.back().entries.push_back(std::move(entry));
  bound();
}

void Races::drop_front(size_t lane) {
  for (const Entry& entry : lanes_[lane].front().entries) intervals_ -= entry.cost;
  lanes_[lane].pop_front();
}

void Races::forget(const Clock& clock) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    while (!lanes_[lane].empty() && clock.covers(lanes_[lane].front().position)) drop_front(lane);
}

void Races::forget_up_to(uint64_t serial) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    while (!lanes_[lane].empty() && lanes_[lane].front().serial <= serial) drop_front(lane);
}

void Races::bound() {
  while (intervals_ > kMaxIntervals) {
    size_t oldest = lanes_.size();
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].empty()) continue;
      if (oldest == lanes_.size() || lanes_[lane].front().serial < lanes_[oldest].front().serial)
        oldest = lane;
    }
    drop_front(oldest);
  }
}

}  // namespace shadowgraph
