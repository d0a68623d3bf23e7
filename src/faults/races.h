// Faults of the order between host and device. Spec faults-known K64, K66.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// Nothing waits for the copies of the last upload before their staging is written again.
struct StagingWithoutFence final : Tap {
  std::unique_ptr<SimDevice> device(const SimOptions& options) override;
};

/// The wait stands below the first write: it is made before the next upload.
struct FenceBelowTheWrites final : Tap {
  std::unique_ptr<SimDevice> device(const SimOptions& options) override;
};

}  // namespace shadowgraph
