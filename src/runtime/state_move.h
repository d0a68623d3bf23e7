// What the host does with recurrent states between steps.
#pragma once

#include <cstdint>

#include "shadowgraph/device/annotations.h"

namespace shadowgraph {

struct StateMove {
  enum class Kind : uint8_t {
    kFresh,   // slot begins a request's life: its last contents are nobody's
    kCopy,    // slot gets the state of slot `from`
    kCommit,  // slot gets what the last verify left of its row `from` behind draft token `step`
    kKeep,    // slot is the prefix cache's from now on
    kTake,    // slot begins a request's life with its last contents: what an engine must not do
  };
  Kind kind = Kind::kFresh;
  int32_t slot = 0;
  int32_t from = 0, step = 0;
  OwnerId owner = 0;  // of slot, afterwards; not of kKeep
  bool operator==(const StateMove&) const = default;
};

}  // namespace shadowgraph
