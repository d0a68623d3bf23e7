// Blocks into their slots: the bits of norm, rotation and pack of those tokens alone that end one,
// eager and replayed; and what a shadow sees of others.
#include "launch/block_launch.h"

#include "launch/launch_world.h"
#include "shadowgraph/layers/compress.h"

namespace shadowgraph::block_launch_test {
namespace {

/// Four tokens, of which the second and the last end a block of four.
class World : public LaunchWorld {
 public:
  static constexpr int64_t kTokens = 4, kDim = 8, kSlots = 6, kRope = 4;

  World() {
    x = bind("pooled", DType::kF32, {kTokens, kDim}, kDim);
    weight = bind("weight", DType::kF32, {kDim});
    freqs = bind("freqs", DType::kF32, {16, kRope}, kRope);
    positions = bind_values("positions", DType::kI32, Ints{2, 3, 4, 11});
    out_loc = bind_values("out_loc", DType::kI64, std::vector<int64_t>{0, 5, 0, 2});
    pool = bind("blocks", DType::kF32, {kSlots, kDim}, kDim);
    for (const Buffer& b : {weight, freqs}) randomise(b);
    // What the compressor leaves: rows of blocks that end.
    for (const int64_t row : {1, 3}) write_bytes(x, row * kDim, random(DType::kF32, kDim), kDim);
  }
  StoreBlocks call() const {
    StoreBlocks c;
    c.x = x.view(), c.weight = weight.view(), c.freqs = freqs.view();
    c.positions = elements<int32_t>(positions), c.out_loc = elements<int64_t>(out_loc);
    c.pool.data = pool.view();
    c.ratio = 4, c.first_slot = 2;
    return c;
  }

  Buffer x, weight, freqs, positions, out_loc, pool;
};

TEST(BlockLaunch, BlocksThatEndAreNormedRotatedAndStored) {
  World w;
  w.stream().synchronize();
  // Row by row: token 1 begins at position 0, token 3 at 8.
  Bytes want = w.bytes(w.pool);
  const StoreBlocks c = w.call();
  for (const auto& [token, slot, position] : {std::array{1, 5, 0}, std::array{3, 2, 8}}) {
    NormRope norm;
    norm.x = ConstTensorView(c.x.at(token), DType::kF32, {1, World::kDim});
    norm.weight = c.weight, norm.eps = c.eps;
    norm.freqs = ConstTensorView(c.freqs.at(position), DType::kF32, {1, World::kRope});
    norm.out = TensorView(want.data() + static_cast<size_t>(slot) * World::kDim * sizeof(float),
                          DType::kF32, {1, World::kDim});
    ASSERT_EQ(norm_rope(norm).to_string(), "ok");
  }
  w.run_both(
      store_blocks_launch(c), [&] { w.fill(w.pool, 0); },
      [&] {
        Bytes got = w.bytes(w.pool);
        for (const int64_t slot : {2, 5})
          EXPECT_EQ(std::memcmp(got.data() + slot * World::kDim * 4,
                                want.data() + slot * World::kDim * 4, World::kDim * 4),
                    0)
              << slot;
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(BlockLaunch, ATokenThatEndsNoBlockIsNotRead) {
  World w;
  GraphExec exec = w.record(store_blocks_launch(w.call()));
  exec.replay(w.stream());
  EXPECT_EQ(w.found(), "ok");
  w.write(w.out_loc, 2, std::vector<int64_t>{3});  // nothing was pooled there
  exec.replay(w.stream());
  EXPECT_NE(w.found().find("mem.uninit_read"), std::string::npos);
}

TEST(BlockLaunch, ASlotBeyondThePoolIsFoundAndNothingIsStored) {
  World w;
  w.clear(w.pool);
  GraphExec exec = w.record(store_blocks_launch(w.call()));
  w.write(w.out_loc, 1, std::vector<int64_t>{World::kSlots});
  const Bytes before = w.bytes(w.pool);
  exec.replay(w.stream());
  EXPECT_EQ(w.bytes(w.pool), before);
  EXPECT_NE(w.found().find("mem."), std::string::npos);
}

TEST(BlockLaunch, APositionWithoutARotationIsRefused) {
  World w;
  w.stream().synchronize();
  StoreBlocks c = w.call();
  const Ints positions = {2, 1, 4, 20};
  c.positions = positions;
  const Status status = validate(c);
  ASSERT_EQ(status.findings().size(), 2U) << status.to_string();
  for (const Finding& f : status.findings()) EXPECT_EQ(f.id, "len.capacity");
  EXPECT_EQ(status.findings()[0].where.row, 1);
  const Bytes before = w.bytes(w.pool);
  EXPECT_FALSE(store_blocks(c).ok());
  EXPECT_EQ(w.bytes(w.pool), before);
}

}  // namespace
}  // namespace shadowgraph::block_launch_test
