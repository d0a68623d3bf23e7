// Every fault on every backend: what comes of each pair, and why where it is not found. Tested by
// tests/faults/matrix_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "faults/faults.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

struct MatrixOptions {
  uint64_t seed = 1;
  // Histories of a pair, the same for every fault; one that acted and is not found goes on for
  // `seconds`, and twelve times as long where it acted in fewer than 20. So does one that did not
  // act though its backend has all that a history had in which the fault acted elsewhere, with
  // histories like those alone
  uint64_t cases = 60;
  double seconds = 5;
  int threads = 0;  // pairs at once; 0: one a core
};

struct MatrixPair {
  const Fault* fault = nullptr;
  const Backend* backend = nullptr;
  PlantVerdict verdict = PlantVerdict::kNeverActed;
  uint64_t cases = 0, acted = 0;  // histories; those in which it acted
  std::string law;                // that noticed first
  std::vector<uint32_t> choices;  // of the history that was found, or missed, or is inert
  std::string why;                // of one that is not found
};

/// Fault by fault. progress(done, of) counts pairs; any thread may call it. Pairs that stop left
/// out have no cases.
std::vector<MatrixPair> run_fault_matrix(
    std::span<const Fault* const> faults, std::span<const Backend* const> backends,
    const MatrixOptions& options, const std::function<void(size_t done, size_t of)>& progress,
    const std::atomic<bool>& stop = {});

}  // namespace shadowgraph
