#include "cuda/cuda_kernels.h"

#include <cstring>

#include "shadowgraph/cuda_device.h"

namespace shadowgraph {
namespace cuda {
namespace {

/// Filled before main, file by file, in any order.
std::map<std::string_view, const void*>& functions() {
  static std::map<std::string_view, const void*> all;
  return all;
}

}  // namespace

CudaKernels::CudaKernels(std::initializer_list<CudaKernel> kernels) {
  for (const CudaKernel& k : kernels) functions().emplace(k.name, k.function);
}

const void* find_function(std::string_view name) {
  const auto it = functions().find(name);
  return it == functions().end() ? nullptr : it->second;
}

void LaunchedKernels::remember(const void* function, const KernelLaunch& launch) {
  const std::scoped_lock lock(mutex_);
  known_.try_emplace(function, Signature{launch.kernel, launch.args});
}

KernelLaunch LaunchedKernels::launch_of(const cudaKernelNodeParams& params) const {
  KernelLaunch launch;
  launch.grid = {params.gridDim.x, params.gridDim.y, params.gridDim.z};
  launch.block = {params.blockDim.x, params.blockDim.y, params.blockDim.z};
  launch.shared_bytes = params.sharedMemBytes;
  const std::scoped_lock lock(mutex_);
  const auto it = known_.find(params.func);
  if (it == known_.end()) return launch;
  launch.kernel = it->second.kernel;
  const KernelArgs& like = it->second.args;
  for (size_t i = 0; i < like.size(); ++i) {
    launch.args.add(like.kind(i), params.kernelParams[i], like.bytes(i).size());
  }
  return launch;
}

std::vector<void*> addresses_of(const KernelArgs& args) {
  std::vector<void*> all;
  for (size_t i = 0; i < args.size(); ++i) {
    all.push_back(const_cast<std::byte*>(args.bytes(i).data()));  // CUDA reads them only
  }
  return all;
}

}  // namespace cuda

bool has_cuda_kernel(std::string_view name) { return cuda::find_function(name) != nullptr; }

}  // namespace shadowgraph
