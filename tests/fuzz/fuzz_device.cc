// Whatever the calls, over streams, events, captures and threads: no crash, and the laws device.*.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fuzz/device/device_program.h"

using namespace shadowgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::vector<uint32_t> recorded(data + 1, data + size);
  Choices choices{std::span<const uint32_t>(recorded)};
  const DeviceProgram program = generate_device_program(choices);
  DeviceCoverage coverage;
  const Status status = check_device_program(program, data[0], &coverage);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n%s\n", program.to_string().c_str(), status.to_string().c_str());
  std::abort();
}
