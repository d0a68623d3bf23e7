// Recorded metadata of a dual-chunk decode, and what is wrong with what an engine once made of it.
#include "check/trace_lines.h"

namespace shadowgraph::dual_chunk_traces_test {
namespace {

/// decode_line() in chunks of one page: of 5 tokens and 9.
TraceLine dual_chunk_line() {
  TraceLine line = decode_line();
  line.backend = "dual_chunk";
  line.config.chunk = 4;
  const RecordedField rows = line.input["seq_lens"];
  const auto vector = [&](std::vector<int64_t> data) {
    RecordedField field = rows;
    field.shape = {std::ssize(data)}, field.cols = std::ssize(data);
    field.data = std::move(data);
    return field;
  };
  const auto column = [&](std::vector<int64_t> data) {
    RecordedField field = vector(std::move(data));
    field.shape = {field.cols, 1}, field.cols = 1;
    return field;
  };
  line.expect = {{"query_start_loc", vector({0, 1, 2})}, {"seq_start_loc", vector({0, 5, 14})},
                 {"seq_lens_intra", vector({1, 1})},     {"seq_lens_succ", vector({4, 4})},
                 {"seq_lens_inter", vector({0, 4})},     {"block_tables_intra", column({5, 1})},
                 {"block_tables_succ", column({2, 10})}, {"block_tables", column({0, 3})}};
  return line;
}

TEST(DualChunkTraces, WhatAgreesHasNoFinding) { EXPECT_EQ(found(dual_chunk_line()), "ok"); }

TEST(DualChunkTraces, OffsetsThatAreSumsOfArangeAreFound) {
  TraceLine line = dual_chunk_line();
  line.expect["query_start_loc"].data = {0, 0, 1};
  EXPECT_EQ(laws(line), Laws{"len.q_extent query_start_loc 1"});
}

TEST(DualChunkTraces, PartsAreThoseOfTheChunks) {
  TraceLine line = dual_chunk_line();
  line.expect["seq_lens_succ"].data = {4, 0};
  EXPECT_EQ(laws(line), Laws{"len.kv_extent seq_lens_succ 1"});
  line = dual_chunk_line();
  line.expect["seq_lens_inter"].data = {4, 4};
  EXPECT_EQ(laws(line), Laws{"len.kv_extent seq_lens_inter 0"});
}

TEST(DualChunkTraces, PagesThatAreDividedTwiceAreFound) {
  TraceLine line = dual_chunk_line();
  line.expect["block_tables_succ"].data = {0, 2};
  ASSERT_EQ(laws(line).size(), 1U);
  EXPECT_TRUE(laws(line).begin()->starts_with("table.")) << *laws(line).begin();
}

TEST(DualChunkTraces, WithoutItsChunkALineIsNotJudged) {
  TraceLine line = dual_chunk_line();
  line.config.chunk.reset();
  EXPECT_EQ(judge_trace(line).kind, Kind::kSkipped);
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_traces_test
