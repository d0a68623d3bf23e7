// GPU bodies by kernel name. A body takes the arguments of the launch, in their order and of their
// types; so a launch needs no code of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shadowgraph/device/kernel.h"

namespace shadowgraph::cuda {

/// How a GPU is to run a launch.
struct Geometry {
  dim3 grid, block;
  unsigned shared_bytes = 0;
  unsigned cluster = 1;  // blocks, along x
};

struct CudaKernel {
  std::string_view name;
  const void* function = nullptr;
  std::vector<size_t> arg_bytes;
  /// nullptr: as the launch says, whose grid is otherwise of no meaning to the body.
  Geometry (*geometry)(const KernelLaunch& launch) = nullptr;
  /// For a fast body, which replaces the portable one where it fits a launch.
  bool (*fits)(const KernelLaunch& launch) = nullptr;
  int preference = 0;  // of fast bodies that fit
  /// One thread of it, where the body was compiled for a CPU; args: as CUDA takes them.
  void (*call)(const void* function, void* const* args) = nullptr;

  /// Is each argument of the launch of the size that the function takes?
  bool takes(const KernelArgs& args) const;
  Geometry geometry_of(const KernelLaunch& launch) const;
};

template <class... Args>
CudaKernel cuda_kernel(std::string_view name, void (*function)(Args...),
                       Geometry (*geometry)(const KernelLaunch&) = nullptr) {
  CudaKernel kernel{name, reinterpret_cast<const void*>(function), {sizeof(Args)...}, geometry};
#ifndef __CUDACC__
  kernel.call = [](const void* f, void* const* args) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      reinterpret_cast<void (*)(Args...)>(const_cast<void*>(f))(
          *static_cast<std::remove_const_t<Args>*>(args[I])...);
    }
    (std::index_sequence_for<Args...>());
  };
#endif
  return kernel;
}

/// What a file of kernels adds before main: one object of static duration.
struct CudaKernels {
  CudaKernels(std::initializer_list<CudaKernel> kernels);
};
/// The portable body that does what the kernel's does; nullptr: there is none.
const CudaKernel* find_kernel(const Kernel& kernel);
/// What a launch runs: a fast body that fits it, where those are used, else the portable one. Fast
/// bodies, which have other bits than the CPU's, are used where the environment variable
/// SHADOWGRAPH_CUDA_FAST is not empty.
bool uses_fast_kernels();
const CudaKernel* choose_kernel(const KernelLaunch& launch, bool fast = uses_fast_kernels(),
                                int most_preferred = INT_MAX);
const void* find_function(std::string_view name);
/// The names of all GPU bodies, sorted.
std::vector<std::string_view> kernel_names();

/// Which kernel a function is, and how its arguments lie, learnt when it is first launched or
/// added: a node says of itself no more than its function.
class LaunchedKernels {
 public:
  void remember(const CudaKernel& kernel, const KernelLaunch& launch);
  /// The launch of a kernel node; kernel is nullptr where the function never came by here.
  KernelLaunch launch_of(const cudaKernelNodeParams& params) const;

 private:
  struct Signature {
    KernelLaunch like;  // any: its kernel, the kinds and sizes of its arguments
    bool own_geometry = false;
  };
  mutable std::mutex mutex_;
  std::map<const void*, Signature> known_;
};

/// The GPU's limits: bytes of shared memory that a block may have, and how many clusters of such
/// blocks fit at once, 0 if it has no such clusters. Without a GPU they are an H200's.
unsigned most_shared_bytes();
int64_t most_clusters(const void* function, const Geometry& geometry);

/// Addresses of a launch's arguments, as CUDA wants them: into the launch.
std::vector<void*> addresses_of(const KernelArgs& args);

}  // namespace shadowgraph::cuda
