// Conformance of a device with CUDA: which programs are run, on which devices, and what came of
// each. Tested by tests/conformance/conformance_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conformance/records.h"
#include "conformance/verdict.h"
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

struct TestedDevice {
  std::unique_ptr<DeviceApi> api;
  std::function<Status()> take_findings;  // at the end of a run, leaks included
};
/// A new device for each run.
using DeviceFactory = std::function<TestedDevice(uint64_t seed)>;

TestedDevice simulated_device(uint64_t seed);

/// A program, as one variant, and the recorded answer if there is one.
struct ConformanceCase {
  std::string id, variant;
  const RecordedProgram* recorded = nullptr;  // lives as long as the case is used
};

/// Those of a file; of all programs, without records.
std::vector<ConformanceCase> cases_of(const RecordFile& file);
std::vector<ConformanceCase> all_cases();

/// Runs one case. Findings carry the case ("G12 n.global"), and no command that reproduces them.
ProgramVerdict run_case(const ConformanceCase& c, const DeviceFactory& device, const Seeds& seeds,
                        const std::atomic<bool>& stop);

}  // namespace shadowgraph
