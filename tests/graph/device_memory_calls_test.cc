// Memory as the device's calls give it, move it and take it back: which memory a call takes, when
// it waits, and what a fault or a lack of memory does to it.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::device_memory_calls_test {
namespace {

using enum DeviceError;

class DeviceMemoryCalls : public CaptureTest {
 protected:
  /// Work runs when it is waited for and not before.
  void make_lazy() {
    SimOptions options;
    options.choose = [this](uint32_t bound) { return waiting ? 0 : bound - 1; };
    make(options);
    waiting = false;
    s = stream();
  }
  /// Without room for more than a few small allocations.
  void make_small() {
    SimOptions options;
    options.memory_bytes = 1 << 14;
    make(options);
    s = stream();
  }
  int32_t* managed(size_t n) {
    void* q = nullptr;
    EXPECT_EQ(api->malloc_managed(n * 4, &q), kSuccess);
    return static_cast<int32_t*>(q);
  }
  int32_t* pinned(size_t n) {
    void* q = nullptr;
    EXPECT_EQ(api->malloc_host(n * 4, &q), kSuccess);
    return static_cast<int32_t*>(q);
  }
  KernelLaunch wild() const {
    return {&k::wild, {}, {.x = 32}, 0, k::args(p, int64_t{1} << 44), false};
  }

  bool waiting = true;
};

TEST_F(DeviceMemoryCalls, NoBytesAreNoAddressButInManagedMemory) {
  s = stream();
  void* q = p;
  EXPECT_EQ(api->malloc(0, &q), kSuccess);
  EXPECT_EQ(q, nullptr);
  q = p;
  EXPECT_EQ(api->malloc_async(0, s, &q), kSuccess);
  EXPECT_EQ(q, nullptr);
  q = p;
  EXPECT_EQ(api->malloc_managed(0, &q), kInvalidValue);
  EXPECT_EQ(q, p);
}

TEST_F(DeviceMemoryCalls, WithoutMemoryNothingIsAllocated) {
  make_small();
  void* q = p;
  EXPECT_EQ(api->malloc(1 << 20, &q), kMemoryAllocation);
  EXPECT_EQ(q, nullptr);
  q = p;
  EXPECT_EQ(api->malloc_async(1 << 20, s, &q), kMemoryAllocation);
  EXPECT_EQ(q, nullptr);
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  q = p;
  EXPECT_EQ(api->malloc_async(1 << 20, a, &q), kMemoryAllocation);
  EXPECT_EQ(q, nullptr);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(nodes(), 0u);
}

TEST_F(DeviceMemoryCalls, EachFreeTakesWhatItsAllocationGave) {
  int32_t *m = managed(1), *h = pinned(1);
  int32_t local = 0;
  EXPECT_EQ(api->free(nullptr), kSuccess);
  EXPECT_EQ(api->free_host(nullptr), kSuccess);
  EXPECT_EQ(api->free(&local), kInvalidValue);
  EXPECT_EQ(api->free(p + 1), kInvalidValue) << "inside an allocation";
  EXPECT_EQ(api->free(h), kInvalidValue);
  EXPECT_EQ(api->free_host(m), kInvalidValue);
  EXPECT_EQ(api->free_host(p), kInvalidValue);
  EXPECT_EQ(api->free(m), kSuccess);
  EXPECT_EQ(api->free_host(h), kSuccess);
  EXPECT_EQ(api->free(m), kInvalidValue);
}

TEST_F(DeviceMemoryCalls, AStreamOrderedFreeTakesWhatTheDeviceAloneHas) {
  s = stream();
  int32_t local = 0;
  EXPECT_EQ(api->free_async(nullptr, s), kSuccess);
  EXPECT_EQ(api->free_async(&local, s), kInvalidValue);
  EXPECT_EQ(api->free_async(managed(1), s), kInvalidValue);
  EXPECT_EQ(api->free_async(pinned(1), s), kInvalidValue);
  ASSERT_EQ(api->malloc_async(4, s, &pool_block), kSuccess);
  EXPECT_EQ(api->free_async(pool_block, s), kSuccess);
  EXPECT_EQ(api->free_async(pool_block, s), kInvalidValue);
  EXPECT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceMemoryCalls, AnInvalidatedCaptureTakesNoFree) {
  s = stream();
  ASSERT_EQ(api->malloc_async(4, s, &pool_block), kSuccess);
  const StreamHandle a = capturing(CaptureMode::kGlobal, false);
  EXPECT_EQ(api->stream_query(a), kStreamCaptureUnsupported);
  EXPECT_EQ(api->free_async(pool_block, a), kStreamCaptureInvalidated);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
  EXPECT_EQ(api->free_async(pool_block, s), kSuccess);
}

TEST_F(DeviceMemoryCalls, AGraphsAllocationIsFreedOnceByAnyFree) {
  for (const bool in_stream_order : {false, true}) {
    make();
    s = stream();
    ASSERT_EQ(api->graph_create(&g), kSuccess);
    NodeParams params = MemAllocParams{64, nullptr};
    NodeHandle n;
    ASSERT_EQ(api->graph_add_node(g, {}, params, &n), kSuccess);
    void* q = std::get<MemAllocParams>(params).address;
    const auto free_it = [&] { return in_stream_order ? api->free_async(q, s) : api->free(q); };
    EXPECT_EQ(free_it(), kInvalidValue) << "no launch made it yet";
    ASSERT_EQ(api->graph_launch(instantiated(), s), kSuccess);
    EXPECT_EQ(api->graph_launch(made, s), kInvalidValue) << "it lives";
    EXPECT_EQ(free_it(), kSuccess);
    EXPECT_EQ(free_it(), kInvalidValue);
    EXPECT_EQ(api->graph_launch(made, s), kSuccess) << "and is made again";
    EXPECT_EQ(free_it(), kSuccess);
    EXPECT_EQ(api->device_synchronize(), kSuccess);
    api->check_leaks();
    EXPECT_EQ(found(), "");
  }
}

TEST_F(DeviceMemoryCalls, AFreeThatWaitsMeetsTheFaultOfPendingWork) {
  make_lazy();
  ASSERT_EQ(api->launch_kernel(wild(), s), kSuccess);
  EXPECT_EQ(api->peek_at_last_error(), kSuccess);
  waiting = true;
  EXPECT_EQ(api->free(p), kIllegalAddress);
  EXPECT_EQ(api->free(p), kIllegalAddress) << "it stays";
  EXPECT_EQ(found(), "mem.out_of_bounds");
}

TEST_F(DeviceMemoryCalls, EveryCallThatWaitsTellsTheFaultThatItMeets) {
  const std::pair<const char*, std::function<DeviceError()>> calls[] = {
      {"device", [&] { return api->device_synchronize(); }},
      {"stream", [&] { return api->stream_synchronize(s); }},
      {"event", [&] { return api->event_synchronize(e); }},
      {"copy", [&] { return api->memcpy({.dst = &host, .src = p, .width = 4}); }},
      {"copy in stream order",
       [&] { return api->memcpy_async({.dst = &host, .src = p, .width = 4}, s); }},
      {"every order", [&] {
         EXPECT_EQ(api->launch_every_order(made, s), 0u);
         return api->peek_at_last_error();
       }}};
  for (const auto& [name, call] : calls) {
    make_lazy();
    waiting = true;
    ASSERT_EQ(api->graph_create(&g), kSuccess);
    instantiated();
    waiting = false;
    ASSERT_EQ(api->launch_kernel(wild(), s), kSuccess);
    ASSERT_EQ(api->event_record(e = event(), s), kSuccess);
    ASSERT_EQ(wait(s, kLegacyStream), kSuccess);
    waiting = true;
    EXPECT_EQ(call(), kIllegalAddress) << name;
    EXPECT_EQ(add(s, 1), kIllegalAddress) << name;
    EXPECT_EQ(found(), "mem.out_of_bounds") << name;
  }
}

TEST_F(DeviceMemoryCalls, APageableSourceMayChangeOnceTheCallReturned) {
  make_lazy();
  std::vector<int32_t> rows = {1, 2, 3, 4, 5, 6};
  const MemcpyParams copy{
      .dst = p, .src = rows.data(), .width = 8, .height = 2, .dst_pitch = 16, .src_pitch = 12};
  ASSERT_EQ(api->memcpy_async(copy, s), kSuccess);
  ASSERT_EQ(api->memcpy_async({.dst = p + 2, .src = &rows[5], .width = 4}, s), kSuccess);
  rows.assign(6, -1);
  waiting = true;
  std::array<int32_t, 6> seen{};
  EXPECT_EQ(api->stream_synchronize(s), kSuccess);
  EXPECT_EQ(api->memcpy({.dst = seen.data(), .src = p, .width = 24}), kSuccess);
  EXPECT_EQ(seen, (std::array<int32_t, 6>{1, 2, 6, 0, 4, 5}));
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceMemoryCalls, ACopyBetweenPageableMemoryIsDoneWhenTheCallReturns) {
  make_lazy();
  int32_t from = 7, to = 0;
  EXPECT_EQ(api->memcpy_async({.dst = &to, .src = &from, .width = 4}, s), kSuccess);
  EXPECT_EQ(to, 7);
}

TEST_F(DeviceMemoryCalls, ASynchronousCopyWaitsWhereTheHostReachesASide) {
  for (const bool shared_source : {false, true}) {
    make_lazy();
    int32_t* shared = shared_source ? managed(1) : pinned(1);
    *shared = 5;
    int32_t *to = shared_source ? p : shared, *from = shared_source ? shared : p;
    ASSERT_EQ(api->memcpy({.dst = to, .src = from, .width = 4}), kSuccess);
    EXPECT_EQ(*shared, shared_source ? 5 : 0);
    EXPECT_EQ(*p, shared_source ? 5 : 0);
  }
  make_lazy();
  waiting = true;
  ASSERT_EQ(add(kLegacyStream, 3), kSuccess);
  ASSERT_EQ(api->device_synchronize(), kSuccess);
  waiting = false;
  ASSERT_EQ(api->memcpy({.dst = p + 4, .src = p, .width = 4}), kSuccess);
  EXPECT_EQ(p[4], 0) << "between the device's own, the call does not wait";
  host = 8;
  ASSERT_EQ(api->memcpy({.dst = p + 5, .src = &host, .width = 4}), kSuccess);
  EXPECT_EQ(p[5], 0) << "nor where what is pageable was staged";
  host = 9;
  waiting = true;
  ASSERT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(p[4], 3);
  EXPECT_EQ(p[5], 8);
}

TEST_F(DeviceMemoryCalls, ASymbolTakesItsBytesAndNoMore) {
  const std::array<int32_t, 5> values{1, 2, 3, 4, 5};
  EXPECT_EQ(api->memcpy_to_symbol(values.data(), 20), kInvalidValue);
  EXPECT_EQ(api->memcpy_to_symbol(values.data(), 16), kSuccess);
  EXPECT_EQ(api->memcpy_to_symbol(values.data(), 4), kSuccess);
  EXPECT_EQ(api->device_synchronize(), kSuccess);
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceMemoryCalls, ASetTakesTheDevicesMemoryAlone) {
  s = stream();
  for (void* wrong : {static_cast<void*>(nullptr), static_cast<void*>(&host)}) {
    EXPECT_EQ(api->memset_async({.dst = wrong, .width = 4}, s), kInvalidValue);
    EXPECT_EQ(api->memset({.dst = wrong, .width = 4}), kInvalidValue);
  }
  EXPECT_EQ(api->memset_async({.dst = nullptr, .width = 0}, s), kSuccess) << "of nothing";
  EXPECT_EQ(api->memset_async({.dst = nullptr, .width = 4, .height = 0}, s), kSuccess);
  EXPECT_EQ(api->memcpy_async({.dst = nullptr, .width = 4, .height = 0}, s), kSuccess);
  EXPECT_EQ(api->output_ticket(), 1u) << "the fixture's own alone";
  EXPECT_EQ(host, 0);
}

TEST_F(DeviceMemoryCalls, OnlyManagedMemoryIsAttachedAndPrefetched) {
  s = stream();
  int32_t* m = managed(4);
  EXPECT_EQ(api->stream_attach_mem_async(s, m), kSuccess);
  EXPECT_EQ(api->stream_attach_mem_async(s, p), kInvalidValue);
  EXPECT_EQ(api->stream_attach_mem_async(s, &host), kInvalidValue);
  EXPECT_EQ(api->mem_prefetch_async(m + 1, 4, s), kSuccess);
  EXPECT_EQ(api->mem_prefetch_async(m, 0, s), kInvalidValue);
  EXPECT_EQ(api->mem_prefetch_async(p, 4, s), kInvalidValue);
  EXPECT_EQ(api->mem_prefetch_async(&host, 4, s), kInvalidValue);
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  EXPECT_EQ(api->stream_attach_mem_async(a, m), kStreamCaptureUnsupported);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
}

TEST_F(DeviceMemoryCalls, TheShadowOfABufferCostsNineBytesAGranule) {
  EXPECT_EQ(api->shadow_cost(p).arena_bytes, 64u);
  EXPECT_EQ(api->shadow_cost(p + 3).shadow_bytes, 16u * 9u);
  api->declare_buffer({p + 8, 16, 16, Lifetime::kPersistent, "row"});
  EXPECT_EQ(api->shadow_cost(p + 8).arena_bytes, 16u);
  EXPECT_EQ(api->shadow_cost(p + 8).shadow_bytes, 9u);
  EXPECT_EQ(api->shadow_cost(&host).arena_bytes, 0u);
  ASSERT_EQ(api->free(p), kSuccess);
  EXPECT_EQ(api->shadow_cost(p).arena_bytes, 0u);
}

}  // namespace
}  // namespace shadowgraph::device_memory_calls_test
