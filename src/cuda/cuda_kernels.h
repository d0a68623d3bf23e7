// GPU bodies by kernel name. A body takes the arguments of the launch, in their order and of their
// types; so a launch needs no code of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "shadowgraph/kernel.h"

namespace shadowgraph::cuda {

struct CudaKernel {
  std::string_view name;
  const void* function;
};

/// What a file of kernels adds before main: one object of static duration.
struct CudaKernels {
  CudaKernels(std::initializer_list<CudaKernel> kernels);
};
/// nullptr: there is none.
const void* find_function(std::string_view name);

/// Which kernel a function is, and how its arguments lie, learnt when it is first launched or
/// added: a node says of itself no more than its function.
class LaunchedKernels {
 public:
  void remember(const void* function, const KernelLaunch& launch);
  /// The launch of a kernel node; kernel is nullptr where the function never came by here.
  KernelLaunch launch_of(const cudaKernelNodeParams& params) const;

 private:
  struct Signature {
    const Kernel* kernel = nullptr;
    KernelArgs args;  // any: kinds and sizes
  };
  mutable std::mutex mutex_;
  std::map<const void*, Signature> known_;
};

/// Addresses of a launch's arguments, as CUDA wants them: into the launch.
std::vector<void*> addresses_of(const KernelArgs& args);

}  // namespace shadowgraph::cuda
