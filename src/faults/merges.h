// Faults of results that are merged. Spec faults-known K36.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// A prefill in two parts is planned without the window: the prefix's list is the whole prefix, and
/// no mask says which query has left what behind. Its run is given the window, and counts it from
/// the end of the prefix.
struct PrefixWithoutWindow final : Tap {
  void limits(Limits& limits) override;
};

}  // namespace shadowgraph
