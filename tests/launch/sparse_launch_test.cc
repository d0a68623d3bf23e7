// Launches of sparse attention: latents into their slots and attention over chosen ones have the
// bits of the calls, eager and replayed, on what memory holds then; and what a shadow sees of slots
// and entries that are not there.
#include "launch/sparse_launch.h"

#include <algorithm>

#include "launch/gather_rows.h"
#include "launch/launch_world.h"

namespace shadowgraph::sparse_launch_test {
namespace {

using Slots = std::vector<int64_t>;

/// Three tokens over a pool of twelve slots, of which the first four are padding.
class World : public LaunchWorld {
 public:
  static constexpr int64_t kTokens = 3, kHeads = 2, kSlots = 12, kDim = 6, kDimV = 4, kWidth = 3;

  World() {
    latents = bind("latents", DType::kF32, {kTokens, kDim}, kDim);
    packed = bind("packed_latents", DType::kF32, {kTokens, kDsaCodes + kRopeDim}, 1);
    slots = bind_values("out_cache_loc", DType::kI64, Slots{9, 0, 4});
    rows = bind("kv_buffer", DType::kF32, {kSlots, kDim}, kDim);
    bytes_of_dsa = bind("packed_buffer", DType::kU8, {kSlots, kDsaBytes}, kDsaBytes);
    q = bind("q", DType::kF32, {kTokens, kHeads, kDim}, kDim);
    indices = bind_values("page_indices", DType::kI32, Ints{4, 9, 5, 7, -1, -1, 11, 10, 9});
    lengths = bind_values("cache_seqlens", DType::kI32, Ints{2, 1, 3});
    out = bind("out", DType::kF32, {kTokens, kHeads, kDimV}, kDimV);
    lse = bind("lse", DType::kF32, {kTokens, kHeads});
    randomise(latents), randomise(packed), randomise(q);
  }

  PackLatents pack() const {
    PackLatents c;
    c.latents = latents.view();
    c.out_cache_loc = elements<int64_t>(slots);
    c.pool = {rows.view(), LatentLayout::kRows};
    c.first_slot = 4;
    return c;
  }
  PackLatents pack_dsa() const {
    PackLatents c = pack();
    c.latents = packed.view();
    c.pool = {bytes_of_dsa.view(), LatentLayout::kDsa};
    return c;
  }
  SparseAttention attend() const {
    SparseAttention c;
    c.q = q.view();
    c.keys.pool = {rows.view(), LatentLayout::kRows};
    c.keys.indices = elements<int32_t>(indices), c.keys.width = kWidth;
    c.keys.lengths = elements<int32_t>(lengths);
    c.head_dim_v = kDimV, c.sm_scale = 0.5f;
    c.out = out.view(), c.lse = NaturalLse(lse.view());
    return c;
  }

  Buffer latents, packed, slots, rows, bytes_of_dsa, q, indices, lengths, out, lse;
};

TEST(SparseLaunch, LatentsAreStoredAndThoseOfPageZeroDropped) {
  World w;
  const auto judge = [&](const PackLatents& call, const Buffer& pool) {
    const Bytes right = w.expected(pool, [&] { return pack_latents(call); });
    w.run_both(
        pack_latents_launch(call), [&] { w.clear(pool); },
        [&] {
          EXPECT_EQ(w.bytes(pool), right);
          EXPECT_EQ(w.found(), "ok");
        });
  };
  judge(w.pack(), w.rows);
  judge(w.pack_dsa(), w.bytes_of_dsa);
}

TEST(SparseLaunch, ASlotBeyondThePoolIsFoundAndNothingStored) {
  World w;
  GraphExec exec = w.record(pack_latents_launch(w.pack()));
  for (const int64_t slot : {World::kSlots, int64_t{1} << 61}) {
    w.write(w.slots, 1, Slots{slot});
    w.clear(w.rows);
    exec.replay(w.stream());
    EXPECT_EQ(w.bytes(w.rows), Bytes(w.rows.bytes(), std::byte{0x55}));
    const std::string found = w.found();
    EXPECT_NE(found.find("mem."), std::string::npos) << found;
    EXPECT_NE(found.find("kv_buffer"), std::string::npos) << found;
  }
}

TEST(SparseLaunch, AttentionIsTheBitsOfTheCall) {
  World w;
  w.randomise(w.rows);
  const SparseAttention call = w.attend();
  const Bytes right = w.expected(w.out, [&] { return sparse_attention(call); });
  const Bytes right_lse = w.bytes(w.lse);
  w.run_both(
      sparse_launch(call), [&] { w.clear(w.out), w.clear(w.lse); },
      [&] {
        EXPECT_EQ(w.bytes(w.out), right);
        EXPECT_EQ(w.bytes(w.lse), right_lse);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(SparseLaunch, ListsAreReadWhenItRunsAndEntriesBeyondThePoolAreFound) {
  World w;
  w.randomise(w.rows);
  GraphExec exec = w.record(sparse_launch(w.attend()));
  w.write(w.indices, 3, Ints{8});
  const Bytes right = w.expected(w.out, [&] { return sparse_attention(w.attend()); });
  w.clear(w.out);
  exec.replay(w.stream());
  EXPECT_EQ(w.bytes(w.out), right);
  EXPECT_EQ(w.found(), "ok");
  for (const int32_t slot : {static_cast<int32_t>(World::kSlots), -2, INT32_MAX}) {
    w.write(w.indices, 3, Ints{slot});
    exec.replay(w.stream());
    EXPECT_TRUE(is_poison(w.bytes(w.out)));
    const std::string found = w.found();
    EXPECT_NE(found.find("kv_buffer"), std::string::npos) << found;
  }
  w.write(w.indices, 3, Ints{8});
  w.write(w.lengths, 2, Ints{4});  // behind the list's end
  exec.replay(w.stream());
  const std::string found = w.found();
  EXPECT_NE(found.find("page_indices"), std::string::npos) << found;
}

TEST(SparseLaunch, SinksAreReadWhereAListIsRefused) {
  World w;
  w.randomise(w.rows);
  const Buffer sinks = w.bind("sinks", DType::kF32, {World::kHeads});
  w.randomise(sinks);
  SparseAttention call = w.attend();
  call.sinks = World::elements<float>(sinks);
  w.write(w.indices, 3, Ints{-2});
  const KernelLaunch launch = sparse_launch(call);
  w.stream().synchronize();
  Footprint spans;
  kSparseAttention.footprint(LaunchFrame{launch}, &spans);
  EXPECT_TRUE(
      std::ranges::any_of(spans, [&](const AccessSpan& s) { return s.buffer == sinks.data; }));
  w.stream().launch(launch);
  EXPECT_TRUE(is_poison(w.bytes(w.out)));
}

TEST(SparseLaunch, ALatentThatWasNeverStoredIsFound) {
  World w;
  w.stream().launch(pack_latents_launch(w.pack()));  // slots 9 and 4
  w.write(w.lengths, 0, Ints{2, 0, 0});
  w.stream().launch(sparse_launch(w.attend()));
  EXPECT_EQ(w.found(), "ok");
  w.write(w.lengths, 1, Ints{1});
  w.stream().launch(sparse_launch(w.attend()));
  const std::string found = w.found();
  EXPECT_NE(found.find("mem.uninit_read"), std::string::npos) << found;
}

TEST(GatherRows, RowsComeByTheListAndNoneWhereAnEntryNamesNone) {
  World w;
  w.randomise(w.rows);
  const Buffer list = w.bind_values("page_table_1_flattened", DType::kI32, Ints{4, 9, 5, 5});
  const Buffer offsets = w.bind_values("cu_seqlens_k", DType::kI32, Ints{0, 2, 3});
  const Buffer to = w.bind("gathered", DType::kF32, {4, World::kDim}, World::kDim);
  GatherRows call;
  call.rows = w.rows.view(), call.out = to.view();
  call.indices = World::elements<int32_t>(list),
  call.cu_seqlens = World::elements<int32_t>(offsets);
  const Bytes pool = w.bytes(w.rows);
  const auto row = static_cast<std::ptrdiff_t>(World::kDim * 4);
  Bytes right;
  for (const std::ptrdiff_t slot : {4, 9, 5})
    right.insert(right.end(), pool.begin() + slot * row, pool.begin() + (slot + 1) * row);
  right.resize(to.bytes(), std::byte{0x55});  // behind the last offset
  w.run_both(
      gather_rows_launch(call), [&] { w.clear(to); },
      [&] {
        EXPECT_EQ(w.bytes(to), right);
        EXPECT_EQ(w.found(), "ok");
      });
  GraphExec exec = w.record(gather_rows_launch(call));
  for (const int32_t entry : {-1, static_cast<int32_t>(World::kSlots)}) {
    w.write(list, 1, Ints{entry});
    w.clear(to);
    exec.replay(w.stream());
    EXPECT_EQ(w.bytes(to), Bytes(to.bytes(), std::byte{0x55}));
    EXPECT_NE(w.found().find("kv_buffer"), std::string::npos);
  }
  w.write(list, 1, Ints{9});
  w.write(offsets, 2, Ints{5});
  exec.replay(w.stream());
  EXPECT_NE(w.found().find("page_table_1_flattened"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::sparse_launch_test
