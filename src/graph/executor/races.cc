#include "graph/executor/races.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/laws.h"
#include "graph/memory/byte_range.h"

namespace shadowgraph {

namespace {

constexpr size_t kMaxIntervals = size_t{1} << 18;

/// The same node of the same graph in every launch; an operation outside graphs is one by itself.
uint64_t identity(NodeHandle source, const Origin& by) {
  return source ? 2 * source.value + 1 : 2 * by.serial;
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
  return hash ^ hash >> 31;
}

std::string_view verb(bool writes) { return writes ? " writes" : " reads"; }

}  // namespace

std::vector<Races::Interval> Races::intervals_of(const Footprint& spans, bool writes) {
  std::vector<Interval> out;
  for (const AccessSpan& span : spans) {
    if ((span.access == Access::kWrite) != writes || span.count <= 0) continue;
    const auto [begin, end] = byte_range(span);
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
  // Described, never followed. NOLINTNEXTLINE(performance-no-int-to-ptr)
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
  // On its own lane a run meets only its own operation.
  const bool same = with.position.lane == run.operation.position.lane;
  for (Entry& other : with.entries) {
    const bool ordered = same ? is_not_after(other.id, run.id)
                              : run.operation.is_before(with.position, other.id, run.id);
    judged(other.transfer || entry.transfer ? LawId("mem.unordered_access") : LawId("mem.race"));
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
    Log& log = lanes_[lane].log;
    const uint64_t covered = run.operation.before.tick(lane);
    for (auto it = log.rbegin(); it != log.rend() && it->position.tick > covered; ++it)
      compare(run, *it, entry);
  }
  Lane& lane = lanes_[own.lane];
  if (lane.log.empty() || lane.log.back().position.tick != own.tick) {
    replace_older(lane);
    lane.log.push_back({own, run.by.serial, {}});
  } else if (!run.id.run->chain) {
    compare(run, lane.log.back(), entry);
  }
  intervals_ += entry.cost;
  Operation& operation = lane.log.back();
  operation.shape = mix(operation.shape, shape_of(entry));
  operation.entries.push_back(std::move(entry));
  bound();
}

void Races::host_writes(const Clock& host, uintptr_t begin, uintptr_t end) {
  const auto read = [&](const Entry& entry) {
    return std::any_of(entry.reads.begin(), entry.reads.end(),
                       [&](const Interval& i) { return i.begin < end && begin < i.end; });
  };
  judged("mem.host_lifetime");
  for (const Lane& lane : lanes_) {
    for (auto it = lane.log.rbegin(); it != lane.log.rend() && !host.covers(it->position); ++it) {
      for (const Entry& entry : it->entries) {
        if (!entry.transfer || host.covers(it->position, entry.id) || !read(entry)) continue;
        const uint64_t self = identity(entry.source, entry.by);
        if (!reported_.insert({self, self}).second) continue;
        Where where = at("staging");
        where.phase = entry.by.phase == Phase::kReplay ? "replay" : "eager";
        findings_->add(
            make_finding("mem.host_lifetime", std::move(where),
                         "written again once the host has seen its copy done",
                         "written, and nothing orders that behind " + entry.by.to_string()));
      }
    }
  }
}

uint64_t Races::shape_of(const Entry& entry) {
  uint64_t shape = mix(entry.source.value, entry.transfer);
  shape = mix(shape, reinterpret_cast<uintptr_t>(entry.by.what.data()));
  for (const auto* list : {&entry.reads, &entry.writes}) {
    shape = mix(shape, list->size());
    for (const Interval& i : *list) shape = mix(mix(shape, i.begin), i.end);
  }
  return shape;
}

// The older one is before the newer one. What runs from now on is not before the newer one, and if
// it is after that, it is after both: it cannot be unordered with the older one alone.
void Races::replace_older(Lane& lane) {
  if (lane.log.empty()) return;
  const auto last = std::prev(lane.log.end());
  const auto [it, is_new] = lane.newest.try_emplace(last->shape, last);
  if (is_new) return;
  drop(lane, std::exchange(it->second, last));
}

void Races::drop(Lane& lane, Log::iterator operation) {
  for (const Entry& entry : operation->entries) intervals_ -= entry.cost;
  const auto newest = lane.newest.find(operation->shape);
  if (newest != lane.newest.end() && newest->second == operation) lane.newest.erase(newest);
  lane.log.erase(operation);
}

void Races::forget(const Clock& clock) {
  for (Lane& lane : lanes_)
    while (!lane.log.empty() && clock.covers(lane.log.front().position))
      drop(lane, lane.log.begin());
}

void Races::forget_up_to(uint64_t serial) {
  for (Lane& lane : lanes_)
    while (!lane.log.empty() && lane.log.front().serial <= serial) drop(lane, lane.log.begin());
}

void Races::bound() {
  while (intervals_ > kMaxIntervals) {
    Lane* oldest = nullptr;
    for (Lane& lane : lanes_) {
      if (lane.log.empty()) continue;
      if (oldest == nullptr || lane.log.front().serial < oldest->log.front().serial) oldest = &lane;
    }
    drop(*oldest, oldest->log.begin());
  }
}

}  // namespace shadowgraph
