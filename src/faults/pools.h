// Faults of allocators and prefix caches, standing in for the clean ones. Spec faults-known K49,
// K77, K78.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// What is evicted, slots, is given back as if it were numbers of pages.
struct SlotsFreedAsPages final : Tap {
  SchedulerParts parts(const RuntimeConfig& config) override;
};

/// The cache keeps views of the rows that prefixes came from.
struct CacheOfViews final : Tap {
  SchedulerParts parts(const RuntimeConfig& config) override;
};

/// Who matches a prefix locks the root.
struct LocksTheRoot final : Tap {
  SchedulerParts parts(const RuntimeConfig& config) override;
};

}  // namespace shadowgraph
