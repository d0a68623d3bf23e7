#include "cuda/cuda_kernels.h"

#include <cstdlib>
#include <cstring>

#include "shadowgraph/device/cuda_device.h"

namespace shadowgraph {
namespace cuda {
namespace {

/// Filled before main, file by file, in any order.
std::map<std::string_view, CudaKernel>& kernels_by_name() {
  static std::map<std::string_view, CudaKernel> all;
  return all;
}

std::vector<CudaKernel>& fast_kernels() {
  static std::vector<CudaKernel> all;
  return all;
}

}  // namespace

bool CudaKernel::takes(const KernelArgs& args) const {
  if (args.size() != arg_bytes.size()) return false;
  for (size_t i = 0; i < arg_bytes.size(); ++i) {
    if (args.bytes(i).size() != arg_bytes[i]) return false;
  }
  return true;
}

Geometry CudaKernel::geometry_of(const KernelLaunch& l) const {
  if (geometry != nullptr) return geometry(l);
  return {dim3(l.grid.x, l.grid.y, l.grid.z), dim3(l.block.x, l.block.y, l.block.z),
          l.shared_bytes};
}

CudaKernels::CudaKernels(std::initializer_list<CudaKernel> kernels) {
  for (const CudaKernel& k : kernels) {
    if (k.fits != nullptr) fast_kernels().push_back(k);
    if (k.fits == nullptr) kernels_by_name().emplace(k.name, k);
  }
}

const CudaKernel* find_kernel(const Kernel& kernel) {
  const auto it = kernels_by_name().find(kernel.name);
  return it == kernels_by_name().end() || kernel.stands_in ? nullptr : &it->second;
}

bool uses_fast_kernels() {
  static const bool uses = [] {
    const char* value = std::getenv("SHADOWGRAPH_CUDA_FAST");
    return value != nullptr && *value != 0;
  }();
  return uses;
}

const CudaKernel* choose_kernel(const KernelLaunch& launch, bool fast, int most_preferred) {
  const CudaKernel* portable = find_kernel(*launch.kernel);
  if (!fast || portable == nullptr || !portable->takes(launch.args)) return portable;
  const CudaKernel* best = nullptr;
  for (const CudaKernel& kernel : fast_kernels()) {
    if (kernel.name != portable->name || kernel.preference > most_preferred) continue;
    if (!kernel.fits(launch)) continue;
    if (best == nullptr || kernel.preference > best->preference) best = &kernel;
  }
  return best != nullptr ? best : portable;
}

const void* find_function(std::string_view name) {
  const CudaKernel* kernel = find_kernel({.name = name});
  return kernel == nullptr ? nullptr : kernel->function;
}

std::vector<std::string_view> kernel_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, kernel] : kernels_by_name()) names.push_back(name);
  return names;
}

void LaunchedKernels::remember(const CudaKernel& kernel, const KernelLaunch& launch) {
  const std::scoped_lock lock(mutex_);
  known_.try_emplace(kernel.function, Signature{launch, kernel.geometry != nullptr});
}

KernelLaunch LaunchedKernels::launch_of(const cudaKernelNodeParams& params) const {
  KernelLaunch launch;
  launch.grid = {params.gridDim.x, params.gridDim.y, params.gridDim.z};
  launch.block = {params.blockDim.x, params.blockDim.y, params.blockDim.z};
  launch.shared_bytes = params.sharedMemBytes;
  const std::scoped_lock lock(mutex_);
  const auto it = known_.find(params.func);
  if (it == known_.end()) return launch;
  const KernelLaunch& like_launch = it->second.like;
  launch.kernel = like_launch.kernel;
  if (it->second.own_geometry) {
    launch.grid = like_launch.grid, launch.block = like_launch.block;
    launch.shared_bytes = like_launch.shared_bytes;
  }
  const KernelArgs& like = like_launch.args;
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

bool has_cuda_kernel(const Kernel& kernel) { return cuda::find_kernel(kernel) != nullptr; }

}  // namespace shadowgraph
