// What CUDA refuses about a node's parameters, in a stream and in a graph alike.
#pragma once

#include "graph/memory/memory.h"
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

/// InvalidDeviceFunction: no kernel. InvalidValue: a shape that no device launches.
DeviceError check_launch(const KernelLaunch& launch);
/// A copy of at least one byte: a direction that exists, memory on the sides that it names, and on
/// the device inside one live allocation.
DeviceError check_copy(const DeviceMemory& memory, const MemcpyParams& copy);
/// Element size and pitch; the address is not looked at.
DeviceError check_set(const MemsetParams& set);

}  // namespace shadowgraph
