// Calls of the host's memory on a device: they have the CPU's bits, and what a device gets wrong
// beside its results is found.
#include "check/device_calls.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::device_calls_test {
namespace {

/// Two requests of 3 and 2 keys in pages of 2, out of order; one KV head of dimension 4.
struct Decode {
  std::vector<float> q = std::vector<float>(2 * 4), pool = std::vector<float>(4 * 2 * 4 * 2);
  std::vector<float> out = std::vector<float>(2 * 4, -1), lse = std::vector<float>(2, -1);
  std::vector<int32_t> table = {2, 0, 3, -1}, lens = {3, 2};
  PagedAttention call;

  Decode() {
    std::iota(q.begin(), q.end(), -4.f);
    std::iota(pool.begin(), pool.end(), -20.f);
    for (float& x : pool) x /= 16;
    call.q = TensorView(q.data(), DType::kF32, {2, 1, 4});
    call.cache = KvCache::nhd(TensorView(pool.data(), DType::kF32, {4, 2, 1, 4}),
                              TensorView(pool.data() + 32, DType::kF32, {4, 2, 1, 4}));
    call.pages = PageTable::dense(table, 2, lens);
    call.params = {
        .num_qo_heads = 1, .num_kv_heads = 1, .head_dim_qk = 4, .head_dim_vo = 4, .sm_scale = 0.5f};
    call.out = TensorView(out.data(), DType::kF32, {2, 1, 4});
    call.lse = NaturalLse(TensorView(lse.data(), DType::kF32, {2, 1}));
  }
};

TEST(DeviceCalls, HaveTheBitsOfTheCpu) {
  Decode here, there;
  ASSERT_TRUE(attention_with_kvcache(here.call).ok());
  SimDevice device;
  DeviceCalls calls(device);
  const Status status = calls.run(there.call);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(there.out, here.out);
  EXPECT_EQ(there.lse, here.lse);
  const Status seen = device.take_findings();
  EXPECT_TRUE(seen.ok()) << seen.to_string();
}

TEST(DeviceCalls, WhatTheCpuRefusesIsRefused) {
  Decode d;
  d.table[0] = 4;
  SimDevice device;
  DeviceCalls calls(device);
  EXPECT_EQ(calls.run(d.call).to_string(), attention_with_kvcache(d.call).to_string());
  EXPECT_EQ(d.out[0], -1);
}

// Kernels over one array of two: the first is said to be written.
void says_first(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<int32_t>(0), 0, 2, 4, Access::kRead});
  spans->push_back({f.pointer<int32_t>(0), 0, 1, 4, Access::kWrite});
}
Progress writes_both(LaunchFrame& f) {
  f.pointer<int32_t>(0)[0] = f.pointer<int32_t>(0)[1] = 7;
  return Progress::kDone;
}
Progress counts(LaunchFrame& f) {
  static int32_t runs = 0;
  f.pointer<int32_t>(0)[0] = ++runs;
  return Progress::kDone;
}

Status run_over(const Kernel& kernel, std::vector<int32_t>* values) {
  SimDevice device;
  DeviceCalls calls(device);
  KernelLaunch launch;
  launch.kernel = &kernel;
  launch.args.pointer(values->data());
  return calls.run(launch);
}

TEST(DeviceCalls, AWriteThatTheFootprintDoesNotNameIsFound) {
  static constinit const Kernel kSlip{.name = "slip", .body = writes_both, .footprint = says_first};
  std::vector<int32_t> values = {1, 2};
  const Status status = run_over(kSlip, &values);
  ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "num.write_set");
  EXPECT_EQ(values, (std::vector<int32_t>{1, 2}));
}

TEST(DeviceCalls, AReplayThatLeavesOtherBytesIsFound) {
  static constinit const Kernel kSlip{.name = "slip", .body = counts, .footprint = says_first};
  std::vector<int32_t> values = {1, 2};
  const Status status = run_over(kSlip, &values);
  ASSERT_EQ(status.findings().size(), 1u) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "num.bits");
}

}  // namespace
}  // namespace shadowgraph::device_calls_test
