// TwinDevice: the simulated device, and another beside it that is given the same calls: streams,
// events, captures, graphs and launches over memory of its own. Wherever the host waits for both,
// both have the same bytes in all that was ever bound, red zones too, and every call had the same
// answer. So whatever runs on a SimDevice, a history with its graphs say, runs on a GPU as it
// stands. See docs/cuda.md. Tested by tests/check/twin_device_test.cc.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

class TwinDevice final : public SimDevice {
 public:
  using HasKernel = std::function<bool(const Kernel& kernel)>;

  /// device: lives longer. has_kernel: which kernels it has bodies for; of the others the CPU's
  /// bodies run there as host functions, on its memory, in its order and in its graphs. Mirrored
  /// are the calls that Stream, Graph, GraphExec and Arena make.
  TwinDevice(const SimOptions& options, DeviceApi& device, HasKernel has_kernel);
  ~TwinDevice() override;

  /// And device.twin: the first byte, or answer, that differs. The other device is left alone from
  /// there on, as it is once work here has faulted.
  Status take_findings() override;

  DeviceError settle() override;
  DeviceError device_synchronize() override;
  DeviceError malloc(size_t bytes, void** p) override;
  DeviceError free(void* p) override;
  DeviceError memcpy_async(const MemcpyParams& copy, StreamHandle s) override;
  DeviceError memset_async(const MemsetParams& set, StreamHandle s) override;
  DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) override;
  DeviceError stream_create_with_priority(uint32_t flags, int32_t priority,
                                          StreamHandle* s) override;
  DeviceError stream_destroy(StreamHandle s) override;
  DeviceError stream_synchronize(StreamHandle s) override;
  DeviceError stream_wait_event(StreamHandle s, EventHandle e, uint32_t flags) override;
  DeviceError event_create_with_flags(uint32_t flags, EventHandle* e) override;
  DeviceError event_destroy(EventHandle e) override;
  DeviceError event_record_with_flags(EventHandle e, StreamHandle s, uint32_t flags) override;
  DeviceError event_synchronize(EventHandle e) override;
  DeviceError stream_begin_capture(StreamHandle s, CaptureMode mode) override;
  DeviceError stream_end_capture(StreamHandle s, GraphHandle* g) override;
  DeviceError graph_destroy(GraphHandle g) override;
  DeviceError graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) override;
  DeviceError graph_exec_destroy(ExecHandle exec) override;
  DeviceError graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) override;
  DeviceError graph_launch(ExecHandle exec, StreamHandle s) override;
  void declare_buffer(const BufferDecl& buffer) override;
  void undeclare_buffer(const void* address) override;
  void retire(const void* p, size_t bytes) override;

 private:
  /// An allocation here, and where it begins there, in the middle of three times as much: what a
  /// fault reads or writes a little outside is nobody else's.
  struct Block {
    size_t bytes = 0;
    void* allocated = nullptr;
    std::byte* there = nullptr;
    size_t used = 0;  // from the beginning: what was bound, red zones included
  };
  using Blocks = std::map<const std::byte*, Block>;

  /// What both answered, as long as they go together.
  template <class Call>
  DeviceError beside(const char* name, DeviceError here, const Call& call);
  template <class H, class Destroy>
  DeviceError end(const char* name, std::map<H, H>* pairs, H mine, DeviceError here,
                  const Destroy& destroy);
  template <class H>
  static H pair_of(const std::map<H, H>& pairs, H mine) {
    const auto it = pairs.find(mine);
    return it == pairs.end() ? mine : it->second;
  }
  Blocks::iterator block_of(const void* p);
  template <class T>
  T* there(T* p);
  KernelLaunch there(const KernelLaunch& launch);
  /// The other device has the bytes that are here.
  void bring(const void* p, size_t bytes);
  /// All of this twin's work there. Not the device's: that ends the captures of every thread.
  DeviceError synchronize_streams();
  DeviceError compared(DeviceError synchronized);
  /// The first byte of a block that differs.
  static std::optional<size_t> first_difference(const std::byte* here, const Block& block);
  std::optional<Finding> find_difference();

  DeviceApi& device_;
  const HasKernel has_kernel_;
  bool apart_ = false;
  Status differences_;
  Blocks blocks_;
  std::map<const void*, BufferDecl> buffers_;
  std::map<StreamHandle, StreamHandle> streams_;
  std::map<EventHandle, EventHandle> events_;
  std::map<GraphHandle, GraphHandle> graphs_;
  std::map<ExecHandle, ExecHandle> execs_;
  std::deque<KernelLaunch> on_host_;  // graphs name them: they live as long as the device
};

}  // namespace shadowgraph
