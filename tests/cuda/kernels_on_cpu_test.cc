// The GPU's bodies have the bits of the CPU's, run by fibers: single calls over random memory, and
// whole histories of every backend, eagerly and replayed.
#include <gtest/gtest.h>

#include "check/twin_device.h"
#include "cuda/gpu_on_cpu.h"
#include "fuzz/call/generate.h"
#include "fuzz/fuzz.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph::kernels_on_cpu_test {
namespace {

TEST(GpuBodies, CallsHaveTheBitsOfTheCpuEagerlyAndReplayed) {
  GpuOnCpu device;
  DeviceCalls calls(device);
  RunOptions options;
  options.device = &calls;
  int ran = 0;
  for (uint64_t i = 0; ran < 200; ++i) {
    const Case x = fuzz_case(20261, i);
    if (!has_launch(x)) continue;
    ++ran;
    const Status status = check_case(x, options);
    ASSERT_TRUE(status.ok()) << i << ": " << x.to_string() << '\n'
                             << status.to_string() << device.take_findings().to_string();
  }
  const Status seen = device.take_findings();
  EXPECT_TRUE(seen.ok()) << seen.to_string();
  for (const char* name : {"attention_with_kvcache", "attention_varlen", "store_kv", "merge_state"})
    EXPECT_GT(gpu_bodies_run(name), 0) << name;
}

TEST(GpuBodies, HistoriesOfEveryBackendRunOnThem) {
  GpuOnCpu device({.seed = 0, .choose = {}, .checked = false});
  HistoryOptions options;
  options.make_device = [&](const SimOptions& o) {
    return std::make_unique<TwinDevice>(o, device, has_gpu_body);
  };
  int judged = 0;
  for (const Backend* backend : all_backends()) {
    options.backends = {backend};
    for (uint64_t i = 0; i < 1; ++i) {
      Choices choices = history_choices(20261, i, options.backends);
      const History history = generate_history(choices, options);
      const HistoryResult result = run_history(history, choices, {});
      EXPECT_TRUE(result.findings.ok()) << history.to_string() << '\n'
                                        << result.findings.to_string();
      judged += result.judged;
    }
  }
  EXPECT_GT(judged, 0);
  for (const char* name : {"gather_table", "store_kv", "attention_with_kvcache"})
    EXPECT_GT(gpu_bodies_run(name), 0) << name;
}

}  // namespace
}  // namespace shadowgraph::kernels_on_cpu_test
