// Laws of the pools: every request has slots of its own, at the right place in their pages.
#include <algorithm>
#include <bit>
#include <map>

#include "core/laws.h"
#include "runtime/batch_laws.h"
#include "runtime/pool_state.h"

namespace shadowgraph {
namespace {

class PoolCheck {
 public:
  explicit PoolCheck(const PoolState& state) : s_(state), p_(state.config.page_size) {}

  Status run() {
    status_.add(validate(s_.config));
    if (s_.width < s_.config.width())
      fail("pool.shape", at("req_to_token"), ">= " + std::to_string(s_.config.width()) + " columns",
           s_.width);
    if (!status_.ok()) return std::move(status_);
    check_rows();
    check_states();
    if (!status_.ok()) return std::move(status_);
    for (const PoolRequest& r : s_.requests) check_slots(r);
    if (!status_.ok()) return std::move(status_);  // pages cannot be told
    for (const PoolRequest& r : s_.requests) check_pages(r);
    check_cache();
    check_freed();
    check_leaks();
    if (!s_.full_to_swa.empty()) check_window();
    return std::move(status_);
  }

 private:
  void fail(LawId law, Where where, std::string expected, int64_t got) {
    status_.add(make_finding(law, std::move(where), std::move(expected), std::to_string(got)));
  }
  size_t page_of(int64_t slot) const { return static_cast<size_t>(slot / p_); }
  int64_t slots() const { return static_cast<int64_t>(s_.taken.size()) * p_; }

  void check_rows() {
    const int64_t rows = TokenTable{s_.req_to_token, s_.width}.rows();
    std::map<int32_t, OwnerId> seen;
    for (const PoolRequest& r : s_.requests) {
      judged("pool.row");
      if (r.row < 1 || r.row >= rows)
        fail("pool.row", at("row", r.id), "1.." + std::to_string(rows - 1), r.row);
      else if (!seen.emplace(r.row, r.id).second)
        fail("pool.row", at("row", r.id), "a row that no other request has", r.row);
      const bool lengths = r.encoder_len >= 0 && r.encoder_len % p_ == 0 && r.shared_len >= 0 &&
                           r.shared_len <= r.confirmed_len && r.shared_len % p_ == 0 &&
                           r.confirmed_len <= r.kv_len && r.kv_len <= r.slots_len &&
                           r.evicted_len <= r.confirmed_len &&
                           r.encoder_len + r.slots_len <= s_.width;
      if (!lengths)
        fail("pool.slot", at("slots_len", r.id),
             "shared and evicted <= confirmed <= stored <= slots <= width", r.slots_len);
    }
    if (!std::ranges::all_of(TokenTable{s_.req_to_token, s_.width}.row(0),
                             [](int32_t slot) { return slot == 0; }))
      fail("pool.row", at("req_to_token", 0), "zeros in the padding row", 1);
    if (!status_.ok()) return;
    std::vector<int32_t> all = s_.free_rows;
    for (const auto& [row, owner] : seen) all.push_back(row);
    check_all("free_rows", std::move(all), rows - 1);
  }

  /// Numbers 1 .. count: free, or somebody's.
  void check_all(const char* field, std::vector<int32_t> all, int64_t count) {
    std::ranges::sort(all);
    judged("pool.leak", count);
    for (int64_t i = 1; i <= count; ++i) {
      const auto times = std::ranges::count(all, static_cast<int32_t>(i));
      if (times != 1) fail("pool.leak", at(field, i), "free, or somebody's: once", times);
    }
  }

  /// fi.I-88: slots of states are one request's, one snapshot's, or a track's.
  void check_states() {
    if (s_.config.state_slots == 0) return;
    std::vector<bool> taken(static_cast<size_t>(s_.config.state_slots) + 1);
    std::vector<int32_t> all = s_.free_states;
    const auto take = [&](const Where& where, int64_t slot) {
      judged("pool.state");
      if (slot < 1 || slot >= std::ssize(taken) || taken[static_cast<size_t>(slot)])
        fail("pool.state", where,
             "1.." + std::to_string(s_.config.state_slots) + ", a slot of its own", slot);
      else
        taken[static_cast<size_t>(slot)] = true, all.push_back(static_cast<int32_t>(slot));
    };
    for (const PoolRequest& r : s_.requests) {
      take(at("state_slot", r.id), r.state_slot);
      if (r.track_slot != -1) take(at("track_slot", r.id), r.track_slot);
    }
    for (size_t i = 0; i < s_.snapshots.size(); ++i)
      take(at("snapshots", static_cast<int64_t>(i)), s_.snapshots[i].slot);
    for (size_t i = 0; i < s_.tracks.size(); ++i)
      take(at("tracks", static_cast<int64_t>(i)), s_.tracks[i]);
    if (status_.ok()) check_all("free_states", std::move(all), s_.config.state_slots);
  }

  /// I-05, I-06.
  void check_slots(const PoolRequest& r) {
    const auto row = s_.slots(r);
    check_columns(
        {row, r.row, 0, std::ssize(row)}, p_, kSglang,
        [&](int64_t slot) { return slot < slots() && s_.taken[page_of(slot)]; }, &status_);
  }

  /// I-07: one column of one request has a page, or the first ones of several share it.
  void check_pages(const PoolRequest& r) {
    const auto row = s_.slots(r);
    for (size_t c = 0; c < row.size(); c += static_cast<size_t>(p_)) {
      const bool shared = static_cast<int64_t>(c) < r.shared_len;
      const auto [it, first] = pages_.emplace(page_of(row[c]), Use{c, shared});
      judged("pool.shared");
      if (first || (it->second.shared && shared && it->second.column == c)) continue;
      fail("pool.shared", at("req_to_token", r.row, static_cast<int64_t>(c)),
           "a page that no other request or column has", row[c]);
    }
  }

  /// What is shared is the cache's, and what is not is not.
  void check_cache() {
    std::map<size_t, int> cached;
    for (const auto& [slot, chain, locks] : s_.cached) {
      if (slot < p_ || slot >= slots() || !s_.taken[page_of(slot)])
        fail("pool.slot", at("cached"), "a slot that is allocated, not of page 0", slot);
      else if (++cached[page_of(slot)] > p_)
        fail("pool.shared", at("cached"), "a page that the cache has once", slot);
    }
    for (const auto& [page, use] : pages_) {
      if (cached.contains(page) != use.shared)
        fail("pool.shared", at("cached"),
             use.shared ? "a shared page is in the cache" : "a page of a request's own is not",
             static_cast<int64_t>(page));
    }
    for (const auto& [page, n] : cached) pages_.emplace(page, Use{0, true});
  }

  /// Slots that wait for steps in flight are nobody's.
  void check_freed() {
    for (const int32_t slot : s_.freed) {
      if (slot < p_ || slot >= slots() || !s_.taken[page_of(slot)])
        fail("pool.slot", at("freed"), "a slot that is allocated, not of page 0", slot);
      else if (!pages_.emplace(page_of(slot), Use{kFreed, false}).second &&
               pages_.at(page_of(slot)).column != kFreed)
        fail("pool.shared", at("freed"), "a page of no request, and not the cache's", slot);
    }
  }

  void check_leaks() {
    judged("pool.leak", std::ssize(s_.taken));
    for (size_t page = 0; page < s_.taken.size(); ++page) {
      if (s_.taken[page] != pages_.contains(page))
        fail("pool.leak", at("taken"),
             "every allocated page belongs to a request or the prefix cache",
             static_cast<int64_t>(page));
    }
  }

  /// I-14.
  void check_window() {
    const std::vector<int64_t>& map = s_.full_to_swa;
    if (static_cast<int64_t>(map.size()) != slots() + 1 || map.back() != -1) {
      fail("pool.window", at("full_to_swa"), "an entry a slot, and -1 for slot -1", map.back());
      return;
    }
    live_.resize(map.size());
    used_.resize(s_.swa_taken.size());
    for (const PoolRequest& r : s_.requests) check_window(r);
    for (const int32_t slot : s_.freed) check_window_slot(static_cast<size_t>(slot));
    for (size_t slot = 0; slot + 1 < map.size(); ++slot) {
      if (!live_[slot] && map[slot] != 0)
        fail("pool.window", at("full_to_swa", static_cast<int64_t>(slot)),
             "0: evicted, or of no request", map[slot]);
    }
    if (used_ != s_.swa_taken)
      fail("pool.leak", at("swa_taken"),
           "every allocated page belongs to a request or the prefix cache",
           std::ranges::count(s_.swa_taken, true));
  }

  void check_window(const PoolRequest& r) {
    const auto row = s_.slots(r);
    const int64_t visible = std::max(0, r.confirmed_len - s_.config.window_left);
    if (r.evicted_len > visible)
      fail("pool.window", at("evicted_len", r.id), "<= " + std::to_string(visible), r.evicted_len);
    judged("pool.window", std::ssize(row));
    for (int64_t c = 0; c < static_cast<int64_t>(row.size()); ++c) {
      if (c >= r.encoder_len && c < r.encoder_len + r.evicted_len) continue;
      if (!check_window_slot(static_cast<size_t>(row[static_cast<size_t>(c)])))
        fail("pool.window", at("full_to_swa", row[static_cast<size_t>(c)]),
             "a slot of its own in the window pool, at the same offset",
             s_.full_to_swa[static_cast<size_t>(row[static_cast<size_t>(c)])]);
    }
  }

  /// False: the slot has none in the window pool, or not a right one.
  bool check_window_slot(size_t slot) {
    const int64_t swa = s_.full_to_swa[slot];
    live_[slot] = true;
    const bool in_pool =
        swa >= p_ && page_of(swa) < s_.swa_taken.size() && s_.swa_taken[page_of(swa)];
    const bool follows = in_pool && swa % p_ == static_cast<int64_t>(slot) % p_ &&
                         (swa % p_ == 0 || s_.full_to_swa[slot - 1] == swa - 1) &&
                         (swa % p_ != 0 || windows_.emplace(swa, slot).second);
    if (follows) used_[page_of(swa)] = true;
    return follows;
  }

  static constexpr size_t kFreed = SIZE_MAX;
  struct Use {
    size_t column;
    bool shared;
  };
  const PoolState& s_;
  int64_t p_;
  Status status_;
  std::map<size_t, Use> pages_;
  std::vector<bool> live_, used_;      // slots with a window slot; pages of the window pool
  std::map<int64_t, size_t> windows_;  // first slot of a window page -> of the full pool
};

}  // namespace

Status check_pool(const PoolState& state) { return PoolCheck(state).run(); }

}  // namespace shadowgraph
