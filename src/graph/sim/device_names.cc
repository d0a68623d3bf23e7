// The names of errors and calls, from their lists.
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

std::string_view name_of(DeviceError error) {
  switch (error) {
#define SG_DEVICE_ERROR(name, number) \
  case DeviceError::k##name:          \
    return (number) == 0 ? "cudaSuccess" : "cudaError" #name;
#include "shadowgraph/device/device_errors.inc"
#undef SG_DEVICE_ERROR
  }
  return "cudaErrorUnknown";
}

std::string_view name_of(OtherCall call) {
  switch (call) {
#define SG_OTHER_CALL(name, when) \
  case OtherCall::k##name:        \
    return "cuda" #name;
#include "shadowgraph/device/device_calls.inc"
#undef SG_OTHER_CALL
  }
  return {};
}

}  // namespace shadowgraph
