// Triton's kernels as launches: the whole call whatever the splits, prefix and own keys merged, and
// what a shadow sees of lists that lead astray.
#include "backends/triton_launch.h"

#include <algorithm>

#include "backends/tile_world.h"

namespace shadowgraph {
namespace {

using Longs = std::vector<int64_t>;

Longs longs(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

Bytes row_of(TileWorld& w, const Buffer& b, int64_t row) {
  const Bytes all = w.bytes(b);
  const auto size = std::ssize(all) / b.shape[0];
  return {all.begin() + row * size, all.begin() + (row + 1) * size};
}

bool all_ones(const Bytes& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; });
}

TEST(TritonSplits, KeysOfASplitAreWholeBlocksOf32) {
  EXPECT_EQ(triton_split_keys(0, 4), 0);
  EXPECT_EQ(triton_split_keys(1, 4), 32);
  EXPECT_EQ(triton_split_keys(128, 4), 32);
  EXPECT_EQ(triton_split_keys(129, 4), 64);
  EXPECT_EQ(triton_split_keys(1000, 1), 1024);
}

class DecodeWorld : public TileWorld {
 public:
  static constexpr int64_t kMaxSplits = 5;

  explicit DecodeWorld(Ints splits = {1, 3, 5, 2}, bool with_sinks = false)
      : TileWorld({.requests = {{1, 40}, {1, 0}, {1, 150}, {1, 33}}, .sinks = with_sinks}) {
    slots = bind_values("slots", DType::kI64, longs(elements<int32_t>(kv_indices)));
    num_kv_splits = bind_values("num_kv_splits", DType::kI32, splits);
    logits = bind("attn_logits", DType::kF32, {batch(), kHeads, kMaxSplits, kDimVo}, kDimVo);
    attn_lse = bind("attn_lse", DType::kF32, {batch(), kHeads, kMaxSplits});
    for (size_t r = 0; r < splits.size(); ++r) {
      const int64_t per = triton_split_keys(shape.requests[r].second, splits[r]);
      const int64_t used = per > 0 ? (shape.requests[r].second + per - 1) / per : 1;
      parts.push_back(static_cast<int32_t>(used));
    }
  }
  TritonDecode call() const {
    TritonDecode c;
    c.q = q.view();
    c.cache = cache();
    c.kv_indptr = elements<int32_t>(kv_indptr);
    c.kv_indices = elements<int64_t>(slots);
    c.num_kv_splits = elements<int32_t>(num_kv_splits);
    c.params = params();
    c.attn_logits = logits.view(), c.attn_lse = NaturalLse(attn_lse.view());
    c.out = out.view(), c.lse = NaturalLse(lse.view());
    return c;
  }
  template <class Check>
  void run(Check check) {
    const auto stages = [this](Stream& s) {
      s.launch(triton_decode_stage1_launch(call()));
      s.launch(triton_decode_stage2_launch(call()));
    };
    run_launches(stages, check);
  }

  Buffer slots, num_kv_splits, logits, attn_lse;
  std::vector<int32_t> parts;
};

TEST(TritonDecodeLaunch, SplitsOfAnyNumberAreTheWholeCall) {
  for (int32_t splits = 1; splits <= DecodeWorld::kMaxSplits; ++splits) {
    for (const bool sinks : {false, true}) {
      DecodeWorld w({splits, 1, DecodeWorld::kMaxSplits, splits}, sinks);
      w.set_owners();
      SCOPED_TRACE(splits);
      w.run([&] {
        EXPECT_EQ(w.found(), "ok");
        w.expect_whole(w.parts, LseSink::kExcluded);
        w.expect_padding(std::byte{0x11});
      });
    }
  }
}

TEST(TritonDecodeLaunch, OnlySplitsThatHaveKeysAreWritten) {
  DecodeWorld w({5, 5, 5, 5});
  w.fill(w.attn_lse, 0x11);
  w.run([&] {
    const auto lse = DecodeWorld::elements<uint32_t>(w.attn_lse);
    for (size_t r = 0; r < w.parts.size(); ++r) {
      const int64_t keys = w.shape.requests[r].second, per = triton_split_keys(keys, 5);
      for (int64_t split = 0; split < DecodeWorld::kMaxSplits; ++split) {
        const size_t at =
            (r * DecodeWorld::kHeads) * DecodeWorld::kMaxSplits + static_cast<size_t>(split);
        EXPECT_EQ(lse[at] == 0x11111111u, split * per >= keys) << r << " " << split;
      }
    }
  });
}

TEST(TritonDecodeLaunch, KeysPastTheGridAreLeftOut) {
  DecodeWorld w({1, 1, 5, 1});
  TritonDecode call = w.call();
  call.attn_logits.shape[2] = call.attn_lse.tensor.shape[2] = 1;  // a grid of one split
  call.attn_logits.stride[1] = call.attn_logits.stride[2];
  call.attn_lse.tensor.stride[1] = 1;
  w.stream().launch(triton_decode_stage1_launch(call));
  w.stream().launch(triton_decode_stage2_launch(call));
  EXPECT_EQ(w.found(), "ok");
  DecodeWorld short_world({1, 1, 1, 1});
  // Of the third request only the first split's keys.
  TritonDecode first = short_world.call();
  short_world.write(short_world.kv_indptr, 3, Ints{40 + 32});
  short_world.stream().launch(triton_decode_stage1_launch(first));
  short_world.stream().launch(triton_decode_stage2_launch(first));
  EXPECT_EQ(row_of(w, w.out, 2), row_of(short_world, short_world.out, 2));
}

TEST(TritonDecodeLaunch, ItsRowsAreWhoseTheyAreSaidToBe) {
  DecodeWorld w;
  w.set_owners();
  const auto stages = [&](Stream& s) {
    s.launch(triton_decode_stage1_launch(w.call(), {.a_request = 1, .first = 1}));
  };
  w.run_launches(stages, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region: k["), std::string::npos) << found;
  });
}

TEST(TritonDecodeLaunch, AStaleRowIsFound) {
  DecodeWorld w;
  const Buffer stale = w.bind("stale", DType::kI32, {w.batch()});
  w.write(stale, 0, Ints{1, 1, 1});
  const auto stages = [&](Stream& s) {
    TritonDecode call = w.call();
    call.num_kv_splits = DecodeWorld::elements<int32_t>(stale);
    s.launch(triton_decode_stage1_launch(call));
  };
  w.run_launches(stages, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.uninit_read: stale[3"), std::string::npos) << found;
  });
}

TEST(TritonDecodeLaunch, WhatLeadsAstrayIsFoundAndItsRowIsLost) {
  struct Fault {
    const char* found;
    void (*plant)(DecodeWorld& w);
  };
  const Fault faults[] = {
      {": k[", [](DecodeWorld& w) { w.write(w.slots, 41, Longs{1000}); }},
      {": k[", [](DecodeWorld& w) { w.write(w.slots, 41, Longs{-1}); }},
      {"ok", [](DecodeWorld& w) { w.write(w.num_kv_splits, 2, Ints{0}); }},
      {"ok", [](DecodeWorld& w) { w.write(w.num_kv_splits, 2, Ints{-3}); }},
  };
  for (const Fault& fault : faults) {
    DecodeWorld w;
    fault.plant(w);
    w.run([&] {
      const std::string found = w.found();
      EXPECT_NE(found.find(fault.found), std::string::npos) << found;
      EXPECT_TRUE(all_ones(row_of(w, w.lse, 2)));
      EXPECT_FALSE(all_ones(row_of(w, w.lse, 0)));
    });
  }
  DecodeWorld w;
  w.write(w.kv_indptr, 4, Ints{900});
  w.run([&] {
    EXPECT_NE(w.found().find(": slots["), std::string::npos);
    EXPECT_TRUE(all_ones(row_of(w, w.lse, 3)));
  });
}

TEST(TritonDecodeLaunch, ASlotOf33BitsIsNotTheOneOfItsLast32) {
  DecodeWorld w;
  w.write(w.slots, 41, Longs{(int64_t{1} << 32) + 1});
  w.stream().launch(triton_decode_stage1_launch(w.call()));
  EXPECT_NE(w.found().find("mem.out_of_bounds: k is an illegal address"), std::string::npos);
}

TEST(TritonDecodeLaunch, BuiltAgainItIsTheSameByteByByte) {
  const DecodeWorld w;
  TritonDecode call = w.call();
  const KernelLaunch kept = triton_decode_stage1_launch(call);
  EXPECT_EQ(kept, triton_decode_stage1_launch(call));
  EXPECT_NE(kept, triton_decode_stage2_launch(call));
  call.params.causal = !call.params.causal;
  EXPECT_EQ(kept, triton_decode_stage1_launch(call));
  call.params.sm_scale *= 2;
  EXPECT_NE(kept, triton_decode_stage1_launch(call));
}

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
          const auto pair = static_cast<size_t>(m * all + c);
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
      EXPECT_TRUE(all_ones(row_of(w, w.out, 5)));
      EXPECT_FALSE(all_ones(row_of(w, w.out, 0)));
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

TEST(TritonExtendLaunch, BuiltAgainItIsTheSameByteByByte) {
  const ExtendWorld w;
  TritonExtend call = w.call();
  const KernelLaunch kept = triton_extend_launch(call);
  EXPECT_EQ(kept, triton_extend_launch(call));
  call.max_extend_len = 3;
  EXPECT_NE(kept, triton_extend_launch(call));
}

}  // namespace
}  // namespace shadowgraph
