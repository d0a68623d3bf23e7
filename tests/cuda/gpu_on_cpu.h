// GPU bodies without a GPU: every thread of a block is a fiber, and those of a warp meet where they
// shuffle, vote or synchronise. Blocks run one after the other.
#pragma once

#include <cstdint>

#include "cuda/cuda_kernels.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

/// Runs the GPU body of a launch. False, and nothing runs, where there is none, or where it takes
/// other arguments.
bool run_gpu_body(const KernelLaunch& launch);

/// The simulated device, running the GPU's body of every kernel that has one.
class GpuOnCpu final : public SimDevice {
 public:
  using SimDevice::SimDevice;
  DeviceError launch_kernel(const KernelLaunch& launch, StreamHandle s) override;
};

/// Is there one that does what it does?
inline bool has_gpu_body(const Kernel& kernel) { return cuda::find_kernel(kernel) != nullptr; }
/// From now on fast bodies where they fit, of no higher preference; how many of these have run.
void use_fast_gpu_bodies(bool fast, int preference = 99);
/// For how many clusters of one block it has room at once, as most_clusters() says; 132 at first.
void set_gpu_room(int clusters);
int64_t fast_gpu_bodies_run();
bool vote_of_block(bool mine);

/// How often a GPU body has run, of this name.
int64_t gpu_bodies_run(std::string_view name);

}  // namespace shadowgraph
