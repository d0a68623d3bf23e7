// Triton's decode as launches: the whole call whatever the splits, and what a shadow sees of lists
// that lead astray.
#include "launch/triton_launch.h"

#include <algorithm>

#include "launch/tile_world.h"

namespace shadowgraph::triton_launch_test {
namespace {

using Longs = std::vector<int64_t>;

Longs longs(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

TEST(TritonSplits, KeysOfASplitAreWholeBlocksOf32) {
  EXPECT_EQ(triton_split_keys(0, 4), 0);
  EXPECT_EQ(triton_split_keys(1, 4), 32);
  EXPECT_EQ(triton_split_keys(128, 4), 32);
  EXPECT_EQ(triton_split_keys(129, 4), 64);
  EXPECT_EQ(triton_split_keys(1000, 1), 1024);
}

/// fi.I-58: split s has as many keys from s * each on.
TEST(TritonSplits, HaveEveryKeyOnce) {
  for (int32_t keys = 0; keys <= 300; ++keys) {
    for (int32_t splits = 1; splits <= 9; ++splits) {
      const int64_t each = triton_split_keys(keys, splits);
      ASSERT_EQ(each % 32, 0) << keys << " " << splits;
      ASSERT_GE(each * splits, keys) << splits;
    }
  }
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

/// fi.I-60, fi.I-64.
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
  // Only the first split's keys of the third request.
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
      EXPECT_TRUE(is_poison(row_of(w, w.lse, 2)));
      EXPECT_FALSE(is_poison(row_of(w, w.lse, 0)));
    });
  }
  DecodeWorld w;
  w.write(w.kv_indptr, 4, Ints{900});
  w.run([&] {
    EXPECT_NE(w.found().find(": slots["), std::string::npos);
    EXPECT_TRUE(is_poison(row_of(w, w.lse, 3)));
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

}  // namespace
}  // namespace shadowgraph::triton_launch_test
