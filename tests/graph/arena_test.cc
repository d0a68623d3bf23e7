// Named buffers on the simulated device: where they lie, what the host may write, and what their
// shadow finds.
#include "shadowgraph/device/arena.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::arena_test {
namespace {

using Ints = std::vector<int32_t>;

SimOptions options_of(uint64_t seed, size_t memory_bytes) {
  SimOptions options;
  options.seed = seed, options.memory_bytes = memory_bytes;
  return options;
}

struct Fixture {
  explicit Fixture(uint64_t seed = 0)
      : device(options_of(seed, size_t{1} << 24)), arena(device, 1 << 16) {
    EXPECT_EQ(device.stream_create_with_flags(kStreamNonBlocking, &stream), DeviceError::kSuccess);
  }

  Buffer bind(const BufferSpec& spec) { return bind(arena, spec); }
  static Buffer bind(Arena to, const BufferSpec& spec) {
    std::vector<Buffer> buffers;
    const Status status = to.bind({&spec, 1}, &buffers);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return buffers.at(0);
  }
  Status write(const Buffer& b, int64_t first, const Ints& values) {
    return arena.write(b, first, std::span<const int32_t>(values));
  }
  void upload() {
    const Status status = arena.upload(stream);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  Ints read(const std::byte* p, size_t n) {
    Ints values(n);
    EXPECT_EQ(device.memcpy_async({.dst = values.data(), .src = p, .width = n * 4}, stream),
              DeviceError::kSuccess);
    EXPECT_EQ(device.stream_synchronize(stream), DeviceError::kSuccess);
    return values;
  }
  void memset(const std::byte* p, size_t bytes) {
    MemsetParams set;
    set.dst = const_cast<std::byte*>(p), set.width = bytes;
    EXPECT_EQ(device.memset_async(set, stream), DeviceError::kSuccess);
    EXPECT_EQ(device.stream_synchronize(stream), DeviceError::kSuccess);
  }
  /// "law field" of everything found since the last call.
  std::string found() {
    std::string s;
    const Status status = device.take_findings();
    for (const Finding& f : status.findings())
      s += (s.empty() ? "" : ", ") + f.id + ' ' + f.where.field;
    return s;
  }

  SimDevice device;
  Arena arena;
  StreamHandle stream;
};

BufferSpec ints(std::string name, int64_t n, Lifetime lifetime = Lifetime::kPerStep) {
  return {std::move(name), DType::kI32, {n}, lifetime};
}

TEST(Arena, BuffersLieInOrderAlignedAndApart) {
  Fixture f;
  const std::array specs{ints("kv_indptr", 65), ints("kv_indices", 1),
                         BufferSpec{"out", DType::kBF16, {4, 2, 8}, Lifetime::kOutput, 16}};
  std::vector<Buffer> b;
  ASSERT_TRUE(f.arena.bind(specs, &b).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b[0].data) % 256, 0);
  EXPECT_EQ(b[1].data - b[0].data, 512 + 256);
  EXPECT_EQ(b[2].data - b[1].data, 256 + 256);
  EXPECT_EQ(f.arena.used(), 768 + 512 + 512);
  EXPECT_EQ(b[2].bytes(), 128);
  EXPECT_EQ(b[2].rows(1, 2).first, 16);
  EXPECT_EQ(b[2].rows(1, 2).count, 32);
  EXPECT_EQ(b[2].view().stride[0], 16);
  EXPECT_EQ(b[2].view().at(3, 1, 7) - b[2].data, 126);
  ASSERT_NE(f.arena.find("kv_indices"), nullptr);
  EXPECT_EQ(f.arena.find("kv_indices")->data, b[1].data);
  EXPECT_EQ(f.arena.find("nothing"), nullptr);
}

TEST(Arena, NothingIsHalfBound) {
  Fixture f;
  f.bind(ints("A", 4));
  const size_t used = f.arena.used();
  std::vector<Buffer> b;
  const auto refused = [&](std::vector<BufferSpec> specs) {
    specs.insert(specs.begin(), ints("fine", 4));
    const Status status = f.arena.bind(specs, &b);
    EXPECT_EQ(f.arena.used(), used);
    EXPECT_EQ(f.arena.find("fine"), nullptr);
    EXPECT_TRUE(b.empty());
    std::string laws;
    for (const Finding& finding : status.findings()) laws += finding.id + ' ';
    return laws;
  };
  EXPECT_EQ(refused({ints("A", 4)}), "input.shape ");
  EXPECT_EQ(refused({ints("B", 4), ints("B", 4)}), "input.shape ");
  EXPECT_EQ(refused({ints("big", 1 << 14)}), "input.memory ");
  EXPECT_EQ(refused({ints("half", -1), ints("big", int64_t{1} << 61)}), "input.shape input.shape ");
  EXPECT_EQ(refused({{"rows", DType::kI32, {5}, Lifetime::kOutput, 2}}), "input.shape ");
  EXPECT_EQ(refused({{"deep", DType::kI32, {1, 1, 1, 1, 1, 1}}}), "input.shape ");
  EXPECT_NE(f.bind(ints("fine", 4)).data, nullptr);
}

TEST(Arena, WithoutMemoryNothingIsBound) {
  SimDevice device(options_of(0, 1 << 16));
  Arena arena(device, 1 << 20);
  std::vector<Buffer> b;
  const BufferSpec spec = ints("A", 4);
  const Status status = arena.bind({&spec, 1}, &b);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "graph.device_error");
}

TEST(Arena, GivesItsMemoryBackWhenItEnds) {
  constexpr size_t kMemory = 1 << 20;
  SimDevice device(options_of(0, kMemory));
  for (int i = 0; i < 16; ++i) {
    Arena arena(device, kMemory / 2);
    Fixture::bind(arena, ints("lens", 8));
  }
  EXPECT_EQ(device.take_findings().to_string(), "ok");
}

TEST(Arena, WhatTheHostWritesArrivesWithTheUpload) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Fixture f(seed);
    const Buffer lens = f.bind(ints("seq_lens", 4));
    for (int32_t step = 0; step < 4; ++step) {
      f.arena.begin_step();
      ASSERT_TRUE(f.write(lens, 0, {step, 1}).ok());
      ASSERT_TRUE(f.write(lens, 2, {2, 3}).ok());
      f.upload();
      ASSERT_TRUE(f.write(lens, 0, {9, 9}).ok()) << "waits until the copy has read the staging";
      EXPECT_EQ(f.read(lens.data, 4), (Ints{step, 1, 2, 3}));
    }
    EXPECT_EQ(f.found(), "") << seed;
  }
}

TEST(Arena, EndingABufferOrdersNothing) {
  Fixture f;
  StreamHandle other;
  ASSERT_EQ(f.device.stream_create_with_flags(kStreamNonBlocking, &other), DeviceError::kSuccess);
  const Buffer data = f.bind(ints("data", 4, Lifetime::kPersistent));
  Arena step = f.arena.scope("step");
  Fixture::bind(step, ints("lens", 4));
  const MemsetParams set{.dst = data.data, .width = data.bytes()};
  ASSERT_EQ(f.device.memset_async(set, f.stream), DeviceError::kSuccess);
  step.unbind();
  ASSERT_EQ(f.device.memset_async(set, other), DeviceError::kSuccess);
  EXPECT_EQ(f.device.device_synchronize(), DeviceError::kSuccess);
  EXPECT_EQ(f.found(), "mem.race data[0]");
}

TEST(Arena, StagingOfTheNextBufferHasNothingOfTheLast) {
  Fixture f;
  Arena step = f.arena.scope("step");
  ASSERT_TRUE(f.write(Fixture::bind(step, ints("lens", 4)), 0, {1, 2, 3, 4}).ok());
  step.unbind();
  const Buffer next = Fixture::bind(step, ints("next", 4));
  ASSERT_TRUE(f.write(next, 0, {5}).ok());
  const auto* staged = reinterpret_cast<const int32_t*>(f.arena.staged(next));
  EXPECT_EQ(Ints(staged, staged + 4), (Ints{5, -1, -1, -1}));
}

/// The host does not wait for the copies of the last upload.
struct Hasty : SimDevice {
  using SimDevice::SimDevice;
  DeviceError event_synchronize(EventHandle) override { return DeviceError::kSuccess; }
};

TEST(Arena, StagingIsWrittenOnlyOnceItsCopyWasSeenDone) {
  Hasty device(options_of(0, size_t{1} << 24));
  Arena arena(device, 1 << 16);
  const Buffer lens = Fixture::bind(arena, ints("lens", 4));
  const Ints values = {1, 2, 3, 4};
  const auto write = [&] { return arena.write(lens, 0, std::span<const int32_t>(values)); };
  ASSERT_TRUE(write().ok());
  ASSERT_TRUE(arena.upload(kLegacyStream).ok());
  EXPECT_EQ(device.settle(), DeviceError::kSuccess);
  EXPECT_EQ(device.take_findings().to_string(), "ok");
  ASSERT_TRUE(write().ok());
  Status early = device.take_findings();
  ASSERT_EQ(early.findings().size(), 1u);
  EXPECT_EQ(early.findings()[0].id, "mem.host_lifetime");
  ASSERT_TRUE(arena.upload(kLegacyStream).ok());
  EXPECT_EQ(device.device_synchronize(), DeviceError::kSuccess);
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(device.take_findings().to_string(), "ok");
}

TEST(Arena, WhatIsDiscardedIsNotCopied) {
  Fixture f;
  const Buffer lens = f.bind(ints("seq_lens", 4)), other = f.bind(ints("other", 1));
  ASSERT_TRUE(f.write(lens, 0, {1, 2, 3, 4}).ok());
  f.upload();
  ASSERT_TRUE(f.write(lens, 0, {9, 9, 9, 9}).ok());
  ASSERT_TRUE(f.write(other, 0, {7}).ok());
  f.arena.discard(lens);
  ASSERT_TRUE(f.write(lens, 1, {5, 6}).ok());
  f.upload();
  EXPECT_EQ(f.read(lens.data, 4), (Ints{1, 5, 6, 4}));
  EXPECT_EQ(f.read(other.data, 1), Ints{7});
  EXPECT_EQ(f.found(), "");
}

TEST(Arena, ABufferThatEndedIsNobodyElse) {
  Fixture f;
  Arena scope = f.arena.scope("step");
  const Buffer ended = Fixture::bind(scope, ints("A", 4));
  scope.unbind();
  const Buffer b = Fixture::bind(scope, ints("B", 4));
  ASSERT_EQ(b.data, ended.data);
  EXPECT_FALSE(f.write(ended, 0, {1}).ok());
  EXPECT_TRUE(f.write(b, 0, {1}).ok());
}

TEST(Arena, AFindingInStagingNamesItsBuffer) {
  std::string found;
  for (uint64_t seed = 1; seed <= 32; ++seed) {  // some schedule copies late
    Fixture f(seed);
    const Buffer a = f.bind(ints("A", 4));
    ASSERT_TRUE(f.write(a, 0, {1, 2, 3, 4}).ok());
    f.upload();
    *reinterpret_cast<int32_t*>(const_cast<std::byte*>(f.arena.staged(a))) = 9;
    EXPECT_EQ(f.device.stream_synchronize(f.stream), DeviceError::kSuccess);
    found += f.found() + '\n';
  }
  EXPECT_NE(found.find("mem.host_lifetime staging of A\n"), std::string::npos) << found;
}

TEST(Arena, WritesOutsideABufferAreRefused) {
  Fixture f;
  const Buffer a = f.bind(ints("A", 4));
  const Buffer b = f.bind(ints("B", 4));
  ASSERT_TRUE(f.write(a, 0, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(f.write(b, 0, {5, 6, 7, 8}).ok());
  const Status status = f.write(a, 3, {9, 9});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(),
            "input.shape: A[3] is the first of 2 elements, expected inside 4 elements");
  EXPECT_EQ(f.arena.retire(a, {2, -8}).to_string(),
            "input.shape: A[2] is a count of -8, expected inside 4 elements");
  EXPECT_FALSE(f.write(a, -1, {9}).ok());
  EXPECT_FALSE(f.write(a, INT64_MAX, {9}).ok());
  EXPECT_FALSE(f.arena.retire(a, {0, 5}).ok());
  EXPECT_FALSE(f.arena.set_owner(a, {5, 0}, 1).ok());
  f.upload();
  EXPECT_EQ(f.read(a.data, 4), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(f.read(b.data, 4), (Ints{5, 6, 7, 8}));
  EXPECT_EQ(f.found(), "");
}

TEST(Arena, AnOverrunIsInTheRedZone) {
  Fixture f;
  const Buffer a = f.bind(ints("A", 4));
  f.memset(a.data, 16);
  EXPECT_EQ(f.found(), "");
  f.memset(a.data, 17);
  EXPECT_EQ(f.found(), "mem.red_zone A");
}

TEST(Arena, WhatTheFillLeftOutIsStale) {
  Fixture f;
  const Buffer lens = f.bind(ints("seq_lens", 4));
  ASSERT_TRUE(f.write(lens, 0, {1, 2, 3, 4}).ok());
  f.upload();
  f.read(lens.data, 4);
  EXPECT_EQ(f.found(), "");
  f.arena.begin_step();
  ASSERT_TRUE(f.write(lens, 0, {5}).ok());
  ASSERT_TRUE(f.write(lens, 2, {6, 7}).ok());
  f.upload();
  f.read(lens.data, 1);
  f.read(lens.data + 8, 2);
  EXPECT_EQ(f.found(), "");
  f.read(lens.data, 4);
  EXPECT_EQ(f.found(), "mem.stale_input seq_lens");
}

TEST(Arena, TheRetiredTailIsForNobody) {
  Fixture f;
  const Buffer table = f.bind(ints("page_table", 8, Lifetime::kPersistent));
  ASSERT_TRUE(f.write(table, 0, Ints(8, 1)).ok());
  f.upload();
  EXPECT_EQ(f.read(table.data, 8), Ints(8, 1));
  ASSERT_TRUE(f.arena.retire(table, {6, 2}).ok());
  f.read(table.data, 6);
  EXPECT_EQ(f.found(), "");
  EXPECT_EQ(f.read(table.data, 8), (Ints{1, 1, 1, 1, 1, 1, -1, -1}));
  EXPECT_EQ(f.found(), "mem.stale_input page_table");
}

TEST(Arena, ScopesShareTheMemoryAndEndByThemselves) {
  Fixture f;
  Arena draft = f.arena.scope("draft");
  const Buffer outer = f.bind(ints("seq_lens", 4));
  const Buffer inner = Fixture::bind(draft.scope("step0"), ints("seq_lens", 4));
  EXPECT_EQ(inner.name, "draft/step0/seq_lens");
  EXPECT_EQ(f.arena.find("draft/step0/seq_lens")->data, inner.data);
  EXPECT_EQ(draft.find("seq_lens"), nullptr);
  f.memset(inner.data, 16);
  EXPECT_EQ(f.found(), "");
  draft.unbind();
  EXPECT_NE(f.arena.find("seq_lens"), nullptr);
  f.memset(inner.data, 16);
  EXPECT_EQ(f.found(), "mem.use_after_free draft/step0/seq_lens");
  EXPECT_FALSE(f.write(inner, 0, {1}).ok());
  EXPECT_EQ(Fixture::bind(draft, ints("other", 4)).data, inner.data) << "the place is free again";
  EXPECT_TRUE(f.write(outer, 0, {1}).ok());
}

// Slices: buckets of 4 and 2 rows of a storage of 8.
struct Slices : Fixture {
  explicit Slices(Lifetime lifetime = Lifetime::kPerStep)
      : storage(bind(arena.scope("storage"), ints("lens", 8, lifetime))),
        four(slice("four", 4, lifetime)),
        two(slice("two", 2, lifetime)) {}

  Buffer slice(const char* scope, int64_t rows, Lifetime lifetime = Lifetime::kPerStep) {
    EXPECT_TRUE(arena.scope(scope).share("lens", storage).ok());
    return bind(arena.scope(scope), ints("lens", rows, lifetime));
  }
  /// A step that fills the slice, as fills do.
  void fill(const Buffer& b, const Ints& values) {
    arena.begin_step();
    arena.begin_fill(b);
    EXPECT_TRUE(write(b, 0, values).ok());
    upload();
  }

  Buffer storage, four, two;
};

TEST(Arena, ASliceIsTheFirstElementsOfItsStorage) {
  Slices f;
  EXPECT_EQ(f.four.data, f.storage.data);
  EXPECT_EQ(f.two.data, f.storage.data);
  EXPECT_EQ(f.four.name, "four/lens");
  EXPECT_EQ(f.arena.find("four/lens")->numel(), 4);
  EXPECT_EQ(f.arena.storage_of(f.two)->name, "storage/lens");
  EXPECT_EQ(f.arena.storage_of(f.storage)->name, "storage/lens");
  f.fill(f.four, {1, 2, 3, 4});
  EXPECT_EQ(f.read(f.storage.data, 4), (Ints{1, 2, 3, 4}));
  f.fill(f.two, {5, 6});
  EXPECT_EQ(f.read(f.storage.data, 2), (Ints{5, 6}));
  EXPECT_EQ(f.arena.staged(f.four), f.arena.staged(f.two));
  EXPECT_EQ(f.found(), "");
}

TEST(Arena, WhatLeavesASliceIsRefusedThoughItsStorageGoesOn) {
  Slices f;
  EXPECT_FALSE(f.write(f.two, 1, {9, 9}).ok());
  EXPECT_FALSE(f.arena.retire(f.two, {0, 3}).ok());
  EXPECT_TRUE(f.write(f.storage, 1, {9, 9}).ok());
}

TEST(Arena, WhatAnotherBucketLeftIsStale) {
  Slices f;
  f.fill(f.four, {1, 2, 3, 4});
  f.read(f.four.data, 4);
  EXPECT_EQ(f.found(), "");
  f.fill(f.two, {5, 6});
  f.read(f.two.data, 2);
  EXPECT_EQ(f.found(), "");
  f.read(f.four.data, 4);
  EXPECT_EQ(f.found(), "mem.stale_input storage/lens");
  f.fill(f.four, {7, 8, 9});
  f.read(f.four.data, 3);
  EXPECT_EQ(f.found(), "");
  f.read(f.four.data, 4);
  EXPECT_EQ(f.found(), "mem.stale_input storage/lens");
}

TEST(Arena, AFillOfASliceForgetsThatOfAnother) {
  Slices f;
  f.fill(f.four, {1, 2, 3, 4});
  ASSERT_TRUE(f.write(f.four, 0, {9, 9, 9, 9}).ok());
  f.fill(f.two, {5, 6});
  EXPECT_EQ(f.read(f.two.data, 2), (Ints{5, 6}));
  ASSERT_EQ(f.arena.filled(f.four).size(), 1);
  EXPECT_EQ(f.arena.filled(f.four)[0].count, 2);
  ASSERT_TRUE(f.write(f.two, 0, {7, 8}).ok());
  f.arena.discard(f.four);
  f.upload();
  EXPECT_EQ(f.read(f.two.data, 2), (Ints{5, 6}));
}

TEST(Arena, AStorageOutlivesItsSlices) {
  Slices f;
  f.arena.scope("four").unbind();
  EXPECT_EQ(f.arena.find("four/lens"), nullptr);
  EXPECT_FALSE(f.write(f.four, 0, {1}).ok());
  f.fill(f.two, {5, 6});
  EXPECT_EQ(f.read(f.two.data, 2), (Ints{5, 6}));
  EXPECT_EQ(f.found(), "");
  EXPECT_EQ(f.bind(f.arena.scope("four"), ints("lens", 3)).data, f.storage.data);
}

TEST(Arena, SlicesEndWithTheirStorage) {
  Slices f;
  f.arena.scope("storage").unbind();
  EXPECT_EQ(f.arena.find("two/lens"), nullptr);
  EXPECT_EQ(f.arena.storage_of(f.two), nullptr);
  EXPECT_FALSE(f.write(f.two, 0, {1}).ok());
  EXPECT_FALSE(f.arena.scope("six").share("lens", f.storage).ok());
  const Buffer own = f.bind(f.arena.scope("two"), ints("lens", 2));
  EXPECT_EQ(f.arena.storage_of(own)->name, "two/lens");
}

TEST(Arena, ASliceOfASliceIsItsStorages) {
  Slices f;
  ASSERT_TRUE(f.arena.scope("six").share("lens", f.two).ok());
  EXPECT_EQ(f.bind(f.arena.scope("six"), ints("lens", 6)).data, f.storage.data);
}

TEST(Arena, ASliceIsLikeItsStorageAndFitsIn) {
  Slices f;
  Arena scope = f.arena.scope("odd");
  ASSERT_TRUE(scope.share("lens", f.storage).ok());
  const auto refused = [&](BufferSpec spec) {
    const std::vector<BufferSpec> specs = {ints("fine", 4), std::move(spec)};
    std::vector<Buffer> bound;
    const Status status = scope.bind(specs, &bound);
    EXPECT_EQ(scope.find("fine"), nullptr);
    return status.ok() ? "" : status.findings()[0].got;
  };
  EXPECT_EQ(refused({"lens", DType::kF32, {4}, Lifetime::kPerStep}), "another dtype");
  EXPECT_EQ(refused(ints("lens", 4, Lifetime::kScratch)), "another lifetime");
  EXPECT_EQ(refused({"lens", DType::kI32, {4}, Lifetime::kPerStep, 2}), "another granule");
  EXPECT_EQ(refused(ints("lens", 9)), "36 B");
  EXPECT_EQ(f.bind(scope, ints("lens", 8)).data, f.storage.data);
}

Progress nothing(LaunchFrame& /*frame*/) { return Progress::kDone; }
/// Row 0 reads the second row of 4.
void second_row(const LaunchFrame& frame, Footprint* spans) {
  spans->push_back({frame.pointer<int32_t>(0), 4, 4, 4, Access::kRead, 0});
}
const Kernel kReader{"reader", nothing, second_row};

TEST(Arena, ARowIsItsOwnersOrShared) {
  Fixture f;
  const Buffer kv = f.bind({"kv", DType::kI32, {2, 4}, Lifetime::kPersistent, 4});
  f.memset(kv.data, 12);
  f.read(kv.data, 3);
  EXPECT_EQ(f.found(), "mem.uninit_read kv") << "a granule is the whole row";
  f.memset(kv.data, kv.bytes());
  const std::array<OwnerId, 1> request{7};
  f.device.set_row_owners(request);
  const auto launch = [&] {
    KernelLaunch reader;
    reader.kernel = &kReader;
    reader.args.pointer(kv.data);
    EXPECT_EQ(f.device.launch_kernel(reader, f.stream), DeviceError::kSuccess);
    EXPECT_EQ(f.device.stream_synchronize(f.stream), DeviceError::kSuccess);
    return f.found();
  };
  ASSERT_TRUE(f.arena.set_owner(kv, kv.rows(0, 1), 8).ok());
  EXPECT_EQ(launch(), "");
  ASSERT_TRUE(f.arena.set_owner(kv, kv.rows(1, 1), 8).ok());
  EXPECT_EQ(launch(), "mem.wrong_region kv");
  ASSERT_TRUE(f.arena.add_owner(kv, kv.rows(1, 1), 7).ok());
  EXPECT_EQ(launch(), "");
}

}  // namespace
}  // namespace shadowgraph::arena_test
