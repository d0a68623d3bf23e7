// A device call's error as a Status: graph.device_error.
#pragma once

#include <string>
#include <string_view>

#include "core/laws.h"
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

/// call: "cudaGraphLaunch".
inline Status device_status(std::string_view call, DeviceError error) {
  Status status;
  judged("graph.device_error");
  if (error != DeviceError::kSuccess) {
    status.add(make_finding(
        "graph.device_error", at(std::string(call)), "cudaSuccess",
        std::string(name_of(error)) + " (" + std::to_string(static_cast<int32_t>(error)) + ")"));
  }
  return status;
}

}  // namespace shadowgraph
