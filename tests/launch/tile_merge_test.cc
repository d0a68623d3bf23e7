// Partial results become rows: the bits of merge_states, whatever the bases of the logarithms, and
// what a shadow sees of offsets that lead astray.
#include <cmath>
#include <limits>

#include "attn/lse.h"
#include "launch/launch_world.h"
#include "launch/tile_launch.h"

namespace shadowgraph::tile_merge_test {
namespace {

constexpr int64_t kRows = 8, kTokens = 4, kHeads = 2, kDim = 8;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();
const Ints kIndptr = {0, 3, 3, 4, 8};
constexpr LseBase kBases[] = {LseBase::kNatural, LseBase::kLog2};

class World : public LaunchWorld {
 public:
  World() {
    v = bind("v", DType::kF32, {kRows, kHeads, kDim}, kDim);
    s = bind("s", DType::kF32, {kRows, kHeads});
    v_b = bind("v_b", DType::kBF16, {kTokens, kHeads, kDim}, kDim);
    s_b = bind("s_b", DType::kF32, {kTokens, kHeads});
    out = bind("out", DType::kF32, {kTokens, kHeads, kDim}, kDim);
    lse = bind("lse", DType::kF32, {kTokens, kHeads});
    for (const Buffer* b : {&v, &s, &v_b, &s_b}) randomise(*b);
    indptr = bind_values("indptr", DType::kI32, kIndptr);
    qo_indptr = bind_values("qo_indptr", DType::kI32, Ints{0, 1, 3});
  }
  MergeTiles tiles(LseBase in = LseBase::kNatural, LseBase to = LseBase::kNatural) const {
    MergeTiles c;
    c.v = v.view(), c.s = {s.view(), in};
    c.merge_indptr = elements<int32_t>(indptr);
    c.out = out.view(), c.lse = {lse.view(), to};
    return c;
  }
  MergePair pair(LseBase a, LseBase b, LseBase to) const {
    MergePair c;
    c.v_a = first_rows(v), c.s_a = {first_rows(s), a};
    c.v_b = v_b.view(), c.s_b = {s_b.view(), b};
    c.out = out.view(), c.lse = {lse.view(), to};
    return c;
  }
  static TensorView first_rows(const Buffer& b) {
    TensorView t = b.view();
    t.shape[0] = kTokens;
    return t;
  }
  void clear() { fill(out, 0x11), fill(lse, 0x11); }
  /// Rows of out and lse.
  Bytes results(int64_t first, int64_t count) {
    Bytes all;
    for (const Buffer* b : {&out, &lse}) {
      const Bytes one = bytes(*b);
      const auto row = std::ssize(one) / kTokens;
      all.insert(all.end(), one.begin() + first * row, one.begin() + (first + count) * row);
    }
    return all;
  }
  static Bytes bytes_of(std::byte value, int64_t rows) {
    return Bytes(static_cast<size_t>(rows * kHeads * (kDim + 1)) * sizeof(float), value);
  }
  /// What merge_states makes of rows [begin, end) as the states of one row.
  template <LseBase Base>
  Bytes merged(int64_t begin, int64_t end) {
    Bytes all(bytes_of({}, 1).size());
    MergeStates<Base> m;
    m.v = {v.view().at(begin), DType::kF32, {1, end - begin, kHeads, kDim}};
    m.s = {s.view().at(begin), DType::kF32, {1, end - begin, kHeads}};
    m.out = {all.data(), DType::kF32, {1, kHeads, kDim}};
    m.lse = LseView<Base>(
        TensorView(all.data() + kHeads * kDim * sizeof(float), DType::kF32, {1, kHeads}));
    EXPECT_EQ(merge_states(m).to_string(), "ok");
    return all;
  }

  Buffer v, s, v_b, s_b, out, lse, indptr, qo_indptr;
};

TEST(MergeTilesLaunch, EachRowHasTheBitsOfMergedStates) {
  for (const LseBase base : kBases) {
    World w;
    w.run_both(
        merge_tiles_launch(w.tiles(base, base)), [&] { w.clear(); },
        [&] {
          for (int64_t t = 0; t < kTokens; ++t) {
            const auto i = static_cast<size_t>(t);
            EXPECT_EQ(w.results(t, 1),
                      base == LseBase::kLog2
                          ? w.merged<LseBase::kLog2>(kIndptr[i], kIndptr[i + 1])
                          : w.merged<LseBase::kNatural>(kIndptr[i], kIndptr[i + 1]))
                << t;
          }
          EXPECT_EQ(w.found(), "ok");
        });
  }
}

TEST(MergeTilesLaunch, TheBaseOfTheResultIsItsOwn) {
  World w;
  const auto lses = [&](LseBase in, LseBase to) {
    w.stream().launch(merge_tiles_launch(w.tiles(in, to)));
    w.stream().synchronize();
    const auto all = World::elements<float>(w.lse);
    return std::vector<float>(all.begin(), all.end());
  };
  for (const LseBase in : kBases) {
    const auto natural = lses(in, LseBase::kNatural), log2 = lses(in, LseBase::kLog2);
    for (size_t i = 0; i < natural.size(); ++i) {
      if (i / kHeads == 1) {
        EXPECT_EQ(natural[i], kEmpty);
        EXPECT_EQ(log2[i], kEmpty);
      } else {
        // Each rounded once of the same number.
        EXPECT_LE(std::abs(natural[i] * kLog2E - log2[i]), 0x1.8p-24 * std::abs(log2[i])) << i;
        EXPECT_NE(natural[i], log2[i]);
      }
    }
  }
}

TEST(MergeTilesLaunch, ValuesOfAnEmptyStateAreNotRead) {
  World w;
  const Buffer never = w.bind("never", DType::kF32, {kRows, kHeads, kDim}, kDim);
  MergeTiles call = w.tiles();
  call.v = never.view();
  w.write(w.s, 0, std::vector<float>(kRows * kHeads, kEmpty));
  w.run_both(
      merge_tiles_launch(call), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.bytes(w.out), Bytes(w.out.bytes()));
        EXPECT_EQ(w.found(), "ok");
      });
  w.write(w.s, 0, std::vector<float>{0});
  w.run_both(
      merge_tiles_launch(call), [] {},
      [&] {
        const std::string found = w.found();
        EXPECT_NE(found.find("mem.uninit_read: never["), std::string::npos) << found;
      });
}

TEST(MergeTilesLaunch, RowsPastTheLastQueryAreNeitherReadNorWritten) {
  World w;
  // Neither offsets nor partial rows of the last token were ever written.
  const Buffer short_indptr = w.bind("short_indptr", DType::kI32, {kTokens + 1});
  w.write(short_indptr, 0, Ints{0, 3, 3, 4});
  MergeTiles call = w.tiles();
  call.merge_indptr = World::elements<int32_t>(short_indptr);
  call.qo_indptr = World::elements<int32_t>(w.qo_indptr);
  w.run_both(
      merge_tiles_launch(call), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.results(3, 1), World::bytes_of(std::byte{0x11}, 1));
        EXPECT_EQ(w.results(2, 1), w.merged<LseBase::kNatural>(3, 4));
        EXPECT_EQ(w.found(), "ok");
      });
  call.qo_indptr = {};
  w.run_both(
      merge_tiles_launch(call), [] {},
      [&] { EXPECT_NE(w.found().find("mem.uninit_read: short_indptr[4"), std::string::npos); });
}

TEST(MergeTilesLaunch, OffsetsThatLeadAstrayAreFoundAndTheRowIsLost) {
  for (const auto& lead : {std::pair<int32_t, const char*>{1000, ": v["}, {2, "ok"}, {-5, "ok"}}) {
    World w;
    w.write(w.indptr, 3, Ints{lead.first});
    w.run_both(
        merge_tiles_launch(w.tiles()), [&] { w.clear(); },
        [&] {
          const std::string all = w.found();
          EXPECT_NE(all.find(lead.second), std::string::npos) << all;
          EXPECT_EQ(w.results(2, 1), World::bytes_of(std::byte{0xff}, 1)) << lead.first;
          EXPECT_EQ(w.results(0, 1), w.merged<LseBase::kNatural>(0, 3));
        });
  }
}

TEST(MergeTilesLaunch, MoreQueriesThanRowsAreFound) {
  World w;
  w.write(w.qo_indptr, 2, Ints{6});
  MergeTiles call = w.tiles();
  call.qo_indptr = World::elements<int32_t>(w.qo_indptr);
  w.run_both(
      merge_tiles_launch(call), [&] { w.clear(); },
      [&] { EXPECT_NE(w.found().find(": out["), std::string::npos); });
}

TEST(MergePairLaunch, OfOneBaseItHasTheBitsOfMergeState) {
  World w;
  MergeState<LseBase::kLog2> m;
  m.v_a = World::first_rows(w.v), m.s_a = World::first_rows(w.s);
  m.v_b = w.v_b.view(), m.s_b = w.s_b.view();
  m.out = w.out.view(), m.lse = Log2Lse(w.lse.view());
  w.stream().synchronize();
  ASSERT_EQ(merge_state(m).to_string(), "ok");
  const Bytes expected = w.results(0, kTokens);
  w.run_both(
      merge_pair_launch(w.pair(LseBase::kLog2, LseBase::kLog2, LseBase::kLog2)), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.results(0, kTokens), expected);
        EXPECT_EQ(w.found(), "ok");
      });
}

/// fa.I-78, fi.I-45.
TEST(MergePairLaunch, OfOtherBasesItIsTheMergeOfOneBase) {
  // Powers of two, so that nothing is rounded: ln and log2 of one mass, zero.
  World w;
  w.write(w.s, 0, std::vector<float>(kRows * kHeads, 0.f));
  w.write(w.s_b, 0, std::vector<float>(kTokens * kHeads, 0.f));
  Bytes first;
  for (const LseBase a : kBases) {
    for (const LseBase b : kBases) {
      w.clear();
      w.stream().launch(merge_pair_launch(w.pair(a, b, LseBase::kLog2)));
      if (first.empty()) first = w.results(0, kTokens);
      EXPECT_EQ(w.results(0, kTokens), first);
      EXPECT_EQ(World::elements<float>(w.lse)[0], 1.f);
    }
  }
  EXPECT_EQ(w.found(), "ok");
  // And where something is: a mass of e^3 is three times log2 e.
  w.write(w.s, 0, std::vector<float>(kRows * kHeads, 3.f));
  w.write(w.s_b, 0, std::vector<float>(kTokens * kHeads, static_cast<float>(3 * kLog2E)));
  for (const bool turned : {false, true}) {
    const LseBase a = turned ? LseBase::kLog2 : LseBase::kNatural;
    const LseBase b = turned ? LseBase::kNatural : LseBase::kLog2;
    if (turned) {
      w.write(w.s, 0, std::vector<float>(kRows * kHeads, static_cast<float>(3 * kLog2E)));
      w.write(w.s_b, 0, std::vector<float>(kTokens * kHeads, 3.f));
    }
    w.stream().launch(merge_pair_launch(w.pair(a, b, LseBase::kLog2)));
    w.stream().synchronize();
    EXPECT_EQ(World::elements<float>(w.lse)[0], static_cast<float>(3 * kLog2E) + 1) << turned;
  }
}

TEST(MergePairLaunch, RowsPastTheLastQueryAreNeitherReadNorWritten) {
  World w;
  const Buffer s_b = w.bind("short", DType::kF32, {kTokens, kHeads});
  w.write(s_b, 0, std::vector<float>(3 * kHeads, 1.f));
  MergePair call = w.pair(LseBase::kLog2, LseBase::kLog2, LseBase::kLog2);
  call.s_b.tensor = s_b.view();
  call.qo_indptr = World::elements<int32_t>(w.qo_indptr);
  w.run_both(
      merge_pair_launch(call), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.results(3, 1), World::bytes_of(std::byte{0x11}, 1));
        EXPECT_NE(w.results(2, 1), World::bytes_of(std::byte{0x11}, 1));
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(MergePairLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w;
  const auto launch = [&](LseBase b) {
    return merge_pair_launch(w.pair(LseBase::kLog2, b, LseBase::kLog2));
  };
  EXPECT_EQ(launch(LseBase::kLog2), launch(LseBase::kLog2));
  EXPECT_NE(launch(LseBase::kLog2), launch(LseBase::kNatural));
  EXPECT_EQ(merge_tiles_launch(w.tiles()), merge_tiles_launch(w.tiles()));
  EXPECT_NE(merge_tiles_launch(w.tiles()), merge_tiles_launch(w.tiles(LseBase::kLog2)));
}

}  // namespace
}  // namespace shadowgraph::tile_merge_test
