// All programs of the small scope: 2 streams, 1 event, 3 modes x {kernel, event record and wait,
// begin and end, memset, alloc}. SHADOWGRAPH_DEVICE_CALLS says up to how many calls (default 4;
// the long test runs 5).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fuzz/device_program.h"

namespace shadowgraph {
namespace {

int max_calls() {
  const char* text = std::getenv("SHADOWGRAPH_DEVICE_CALLS");
  return text == nullptr ? 4 : std::atoi(text);
}

struct Shard {
  uint64_t programs = 0;
  Status findings;
  DeviceCoverage coverage;
};

void walk(size_t first, Shard* shard) {
  shard->programs = for_each_small_program(first, max_calls(), [&](const DeviceProgram& program) {
    shard->findings.add(check_device_program(program, 0, &shard->coverage));
    return shard->findings.findings().size() < 10;
  });
}

TEST(DeviceExhaustive, EveryProgramKeepsTheLaws) {
  const size_t firsts = small_scope().size();
  std::vector<Shard> shards(firsts);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    workers.emplace_back([&] {
      for (size_t first = next++; first < firsts; first = next++) walk(first, &shards[first]);
    });
  for (std::thread& worker : workers) worker.join();

  Shard all;
  for (Shard& shard : shards) {
    all.programs += shard.programs;
    all.findings.add(std::move(shard.findings));
    all.coverage.add(shard.coverage);
  }
  std::printf("%llu programs of up to %d calls\n", static_cast<unsigned long long>(all.programs),
              max_calls());
  for (const auto& [code, calls] : all.coverage.codes)
    std::printf("  %-36s %10lld calls\n", std::string(name_of(code)).c_str(),
                static_cast<long long>(calls));
  EXPECT_EQ(all.findings.to_string(), "ok");

  // Every code of the scope, and every transition of a capture's status.
  using enum DeviceError;
  std::vector<DeviceError> expected = {kSuccess,
                                       kInvalidValue,
                                       kIllegalState,
                                       kStreamCaptureUnsupported,
                                       kStreamCaptureInvalidated,
                                       kStreamCaptureUnmatched,
                                       kStreamCaptureIsolation};
  if (max_calls() >= 4) expected.push_back(kStreamCaptureMerge);
  if (max_calls() >= 5) expected.push_back(kStreamCaptureUnjoined);
  for (const DeviceError code : expected)
    EXPECT_TRUE(all.coverage.codes.contains(code)) << name_of(code);
  using enum CaptureStatus;
  for (const auto& step : {std::pair{kNone, kActive},
                           {kActive, kNone},
                           {kActive, kInvalidated},
                           {kInvalidated, kNone}})
    EXPECT_TRUE(all.coverage.transitions.contains(step));
}

}  // namespace
}  // namespace shadowgraph
