// Histories with a tap in them, until the first finding; nothing is shrunk.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fuzz/fuzz.h"

namespace shadowgraph {

inline FuzzResult planted_histories(const MakeTap& tap, std::vector<const Backend*> backends,
                                    uint64_t cases) {
  FuzzOptions options;
  options.cases = cases, options.threads = 1, options.max_findings = 1;
  options.kernels = false;
  options.histories.backends = std::move(backends);
  options.histories.shrink.tries = 0;
  options.histories.tap = tap;
  return run_fuzz(options, {}, false);
}

}  // namespace shadowgraph
