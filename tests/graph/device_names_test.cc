// Every error and every call is known by CUDA's name.
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "shadowgraph/device/device_api.h"

namespace shadowgraph::device_names_test {
namespace {

TEST(DeviceNames, AreCudasOwnForEveryError) {
#define SG_DEVICE_ERROR(name, number) \
  EXPECT_EQ(name_of(DeviceError::k##name), (number) == 0 ? "cudaSuccess" : "cudaError" #name);
#include "shadowgraph/device/device_errors.inc"
#undef SG_DEVICE_ERROR
  EXPECT_EQ(name_of(static_cast<DeviceError>(-7)), "cudaErrorUnknown");
}

TEST(DeviceNames, AreCudasOwnForEveryOtherCall) {
  std::set<std::string_view> names;
#define SG_OTHER_CALL(name, when)                       \
  EXPECT_EQ(name_of(OtherCall::k##name), "cuda" #name); \
  EXPECT_TRUE(names.insert(name_of(OtherCall::k##name)).second);
#include "shadowgraph/device/device_calls.inc"
#undef SG_OTHER_CALL
}

}  // namespace
}  // namespace shadowgraph::device_names_test
