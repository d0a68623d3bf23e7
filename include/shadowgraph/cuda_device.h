// The same calls on a real GPU: DeviceApi over the CUDA runtime. Only in builds with
// SHADOWGRAPH_CUDA. Source: spec graph-semantics 8.
#pragma once

#include <memory>
#include <string>

#include "shadowgraph/device_api.h"

namespace shadowgraph {

/// Device 0. nullptr where there is none, and why in one line. The calls are the runtime's own: any
/// thread may make them, and errors of execution stick to the process.
///
/// A launch is looked up by its kernel's name; one that has no GPU body is
/// cudaErrorInvalidDeviceFunction.
std::unique_ptr<DeviceApi> open_cuda_device(std::string* why);

/// Is there a GPU body that does what this kernel's does?
bool has_cuda_kernel(const Kernel& kernel);

}  // namespace shadowgraph
