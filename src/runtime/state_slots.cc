#include "runtime/state_slots.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {

StateSlots::StateSlots(int32_t num_slots) {
  for (int32_t slot = 1; slot <= num_slots; ++slot) free_.push_back(slot);
}

std::optional<int32_t> StateSlots::alloc() {
  if (free_.empty()) return std::nullopt;
  const int32_t slot = free_.front();
  free_.pop_front();
  return slot;
}

void StateSlots::free(int32_t slot) { free_.push_back(slot); }

const StateSlots::Snapshot* StateSlots::match(std::span<const int32_t> tokens) {
  auto longest = snapshots_.end();
  for (auto it = snapshots_.begin(); it != snapshots_.end(); ++it) {
    const Tokens& prefix = it->prefix;
    const bool begins =
        prefix.size() <= tokens.size() && std::ranges::equal(prefix, tokens.first(prefix.size()));
    if (begins && (longest == snapshots_.end() || longest->prefix.size() < prefix.size()))
      longest = it;
  }
  if (longest == snapshots_.end()) return nullptr;
  std::rotate(longest, longest + 1, snapshots_.end());
  return &snapshots_.back();
}

bool StateSlots::keep(Tokens prefix, int32_t slot) {
  if (std::ranges::find(snapshots_, prefix, &Snapshot::prefix) != snapshots_.end()) return false;
  snapshots_.push_back({std::move(prefix), slot});
  return true;
}

bool StateSlots::evict() {
  if (snapshots_.empty()) return false;
  free(snapshots_.front().slot);
  snapshots_.pop_front();
  return true;
}

std::vector<CachedSlot> StateSlots::snapshots() const {
  std::vector<CachedSlot> all;
  for (const Snapshot& s : snapshots_) {
    Chain chain = kNoTokens;
    for (const int32_t token : s.prefix) chain = extend(chain, token);
    all.push_back({.slot = s.slot, .chain = chain});
  }
  return all;
}

}  // namespace shadowgraph
