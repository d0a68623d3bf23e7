// New keys times their request's factor: in f32, for the tokens that there are.
#include "launch/scale_keys.h"

#include "core/float_formats.h"
#include "launch/launch_world.h"

namespace shadowgraph::scale_keys_test {
namespace {

constexpr int64_t kRows = 6, kHeads = 2, kDim = 4;

/// Three requests with 2, 0 and 3 tokens; the last row is padding, which was never written.
class World : public LaunchWorld {
 public:
  explicit World(DType dtype = DType::kF32) {
    k = bind("k", dtype, {kRows, kHeads, kDim}, kDim);
    write_bytes(k, 0, random(dtype, (kRows - 1) * kHeads * kDim), (kRows - 1) * kHeads * kDim);
    cu = bind_values("cu", DType::kI32, Ints{0, 2, 2, 5});
    factors = bind_values("factors", DType::kF32, std::vector<float>{1.25F, 7, 1.5F});
    out = bind("out", DType::kF32, {kRows, kHeads, kDim}, kDim);
  }
  ScaleKeys call() const {
    return {k.view(), elements<int32_t>(cu), elements<float>(factors), out.view()};
  }
  void clear() { fill(out, 0x55); }
  Bytes expected(int64_t rows) {
    stream().synchronize();
    Bytes all(out.bytes(), std::byte{0x55});
    for (int64_t i = 0; i < rows * kHeads * kDim; ++i) {
      const float factor = i < 2 * kHeads * kDim ? 1.25F : 1.5F;
      store_float(all.data(), DType::kF32, i, load_float(k.data, k.dtype, i) * factor);
    }
    return all;
  }

  Buffer k, cu, factors, out;
};

TEST(ScaleKeys, EveryTokenHasTheFactorOfItsRequest) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    World w(dtype);
    w.run_both(
        scale_keys_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.bytes(w.out), w.expected(5)) << name_of(dtype);
          EXPECT_EQ(w.found(), "ok") << name_of(dtype);
        });
  }
}

TEST(ScaleKeys, AFactorThatNobodyWroteIsFound) {
  World w;
  w.factors = w.bind("unwritten", DType::kF32, {3});
  w.stream().launch(scale_keys_launch(w.call()));
  EXPECT_NE(w.found().find("unwritten["), std::string::npos);
}

TEST(ScaleKeys, OffsetsThatLeadNowhereScaleNothing) {
  for (const Ints& cu : {Ints{0, 3, 2, 4}, Ints{1, 2, 3, 4}, Ints{0, 2, 2, 1000}}) {
    World w;
    w.write(w.cu, 0, cu);
    w.clear();
    w.stream().launch(scale_keys_launch(w.call()));
    EXPECT_EQ(w.bytes(w.out), w.expected(0));
    const std::string found = w.found();
    EXPECT_EQ(found.find(": k[") != std::string::npos, cu.back() > kRows) << found;
  }
}

TEST(ScaleKeys, BuiltAgainItIsTheSameByteByByte) {
  const World w;
  EXPECT_EQ(scale_keys_launch(w.call()), scale_keys_launch(w.call()));
  EXPECT_NE(scale_keys_launch(w.call()), scale_keys_launch(w.call(), {1, 1}));
}

}  // namespace
}  // namespace shadowgraph::scale_keys_test
