// The same calls on a real GPU: DeviceApi over the CUDA runtime. Only in builds with
// SHADOWGRAPH_CUDA. Facts: docs/graphs.md "CUDA 13".
#pragma once

#include <memory>
#include <string>

#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

/// Opens device 0; nullptr if there is none, and *why then has the reason in one line. Calls are
/// the CUDA runtime's own: any thread may make them, and an error of execution sticks to the
/// process.
///
/// The device finds the GPU body of a launch by its kernel's name. A launch whose kernel has no GPU
/// body answers cudaErrorInvalidDeviceFunction.
std::unique_ptr<DeviceApi> open_cuda_device(std::string* why);

/// True if there is a GPU body that does what this kernel does.
bool has_cuda_kernel(const Kernel& kernel);

}  // namespace shadowgraph
