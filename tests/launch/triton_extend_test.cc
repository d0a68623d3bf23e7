// Triton's extend as a launch: prefix and own keys merged are the whole call, and what a shadow
// sees of lists and masks that lead astray.
#include <algorithm>

#include "launch/tile_world.h"
#include "launch/triton_launch.h"

namespace shadowgraph::triton_extend_test {
namespace {

using Longs = std::vector<int64_t>;

/// The keys of a step's own tokens, whole in the pool too for the reference; lists have the prefix
/// alone, or as much of it as a window reaches.
class ExtendWorld : public TileWorld {
 public:
  explicit ExtendWorld(TileShape s = {}) : TileWorld(with_prefixes(std::move(s))) {
    own_k = bind("own_k", DType::kF32, {tokens() + 2, kKvHeads, kDimQk}, kDimQk);
    own_v = bind("own_v", DType::kF32, {tokens() + 2, kKvHeads, kDimVo}, kDimVo);
    stream().synchronize();
    const auto slot_list = elements<int32_t>(kv_indices);
    Ints indptr{0}, offsets;
    Longs listed, mask_starts{0};
    for (size_t r = 0; r < shape.requests.size(); ++r) {
      const auto [queries, all] = shape.requests[r];
      const int32_t prefix = all - queries;
      const int32_t first = shape.window ? std::max(0, prefix - 20) : 0;
      const auto at = static_cast<size_t>(ends()[r]);
      for (int32_t t = first; t < prefix; ++t)
        listed.push_back(slot_list[at + static_cast<size_t>(t)]);
      for (int32_t m = 0; m < queries; ++m)
        copy_own(starts()[r] + m, slot_list[at + static_cast<size_t>(prefix + m)]);
      offsets.push_back(first);
      indptr.push_back(static_cast<int32_t>(listed.size()));
      mask_starts.push_back(mask_starts.back() + queries * all);
    }
    slots = bind_values("slots", DType::kI64, listed);
    prefix_indptr = bind_values("prefix_indptr", DType::kI32, indptr);
    window_kv_offsets = bind_values("window_kv_offsets", DType::kI32, offsets);
    byte_indptr = bind_values("byte_indptr", DType::kI64, mask_starts);
    bytes_mask = bind("custom_mask", DType::kU8, {mask_starts.back()});
    if (shape.masked) make_mask(mask_starts);
    for (const auto& [queries, all] : shape.requests) {
      for (int32_t m = 0; m < queries; ++m) parts.push_back(all > queries ? 2 : 1);
    }
  }

  TritonExtend call() const {
    TritonExtend c;
    c.q = q.view(), c.k = own_k.view(), c.v = own_v.view();
    c.cache = cache();
    c.qo_indptr = elements<int32_t>(qo_indptr);
    c.kv_indptr = elements<int32_t>(prefix_indptr);
    c.kv_indices = elements<int64_t>(slots);
    if (shape.masked) {
      c.custom_mask = elements<uint8_t>(bytes_mask);
      c.mask_indptr = elements<int64_t>(byte_indptr);
    }
    if (shape.window) c.window_kv_offsets = elements<int32_t>(window_kv_offsets);
    c.params = params();
    c.out = out.view(), c.lse = NaturalLse(lse.view());
    return c;
  }
  template <class Check>
  void run(const TritonExtend& c, Check check) {
    run_launches([&](Stream& s) { s.launch(triton_extend_launch(c)); }, check);
  }

  Buffer own_k, own_v, slots, prefix_indptr, window_kv_offsets, byte_indptr, bytes_mask;
  std::vector<int32_t> parts;

 private:
  static TileShape with_prefixes(TileShape s) {
    s.requests = {{3, 40}, {2, 2}, {4, 150}, {0, 5}, {1, 33}};
    return s;
  }
  void copy_own(int64_t row, int64_t slot) {
    for (const auto& [from, to] : {std::pair(&k, &own_k), {&v, &own_v}}) {
      const Bytes all = bytes(*from);
      const int64_t count = from->numel() / from->shape[0], size = count * 4;
      write_bytes(*to, row * count,
                  Bytes(&all[static_cast<size_t>(slot * size)],
                        &all[static_cast<size_t>(slot * size)] + size),
                  count);
    }
  }
  /// Own columns alone are written: nothing reads the others. The reference sees all of the prefix.
  void make_mask(const Longs& mask_starts) {
    std::vector<uint8_t> bits(static_cast<size_t>(mask.numel()));
    for (size_t r = 0; r < shape.requests.size(); ++r) {
      const auto [queries, all] = shape.requests[r];
      const auto first = static_cast<size_t>(elements<int32_t>(mask_indptr)[r]);
      for (int32_t m = 0; m < queries; ++m) {
        for (int32_t c = 0; c < all; ++c) {
          const auto sees = static_cast<uint8_t>(c < all - queries ? 1 : rng_.below(2));
          const auto pair =
              static_cast<size_t>(m) * static_cast<size_t>(all) + static_cast<size_t>(c);
          bits[first + pair / 8] = static_cast<uint8_t>(bits[first + pair / 8] | sees << pair % 8);
          if (c >= all - queries)
            write(bytes_mask, mask_starts[r] + static_cast<int64_t>(pair),
                  std::vector<uint8_t>{sees});
        }
      }
    }
    write(mask, 0, bits);
  }
};

TEST(TritonExtendLaunch, PrefixAndOwnKeysAreTheWholeCall) {
  for (int options = 0; options < 16; ++options) {
    const auto has = [options](int bit) { return (options >> bit & 1) != 0; };
    TileShape shape{.window = has(0), .causal = has(1)};
    shape.masked = has(2), shape.sinks = has(3);
    ExtendWorld w(shape);
    w.set_owners();
    SCOPED_TRACE(options);
    w.run(w.call(), [&] {
      EXPECT_EQ(w.found(), "ok");
      w.expect_whole(w.parts, LseSink::kExcluded);
      w.expect_padding(std::byte{0x11});
    });
  }
}

TEST(TritonExtendLaunch, OwnKeysAreNotReadFromThePool) {
  ExtendWorld w;
  // What is in no list is somebody else's.
  const auto listed = ExtendWorld::elements<int64_t>(w.slots);
  for (int64_t slot = 0; slot <= w.keys(); ++slot)
    if (std::ranges::find(listed, slot) == listed.end()) w.set_owner(w.k, slot, 99);
  const std::vector<OwnerId> rows = {1, 2, 3, 4, 5};
  w.device.set_row_owners(rows);
  w.run(w.call(), [&] { EXPECT_EQ(w.found(), "ok"); });
}

TEST(TritonExtendLaunch, QueriesPastTheGridAreLeftAlone) {
  ExtendWorld w;
  TritonExtend call = w.call();
  w.run(call, [&] { EXPECT_EQ(w.found(), "ok"); });
  const Bytes whole = row_of(w, w.out, 6);
  call.max_extend_len = 2;
  w.run(call, [&] {
    EXPECT_EQ(w.found(), "ok");
    EXPECT_EQ(row_of(w, w.out, 6), whole) << "the second of request 2";
    for (const int64_t row : {2, 7, 8}) EXPECT_EQ(row_of(w, w.out, row)[0], std::byte{0x11}) << row;
  });
}

TEST(TritonExtendLaunch, WhatLeadsAstrayIsFoundAndItsRowsAreLost) {
  struct Fault {
    const char* found;
    void (*plant)(ExtendWorld& w);
  };
  const Fault faults[] = {
      {": k[", [](ExtendWorld& w) { w.write(w.slots, 25, Longs{1000}); }},
      {": slots[", [](ExtendWorld& w) { w.write(w.prefix_indptr, 3, Ints{900}); }},
      {": q[", [](ExtendWorld& w) { w.write(w.qo_indptr, 3, Ints{100}); }},
      {": custom_mask[", [](ExtendWorld& w) { w.write(w.byte_indptr, 2, Longs{100000}); }},
      {": custom_mask[", [](ExtendWorld& w) { w.write(w.byte_indptr, 2, Longs{-100}); }},
      {"ok", [](ExtendWorld& w) { w.write(w.window_kv_offsets, 2, Ints{-1}); }},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.found);
    TileShape shape{.window = true};
    shape.masked = true;
    ExtendWorld w(shape);
    fault.plant(w);
    w.run(w.call(), [&] {
      const std::string found = w.found();
      EXPECT_NE(found.find(fault.found), std::string::npos) << found;
      EXPECT_TRUE(is_poison(row_of(w, w.out, 5)));
      EXPECT_FALSE(is_poison(row_of(w, w.out, 0)));
    });
  }
}

TEST(TritonExtendLaunch, AMaskOfAnotherWidthIsFound) {
  // Without the offsets rows are taken to be as wide as what a window reaches.
  TileShape shape{.window = true};
  shape.masked = true;
  ExtendWorld w(shape);
  TritonExtend call = w.call();
  call.window_kv_offsets = {};
  w.run(call, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.uninit_read: custom_mask["), std::string::npos) << found;
  });
}

TEST(TritonExtendLaunch, NoListLeadsItOutOfItsMemory) {
  constexpr int64_t kValues[] = {-1, 0, 1, 3, 40, 228, 100000, INT32_MAX, INT32_MIN};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    TileShape shape{.window = seed % 3 == 0};
    shape.masked = seed % 2 == 0;
    ExtendWorld w(shape);
    Rng rng(seed);
    for (const Buffer* b :
         {&w.qo_indptr, &w.prefix_indptr, &w.window_kv_offsets, &w.slots, &w.byte_indptr}) {
      for (int64_t i = 0; i < b->numel(); ++i) {
        const int64_t value = kValues[rng.below(std::size(kValues))];
        if (rng.below(6) != 0) continue;
        if (b->dtype == DType::kI64) w.write(*b, i, Longs{value << rng.below(32)});
        if (b->dtype == DType::kI32) w.write(*b, i, Ints{static_cast<int32_t>(value)});
      }
    }
    w.stream().synchronize();
    const KernelLaunch launch = triton_extend_launch(w.call());
    LaunchFrame frame{.launch = launch};
    Footprint spans;
    kTritonExtend.footprint(frame, &spans);
    EXPECT_EQ(kTritonExtend.body(frame), Progress::kDone);
    EXPECT_FALSE(spans.empty());
  }
}

TEST(TritonExtendLaunch, TheWindowOfATreeIsJudgedByDepths) {
  TileShape shape{.window = true};
  shape.masked = true;
  ExtendWorld w(shape);
  TritonExtend call = w.call();
  // The queries of a chain stand where their rows do; siblings all stand behind the prefix.
  const Buffer chain = w.bind_values("chain", DType::kI32, Ints{0, 1, 2, 0, 1, 0, 1, 2, 3, 0});
  const Buffer siblings = w.bind_values("siblings", DType::kI32, Ints(10, 0));
  call.depths = ExtendWorld::elements<int32_t>(chain);
  w.run(call, [&] {
    EXPECT_EQ(w.found(), "ok");
    w.expect_whole(w.parts, LseSink::kExcluded);
  });
  const Bytes first = row_of(w, w.out, 5), last = row_of(w, w.out, 8);
  call.depths = ExtendWorld::elements<int32_t>(siblings);
  w.run(call, [&] {
    EXPECT_EQ(w.found(), "ok");
    EXPECT_EQ(row_of(w, w.out, 5), first);
    EXPECT_NE(row_of(w, w.out, 8), last) << "three keys more";
  });
}

TEST(TritonExtendLaunch, DepthsThatAreNotThereAreFound) {
  TileShape shape{.window = true};
  shape.masked = true;
  ExtendWorld w(shape);
  TritonExtend call = w.call();
  const Buffer few = w.bind_values("depths", DType::kI32, Ints(7, 0));
  call.depths = ExtendWorld::elements<int32_t>(few);
  w.run(call, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find(": depths["), std::string::npos) << found;
    EXPECT_TRUE(is_poison(row_of(w, w.out, 5)));
    EXPECT_FALSE(is_poison(row_of(w, w.out, 0)));
  });
}

TEST(TritonExtendLaunch, BuiltAgainItIsTheSameByteByByte) {
  const ExtendWorld w;
  TritonExtend call = w.call();
  const KernelLaunch kept = triton_extend_launch(call);
  EXPECT_EQ(kept, triton_extend_launch(call));
  call.max_extend_len = 3;
  EXPECT_NE(kept, triton_extend_launch(call));
}

}  // namespace
}  // namespace shadowgraph::triton_extend_test
