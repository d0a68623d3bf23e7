// Hunting a planted fault: ordinary histories, the same for every fault, until something notices
// it. Tested by tests/faults/faults_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "faults/faults.h"
#include "fuzz/fuzz.h"

namespace shadowgraph {

struct HuntOptions {
  uint64_t seed = 1;
  std::vector<const Backend*> backends = {};  // empty: all
  uint64_t cases = 0;                         // histories; 0: no limit
  double seconds = 0;                         // 0: no limit; one of the two is set
  int threads = 0;                            // 0: one a core
  ShrinkBudget shrink = kSameEverywhere;
  // Histories that fail by their outputs, of which a diagnosis is made: with a few dozen chance
  // picks between mistakes that look alike
  int64_t diagnosed = 150;
};

struct FaultHunt {
  PlantVerdict verdict = PlantVerdict::kNeverActed;
  // Every law that fired in the step in which the fault was noticed, the first one first; empty:
  // the fault was not noticed
  std::vector<std::string> laws;
  uint64_t cases = 0;                  // histories until then, or in all
  double seconds = 0;                  // until then
  uint64_t acted = 0;                  // histories in which it acted
  std::optional<Unnoticed> unnoticed;  // of a fault that was missed
  Status findings;                     // shrunk, with the command that shows them again
  int64_t requests = 0;
  std::vector<uint32_t> choices;  // of the shrunk history
  // What the failing history and the shrunk one give without the fault: findings are not its doing
  Status clean;
};

FaultHunt hunt_fault(const Planted& planted, const HuntOptions& options,
                     const std::atomic<bool>& stop = {});

/// What the wrong outputs say that a fault is, over several histories that fail by their outputs,
/// whatever else would be noticed.
struct FaultDiagnosis {
  uint64_t cases = 0, failed = 0;     // histories; failed 0: it changes no output
  std::vector<Explanation> mistakes;  // of all of them together, the likeliest first
};
FaultDiagnosis diagnose_fault(const Planted& planted, const HuntOptions& options,
                              const std::atomic<bool>& stop = {});

/// The fault on a device beside the simulated one: ordinary histories, to their failing steps, from
/// one on in which it is noticed here.
struct FaultTwin {
  uint64_t cases = 0, failed = 0;  // histories; those in which something was noticed
  double seconds = 0;
  std::vector<std::string> laws;  // that noticed first, each once
  // device.twin, what the other device did otherwise: of histories that stay inside their buffers,
  // whose metadata leads nowhere else, and in which no two tokens have one slot
  Status differences;
};
FaultTwin run_fault_on(const MakeDevice& make_device, const Planted& planted,
                       const HuntOptions& options, const std::atomic<bool>& stop = {});

}  // namespace shadowgraph
