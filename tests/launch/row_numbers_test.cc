// Numbers of rows are made of what memory holds when the launch runs, and what is read is noted.
#include "launch/row_numbers.h"

#include "launch/launch_world.h"

namespace shadowgraph::row_numbers_test {
namespace {

class RowNumbers : public ::testing::Test {
 protected:
  Buffer of(const char* name, const Ints& values) {
    return w.bind_values(name, DType::kI32, values);
  }
  std::span<const int32_t> ints(const Buffer& b) { return w.elements<int32_t>(b); }
  std::span<int32_t> to(const Buffer& b) {
    return {reinterpret_cast<int32_t*>(b.data), static_cast<size_t>(b.numel())};
  }
  /// What the launch leaves in a buffer.
  Ints run(const KernelLaunch& launch, const Buffer& out) {
    w.stream().launch(launch);
    w.stream().synchronize();
    EXPECT_EQ(w.found(), "ok");
    const auto held = ints(out);
    return {held.begin(), held.end()};
  }

  LaunchWorld w;
};

TEST_F(RowNumbers, AWindowOfQueriesIsCutToARequestsOwn) {
  const Buffer told = of("seq_lens_k", {12, 7, 4}), q_lens = of("seq_lens_q", {4, 1, 4});
  const Buffer offsets = of("cu_seqlens_q", {0, 4, 5, 9}), out = w.bind("own", DType::kI32, {3});
  const RowLens by_counts{.lens = ints(told), .counts = ints(q_lens), .plus = -4, .out = to(out)};
  EXPECT_EQ(run(row_lens_launch(by_counts), out), (Ints{12, 4, 4}));
  RowLens by_offsets = by_counts;
  by_offsets.counts = ints(offsets);
  EXPECT_EQ(run(row_lens_launch(by_offsets), out), (Ints{12, 4, 4}));
}

TEST_F(RowNumbers, LengthsThatOffsetsContradictAreOthers) {
  const Buffer lens = of("cache_seqlens", {5, 3}), offsets = of("cu_seqlens_k", {0, 5, 9});
  const Buffer out = w.bind("lens", DType::kI32, {2});
  EXPECT_EQ(run(row_lens_launch({.lens = ints(lens),
                                 .counts = ints(offsets),
                                 .of_lens = 2,
                                 .of_counts = -1,
                                 .out = to(out)}),
                out),
            (Ints{5, 2}));
}

TEST_F(RowNumbers, NumbersBeyondInt32AreItsEnds) {
  const Buffer lens = of("lens", {INT32_MAX, INT32_MIN}), counts = of("counts", {1, -1});
  const Buffer out = w.bind("out", DType::kI32, {2});
  EXPECT_EQ(run(row_lens_launch({.lens = ints(lens), .counts = ints(counts), .out = to(out)}), out),
            (Ints{INT32_MAX, INT32_MIN}));
}

TEST_F(RowNumbers, AQuerySeesTheKeysOfItsRankUpToItsPosition) {
  const Buffer global_lens = of("global", {13, 3}), q_lens = of("q_lens", {3, 3});
  const Buffer out = w.bind("visible", DType::kI32, {3, 2});
  const Ints lens[2] = {{7, 2}, {6, 1}};
  const Ints visible[2] = {{6, 1, 6, 1, 7, 2}, {5, 0, 6, 1, 6, 1}};
  for (const int32_t rank : {0, 1}) {
    const Buffer local = of(rank == 0 ? "lens0" : "lens1", lens[rank]);
    RankLens c{.lens = ints(local), .global_lens = ints(global_lens), .q_lens = ints(q_lens)};
    c.rank = rank, c.size = 2, c.max_q_len = 3, c.out = to(out);
    EXPECT_EQ(run(rank_lens_launch(c), out), visible[rank]);
  }
}

TEST_F(RowNumbers, PaddingWithoutTokensBeginsWhereItsRowDoes) {
  const Buffer offsets = of("query_start_loc", {0, 3, 6, 6, 6});
  const Buffer out = w.bind("dense_rows", DType::kI32, {5});
  EXPECT_EQ(run(dense_rows_launch({ints(offsets), to(out), 3}), out), (Ints{0, 3, 6, 9, 12}));
}

TEST_F(RowNumbers, ARowOfABatchThatFillsItsGraphIsWhereOffsetsSay) {
  const Buffer offsets = of("query_start_loc", {0, 2, 6});
  const Buffer out = w.bind("dense_rows", DType::kI32, {3});
  EXPECT_EQ(run(dense_rows_launch({ints(offsets), to(out), 3}), out), (Ints{0, 2, 6}));
}

TEST_F(RowNumbers, BlocksLieInThePagesOfTheirToken) {
  const Buffer table = w.bind_values("page_table", DType::kI32, Ints{5, 2, 0, 0});
  const Buffer lens = of("whole", {3, 0}), out = w.bind("blocks", DType::kI32, {2, 4});
  BlocksOfPages c;
  c.page_table = ConstTensorView(table.data, DType::kI32, {2, 2}), c.lens = ints(lens);
  c.out = out.view(), c.a_page = 2;
  EXPECT_EQ(run(blocks_of_pages_launch(c, {}), out), (Ints{10, 11, 4, -1, -1, -1, -1, -1}));
}

TEST_F(RowNumbers, WhatIsNotWrittenIsSeenAsTheirs) {
  const Buffer lens = of("lens", {1}), counts = w.bind("counts", DType::kI32, {1});
  const Buffer out = w.bind("out", DType::kI32, {1});
  w.stream().launch(row_lens_launch({.lens = ints(lens), .counts = ints(counts), .out = to(out)}));
  EXPECT_NE(w.found().find("counts"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::row_numbers_test
