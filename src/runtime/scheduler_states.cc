// The recurrent states of a scheduler's requests: slots, snapshots, and what the host does to them
// between steps.
#include <algorithm>
#include <utility>

#include "runtime/scheduler.h"

namespace shadowgraph {

std::optional<int32_t> Scheduler::take_state() {
  std::optional<int32_t> slot = states_.alloc();
  if (!slot && states_.evict()) slot = states_.alloc();
  return slot;
}

/// A slot of its own. Of a shared prefix it begins with a copy of the snapshot, whose length is
/// then the prefix; what the cache has of it besides is not shared.
bool Scheduler::admit_state(Request& r) {
  const std::optional<int32_t> slot = take_state();
  if (!slot) return false;
  r.pool.state_slot = *slot;
  state_map_[static_cast<size_t>(r.pool.row)] = *slot;
  moves_.push_back({.kind = StateMove::Kind::kFresh, .slot = *slot, .owner = r.pool.id});
  return true;
}

/// Tokens of the prefix that a request may share, of so many that the cache has.
int32_t Scheduler::shared_state(Request& r, int32_t cached) {
  const StateSlots::Snapshot* snapshot = states_.match(r.tokens(cached));
  if (snapshot == nullptr) return 0;
  moves_.push_back({.kind = StateMove::Kind::kCopy,
                    .slot = r.pool.state_slot,
                    .from = snapshot->slot,
                    .owner = r.pool.id});
  return static_cast<int32_t>(snapshot->prefix.size());
}

void Scheduler::release_state(Request& r) {
  if (r.pool.state_slot > 0) states_.free(r.pool.state_slot);
  if (r.pool.track_slot > 0) states_.free(r.pool.track_slot);
  r.pool.state_slot = 0, r.pool.track_slot = -1;
}

/// Where a chunk of a prompt may leave a snapshot that others can share: at the end of a page.
void Scheduler::add_track(Step& step, Request& r, int32_t count, Choices& choices) {
  step.track_slots.push_back(-1);
  step.track_lens.push_back(r.pool.kv_len + count);
  const int32_t behind = count - count % config_.state_chunk;
  const bool shareable = behind > 0 && (r.pool.kv_len + behind) % config_.page_size == 0;
  if (!shareable || choices.one_in(4)) return;
  const std::optional<int32_t> slot = take_state();
  if (!slot) return;
  moves_.push_back({.kind = StateMove::Kind::kFresh, .slot = *slot, .owner = r.pool.id});
  step.track_slots.back() = r.pool.track_slot = *slot;
  r.tracked_len = r.pool.kv_len + behind;
}

/// A step has run: its snapshot is the cache's, unless its request (nullptr) has gone meanwhile.
void Scheduler::settle_track(const Flight::Row& row, const Request* r) {
  if (row.track_slot < 0) return;
  if (r != nullptr && states_.keep(r->tokens(row.tracked_len), row.track_slot)) {
    moves_.push_back({.kind = StateMove::Kind::kKeep, .slot = row.track_slot});
  } else {
    states_.free(row.track_slot);
  }
}

/// What was accepted becomes the request's state.
void Scheduler::commit_states(const Requests& list) {
  if (config_.state_slots == 0) return;
  for (size_t i = 0; i < list.size(); ++i) {
    moves_.push_back({.kind = StateMove::Kind::kCommit,
                      .slot = list[i]->pool.state_slot,
                      .from = static_cast<int32_t>(i),
                      .step = list[i]->accepted.back(),
                      .owner = list[i]->pool.id});
  }
}

/// A verify's trees, as a recurrent layer reads them.
void Scheduler::add_trees(Step& step) const {
  if (config_.state_slots == 0) return;
  for (const DraftTree& tree : trees_)
    tree.append_links(&step.retrieve_next_token, &step.retrieve_next_sibling);
}

}  // namespace shadowgraph
