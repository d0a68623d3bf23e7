// Whose a pool's slots are, as steps go by: one request's, or several's that share a prefix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "shadowgraph/device/annotations.h"

namespace shadowgraph {

class SlotOwners {
 public:
  explicit SlotOwners(int64_t slots = 0) : owners_(static_cast<size_t>(slots)) {}

  /// alone: and nobody else's any more. Whether it is that now; empty: it was the owner's already.
  std::optional<bool> own(int32_t slot, OwnerId owner, bool alone) {
    auto& mine = owners_[static_cast<size_t>(slot)];
    if (!alone && std::ranges::find(mine, owner) != mine.end()) return {};
    alone = alone || mine.empty();
    if (alone) mine.clear();
    mine.push_back(owner);
    return alone;
  }
  const std::vector<OwnerId>& of(int32_t slot) const { return owners_[static_cast<size_t>(slot)]; }
  void forget(int32_t slot) { owners_[static_cast<size_t>(slot)].clear(); }
  void forget_all() { std::ranges::fill(owners_, std::vector<OwnerId>{}); }

 private:
  std::vector<std::vector<OwnerId>> owners_;
};

}  // namespace shadowgraph
