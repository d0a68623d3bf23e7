#include "bench/peer_table.h"

#include <gtest/gtest.h>

#include <fstream>

namespace shadowgraph::bench::peer_table_test {
namespace {

Row small_row(DType t, int32_t heads) {
  Shape shape = extend(t, 5, 19).heads(heads, 2).dim(32);
  shape.batch = 2;
  return {"small", shape, {.measure = Measure::kProbe}, "a small row"};
}

TablePeer small_peer() {
  std::string why;
  auto peer = load_peer(SHADOWGRAPH_SMALL_PEER, &why);
  EXPECT_TRUE(peer) << why;
  return peer ? *peer : TablePeer{"none", [](const sg_peer_call&) { return false; }};
}

PeerTable measured(const Row& row, const std::vector<PeerTimes>& times = {}) {
  PeerTable table;
  EXPECT_TRUE(measure_peers({&row}, {small_peer()}, times, {.rounds = 1}, &table).ok());
  EXPECT_EQ(table.rows.size(), 1u);
  return table;
}

TEST(PeerTable, HasAFigureOfEachPeerThatIsRight) {
  const PeerTable table = measured(small_row(DType::kF32, 4));
  EXPECT_EQ(table.peers, std::vector<std::string>{"small 1"});
  EXPECT_GT(table.rows[0].ours_ms, 0);
  EXPECT_GT(std::stod(table.rows[0].peers_ms[0]), 0);
}

TEST(PeerTable, APeerThatIsWrongHasNoFigure) {
  const PeerTable table = measured(small_row(DType::kF32, 6));
  EXPECT_EQ(table.rows[0].peers_ms[0], "wrong");
  EXPECT_TRUE(table.notes.at(0).starts_with("small 1 is wrong on small: ")) << table.notes[0];
}

TEST(PeerTable, ACallThatAPeerDoesNotHaveIsADash) {
  EXPECT_EQ(measured(small_row(DType::kBF16, 4)).rows[0].peers_ms[0], "-");
}

TEST(PeerTable, WhatRanElsewhereIsAColumnWithItsThreads) {
  const PeerTable table =
      measured(small_row(DType::kBF16, 4), {{"torch 9", 3, {{"small", 2.5}}}, {"other", 1, {}}});
  EXPECT_EQ(table.peers, (std::vector<std::string>{"small 1", "torch 9", "other"}));
  EXPECT_EQ(table.rows[0].peers_ms, (std::vector<std::string>{"-", "2.5", "-"}));
  EXPECT_EQ(table.notes.at(0),
            "torch 9 ran in a process of its own, before these rows, on 3 threads");
}

TEST(PeerTable, IsMarkdownWithHowManyTimesOurs) {
  PeerTable table;
  table.peers = {"a", "b"};
  table.rows = {{"row", 2, {"5", "-"}, true}};
  table.notes = {"a note"};
  EXPECT_EQ(to_markdown(table, "abacus, 2 threads"),
            "abacus, 2 threads\n\n"
            "| row | ours, ms | a, ms | a / ours | b, ms | b / ours |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| row | 2 | 5 | 2.50 | - |  |\n"
            "\n- a note\n");
}

TEST(PeerTable, AFileThatIsNoPeerSaysWhy) {
  std::string why;
  EXPECT_FALSE(load_peer("/nowhere/libabacus.so", &why));
  EXPECT_NE(why.find("libabacus.so"), std::string::npos) << why;
  EXPECT_FALSE(load_peer("libm.so.6", &why));
  EXPECT_NE(why.find("sg_peer_name"), std::string::npos) << why;
}

TEST(PeerTable, TimesAreReadAndRefusedByName) {
  const std::string path = ::testing::TempDir() + "/peer_times.json";
  const auto read = [&](const char* text, PeerTimes* times) {
    std::ofstream(path) << text;
    return read_peer_times(path, times);
  };
  PeerTimes times;
  EXPECT_TRUE(read(R"({"peer": "torch 9", "threads": 3, "ms": {"row": 2.5}})", &times).ok());
  EXPECT_EQ(times.name, "torch 9");
  EXPECT_EQ(times.threads, 3);
  EXPECT_EQ(times.ms.at("row"), 2.5);
  const Status status = read(R"({"threads": 3, "ms": {"row": "fast"}})", &times);
  ASSERT_EQ(status.findings().size(), 2u);
  EXPECT_EQ(status.findings()[0].where.field, "peer");
  EXPECT_EQ(status.findings()[1].where.field, "ms.row");
}

TEST(PeerTable, RowsOfDenseTensorsArePlain) {
  int plain = 0;
  for (const Row& row : rows()) {
    plain += is_plain(row);
    EXPECT_FALSE(is_plain(row) && (row.of.measure != Measure::kProbe || row.shape.has_states()))
        << row.id;
  }
  EXPECT_GE(plain, 10);
  for (const char* id :
       {"decode_nhd_bf16_b8_4k", "extend_tree_f32_16_on_4k", "mla_decode_bf16_fast_b8_4k"}) {
    std::string unknown;
    EXPECT_FALSE(is_plain(*select_rows({id}, &unknown).at(0))) << id;
  }
}

TEST(PeerTable, TheComposedPeersAreRight) {
  std::vector<std::string> notes;
  const std::vector<TablePeer> peers = composed_peers(&notes);
  EXPECT_EQ(peers.size() + notes.size(), 2u);
  PeerTable table;
  const Row row = small_row(DType::kF32, 4);
  EXPECT_TRUE(measure_peers({&row}, peers, {}, {.rounds = 1}, &table).ok());
  for (const std::string& ms : table.rows.at(0).peers_ms) EXPECT_GT(std::stod(ms), 0);
}

}  // namespace
}  // namespace shadowgraph::bench::peer_table_test
