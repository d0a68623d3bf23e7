// The GPU of a build that has one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "check/device_calls.h"
#include "check/runner.h"
#include "check/twin_device.h"
#include "cli.h"
#include "conformance/answers.h"
#ifdef SHADOWGRAPH_CUDA
#include "shadowgraph/device/cuda_device.h"
#endif

namespace shadowgraph::cli {

inline std::unique_ptr<DeviceApi> open_gpu(std::string* why) {
#ifdef SHADOWGRAPH_CUDA
  return open_cuda_device(why);
#else
  if (why != nullptr) *why = "built without CUDA (cmake --preset cuda)";
  return nullptr;
#endif
}

enum class DeviceKind : uint8_t { kSim, kCuda };

/// --device.
inline void add_device(Command& command, DeviceKind& kind) {
  command.choice<DeviceKind>("--device", kind,
                             {{"sim", DeviceKind::kSim}, {"cuda", DeviceKind::kCuda}},
                             "What to run on (default sim)");
}

inline void check_device(DeviceKind kind, const Common& common) {
  if (kind == DeviceKind::kCuda && common.arith == Arith::kFast)
    throw UsageError("--device cuda has portable arithmetic alone, without --arith fast");
}

inline void say_no_gpu(const std::string& why) {
  fmt::print(stderr, "shadowgraph: {}: going on with the CPU\n", why);
}

inline bool has_gpu_kernel([[maybe_unused]] const Kernel& kernel) {
#ifdef SHADOWGRAPH_CUDA
  return has_cuda_kernel(kernel);
#else
  return false;
#endif
}

/// The GPU that calls and histories run on, where --device asks for one and there is one.
class Gpu {
 public:
  explicit Gpu(DeviceKind kind) {
    if (kind == DeviceKind::kSim) return;
    std::string why;
    api_ = open_gpu(&why);
    if (api_ == nullptr) say_no_gpu(why);
    if (api_ != nullptr) calls_.emplace(*api_);
  }
  /// nullptr: the CPU runs them.
  DeviceCalls* calls() { return calls_ ? &*calls_ : nullptr; }
  /// What histories run on; empty: the simulated device alone. Lives longer than they.
  MakeDevice make_device() {
    if (api_ == nullptr) return {};
    return [this](const SimOptions& options) {
      return std::make_unique<TwinDevice>(options, *api_, has_gpu_kernel);
    };
  }

 private:
  std::unique_ptr<DeviceApi> api_;
  std::optional<DeviceCalls> calls_;
};

/// Says in one line why not, and that the CPU goes on. This process opens nothing: others that it
/// starts could not, then.
inline bool has_gpu() {
  const std::string why = why_no_device(open_gpu);
  if (!why.empty()) say_no_gpu(why);
  return why.empty();
}

}  // namespace shadowgraph::cli
