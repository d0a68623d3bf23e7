// The GPU of a build that has one.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "conformance/answers.h"
#ifdef SHADOWGRAPH_CUDA
#include "shadowgraph/cuda_device.h"
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

/// Says in one line why not, and that the CPU goes on. This process opens nothing: others that it
/// starts could not, then.
inline bool has_gpu() {
  const std::string why = why_no_device(open_gpu);
  if (!why.empty()) {
    fmt::print(stderr, "shadowgraph: {}: going on with the simulated device\n", why);
  }
  return why.empty();
}

}  // namespace shadowgraph::cli
