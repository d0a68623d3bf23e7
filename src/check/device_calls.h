// Calls on the host's memory, run by a device's own kernels: what a launch's footprint names is
// copied there, and what it writes comes back. Each runs twice, at once and as the replay of a
// graph, and both must leave the same bytes. Tested by tests/check/device_calls_test.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "shadowgraph/attention.h"
#include "shadowgraph/device_api.h"
#include "shadowgraph/sim_device.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

class DeviceCalls {
 public:
  using HasKernel = std::function<bool(std::string_view name)>;

  /// Lives as long as the device. has_kernel: which kernels that has bodies for.
  DeviceCalls(DeviceApi& api, HasKernel has_kernel);
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

  /// A simulated device of this kind runs every launch whose kernel the device has there, in the
  /// place of the CPU's body. What the device refuses, or gets wrong beside the results, leaves
  /// 0xff in what the launch writes, and is told by take_findings().
  std::unique_ptr<SimDevice> simulated(const SimOptions& options);
  Status take_findings();

 private:
  struct Bodies;
  class Simulated;
  class Room;
  struct Rooms;
  std::unique_ptr<Room> take_room();
  void give_back(std::unique_ptr<Room> room);

  DeviceApi& api_;
  std::unique_ptr<Rooms> rooms_;
  std::unique_ptr<Bodies> bodies_;
};

}  // namespace shadowgraph
