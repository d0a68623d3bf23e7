// Calls on the host's memory, run by a device's own kernels: what a launch's footprint names is
// copied there, and what it writes comes back. Each runs twice, at once and as the replay of a
// graph, and both must leave the same bytes. Tested by tests/check/device_calls_test.cc.
#pragma once

#include <cstddef>
#include <memory>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/device_api.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

class DeviceCalls {
 public:
  /// device: lives longer.
  explicit DeviceCalls(DeviceApi& device);
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  /// launch: as a backend's launch function makes it, over memory of the host. Of each pointer the
  /// device has the bytes between the first and the last that the footprint names, and nothing of
  /// what it does not name. Findings: graph.device_error; num.write_set where other bytes than
  /// those that are written changed; num.bits where the replay left others. Then nothing comes
  /// back. Any thread may call.
  Status run(const KernelLaunch& launch);

  // What the CPU's calls do, and what they refuse.
  Status run(const PagedAttention& call);
  Status run(const RaggedAttention& call);
  Status run(const MergeState<LseBase::kNatural>& call);
  Status run(const StoreKv& call);

 private:
  class Room;
  struct Rooms;
  std::unique_ptr<Room> take_room();
  void give_back(std::unique_ptr<Room> room);

  DeviceApi& api_;
  std::unique_ptr<Rooms> rooms_;
};

}  // namespace shadowgraph
