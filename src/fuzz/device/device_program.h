// Random and exhaustive programs over the device: typed calls of a small grammar, run on the
// simulated device and held against what every program keeps (docs/graphs.md).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/choices.h"
#include "shadowgraph/device/device_api.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

enum class DeviceVerb : uint8_t {
  // The small scope.
  kKernel,
  kRecord,
  kWait,
  kBegin,
  kEnd,
  kMemset,
  kMalloc,
  kMallocAsync,
  // Beyond it.
  kCopyLegacy,  // a synchronous copy
  kStreamSynchronize,
  kEventSynchronize,
  kEventQuery,
  kDeviceSynchronize,
  kExchangeMode,
};

struct DeviceCall {
  DeviceVerb verb = DeviceVerb::kKernel;
  uint8_t stream = 0, event = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  bool thread_b = false;
};

struct DeviceProgram {
  bool blocking = false;  // its streams
  std::vector<DeviceCall> calls;
  /// "n: begin s0 global; kernel s0; end s0"
  std::string to_string() const;
};

/// What programs reached: return codes, and transitions of a stream's capture status.
struct DeviceCoverage {
  std::map<DeviceError, int64_t> codes;
  std::map<std::pair<CaptureStatus, CaptureStatus>, int64_t> transitions;
  void add(const DeviceCoverage& other);
};

/// At most 12 calls over 3 streams, 3 events and 2 threads.
DeviceProgram generate_device_program(Choices& choices);

/// Laws device.*; findings name the program. seed: the device's schedule.
Status check_device_program(const DeviceProgram& program, uint64_t seed, DeviceCoverage* coverage);

/// The calls of the small scope: 2 streams, 1 event, 3 modes.
std::span<const DeviceCall> small_scope();

/// All programs of 1 to max_calls calls of the small scope, up to the names of the streams. They
/// are numbered from 0: each program, then those that go on from it.
class SmallPrograms {
 public:
  explicit SmallPrograms(int max_calls);
  uint64_t size() const { return sizes_.back()[0] - 1; }
  /// Visits none of those before it: their number is known. Requires number < size().
  DeviceProgram operator[](uint64_t number) const;

 private:
  // Programs that begin with some calls, these alone among them: [calls that may follow][a call
  // named a stream, so that the two are no longer alike]
  std::vector<std::array<uint64_t, 2>> sizes_;
};

}  // namespace shadowgraph
