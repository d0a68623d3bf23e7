// StateSlots: who has which slot of the recurrent states, and the prefixes of which the cache keeps
// a snapshot. Slots are handed out first in, first out; slot 0 is nobody's. Spec
// backends-flashinfer-triton-linear-sparse 7.1, 7.5. Tested by tests/runtime/state_slots_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "runtime/radix_cache.h"

namespace shadowgraph {

class StateSlots {
 public:
  /// Slots 1 .. num_slots.
  explicit StateSlots(int32_t num_slots);
  virtual ~StateSlots() = default;
  StateSlots(const StateSlots&) = delete;
  StateSlots& operator=(const StateSlots&) = delete;

  virtual std::optional<int32_t> alloc();
  virtual void free(int32_t slot);

  /// A snapshot: the state behind these tokens is in this slot.
  struct Snapshot {
    Tokens prefix;
    int32_t slot = 0;
  };
  /// The longest that begins the tokens; it is used last. nullptr: none.
  virtual const Snapshot* match(std::span<const int32_t> tokens);
  /// False: that prefix has one already.
  virtual bool keep(Tokens prefix, int32_t slot);
  /// Frees the slot of the snapshot that was used least recently. False: there is none.
  virtual bool evict();

  /// The slots that nobody has, the next one first.
  Slots unused() const { return {free_.begin(), free_.end()}; }
  /// All snapshots.
  std::vector<CachedSlot> snapshots() const;

 private:
  std::deque<int32_t> free_;
  std::deque<Snapshot> snapshots_;  // used last at the end
};

}  // namespace shadowgraph
