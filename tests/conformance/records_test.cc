#include "conformance/records.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace shadowgraph::records_test {
namespace {

using nlohmann::json;

/// A record with every field that there is.
json small_record() {
  return json::parse(R"({
    "id": "G36", "class": "E", "title": "a title", "variant": "n.global.sub",
    "steps": [{"call": "cudaStreamBeginCapture", "args": "s,mode", "ret": 0, "name": "cudaSuccess"},
              {"call": "cudaStreamEndCapture", "ret": 903, "out": "graph=null", "thread": "B"},
              {"call": "cudaStreamSynchronize", "ret": null, "did_not_return": true}],
    "capture_status": ["s=active@1", "s=invalidated@2"], "nodes": {"kernel": 2}, "edges": [[0, 1]],
    "graphs": [{"label": "g", "null": false, "nodes": {"kernel": 2},
                "order": ["kernel:fill:7", "kernel:struct"], "edges": [[0, 1]],
                "edge_data": [[0, 1, 0, 1]]},
               {"label": "h", "null": true, "nodes": {}, "order": [], "edges": []}],
    "buffers": {"A": [1, -2], "B": {"error": 700}},
    "facts": {"same": true, "ordinal": -1, "name": "cudaErrorInvalidValue"},
    "host_calls": 2, "timeout": false, "exit": 0, "complete": false, "note": "a note"})");
}

RecordFile parsed(const std::string& text, std::string* faults = nullptr) {
  RecordFile file;
  const Status status = parse_records(text, "r.jsonl", &file);
  if (faults != nullptr) {
    *faults = status.to_string();
  } else {
    EXPECT_EQ(status.to_string(), "ok");
  }
  return file;
}

std::string faults_of(const std::string& text) {
  std::string faults;
  parsed(text, &faults);
  return faults;
}

TEST(Records, EveryFieldIsRead) {
  const RecordFile file = parsed(small_record().dump());
  ASSERT_EQ(file.cases.size(), 1u);
  EXPECT_EQ(file.cases[0].verdict, Verdict::kExact);
  EXPECT_EQ(file.cases[0].title, "a title");
  const Record& r = file.cases[0].record;
  EXPECT_EQ(r.id + ' ' + r.variant, "G36 n.global.sub");
  ASSERT_EQ(r.steps.size(), 3u);
  EXPECT_EQ(r.steps[0].call, "cudaStreamBeginCapture");
  EXPECT_EQ(r.steps[0].ret, 0);
  EXPECT_FALSE(r.steps[0].thread_b);
  EXPECT_EQ(r.steps[1].ret, 903);
  EXPECT_EQ(r.steps[1].out, "graph=null");
  EXPECT_TRUE(r.steps[1].thread_b);
  EXPECT_EQ(r.steps[2].ret, std::nullopt);
  EXPECT_EQ(r.capture_status, (std::vector<std::string>{"s=active@1", "s=invalidated@2"}));
  ASSERT_EQ(r.graphs.size(), 2u);
  EXPECT_EQ(r.graphs[0].label, "g");
  EXPECT_EQ(r.graphs[0].order, (std::vector<std::string>{"kernel:fill:7", "kernel:struct"}));
  EXPECT_EQ(r.graphs[0].edges.at(0), (std::pair{0, 1}));
  EXPECT_EQ(r.graphs[0].edge_data.at(0), (std::array{0, 1, 0, 1}));
  EXPECT_TRUE(r.graphs[1].null);
  EXPECT_EQ(r.buffers.at("A"), (std::vector<int32_t>{1, -2}));
  EXPECT_FALSE(r.buffers.contains("B"));
  EXPECT_EQ(r.buffer_errors.at("B"), 700);
  EXPECT_EQ(r.facts.at("same"), Fact(true));
  EXPECT_EQ(r.facts.at("ordinal"), Fact(int64_t{-1}));
  EXPECT_EQ(r.facts.at("name"), Fact("cudaErrorInvalidValue"));
  EXPECT_EQ(r.host_calls, 2);
  EXPECT_FALSE(r.complete);
}

TEST(Records, EveryFieldSurvivesWritingAndReading) {
  const std::string path = ::testing::TempDir() + "records_test.jsonl";
  const RecordFile file = parsed(small_record().dump());
  ASSERT_TRUE(write_records(path, "a device", "1.2.3", file.cases).ok());
  RecordFile again;
  ASSERT_EQ(read_records(path, &again).to_string(), "ok");
  EXPECT_EQ(again.recorded_on, "a device, version 1.2.3");
  std::ifstream in(path);
  std::string env, line;
  std::getline(in, env), std::getline(in, line);
  json expected = small_record();
  for (const char* not_kept : {"nodes", "edges", "timeout", "exit", "note"})
    expected.erase(not_kept);
  expected["steps"][0].erase("args");
  expected["steps"][1]["name"] = "cudaErrorStreamCaptureUnmatched";
  EXPECT_EQ(json::parse(line), expected);
  std::filesystem::remove(path);
}

TEST(Records, TheEnvironmentIsRememberedAndNoCase) {
  const RecordFile file = parsed(
      R"({"id": "_env", "init": 0, "driver": 13000, "runtime": 13000, "device": "NVIDIA H200"})");
  EXPECT_TRUE(file.cases.empty());
  EXPECT_EQ(file.recorded_on, "NVIDIA H200, driver 13000, runtime 13000");
}

TEST(Records, ABadLineIsNamedAndTheOthersAreRead) {
  json bad = small_record(), other = small_record();
  bad["steps"][1]["ret"] = "zero";
  other["variant"] = "b.global";
  std::string faults;
  const RecordFile file =
      parsed(small_record().dump() + '\n' + bad.dump() + '\n' + other.dump() + '\n', &faults);
  EXPECT_EQ(file.cases.size(), 2u);
  EXPECT_NE(faults.find("steps[1].ret"), std::string::npos) << faults;
  RecordFile named;
  EXPECT_EQ(
      std::as_const(parse_records(small_record().dump() + "\n{", "r.jsonl", &named).findings()[0])
          .case_id,
      "r.jsonl:2");
}

TEST(Records, EveryMissingFieldIsSaidAtOnce) {
  const std::string faults = faults_of("{}");
  for (const char* field : {"id", "class", "variant", "steps", "capture_status", "graphs",
                            "buffers", "facts", "host_calls", "complete"}) {
    EXPECT_NE(faults.find(std::string(": ") + field + " is"), std::string::npos) << faults;
  }
}

TEST(Records, WhatIsNoRecordIsRefused) {
  const auto changed = [](const char* pointer, const json& value) {
    json record = small_record();
    record[json::json_pointer(pointer)] = value;
    return record.dump();
  };
  const std::string good = small_record().dump();
  ASSERT_EQ(faults_of(good), "ok");
  for (const std::string& bad : {std::string("x"),
                                 std::string("[]"),
                                 std::string("\n"),
                                 std::string("\xef\xbb\xbf{}"),
                                 good + good,
                                 good.substr(0, good.size() / 2),
                                 good + std::string(1, '\0'),
                                 changed("/class", "X"),
                                 changed("/steps", 7),
                                 changed("/steps/0", 7),
                                 changed("/steps/0/ret", 1e10),
                                 changed("/steps/0/ret", uint64_t{1} << 63),
                                 changed("/steps/1/thread", "C"),
                                 changed("/graphs/0/edges/0", {0, 2}),
                                 changed("/graphs/0/edges/0", {-1, 0}),
                                 changed("/graphs/0/edges/0", {0, 1, 2}),
                                 changed("/graphs/0/edge_data/0", {1, 0, 0, 0}),
                                 changed("/graphs/0/edge_data/0", {0, 256, 0, 0}),
                                 changed("/graphs/0/nodes/kernel", 3),
                                 changed("/graphs/0/order", json(1001, "empty")),
                                 changed("/buffers/A/0", 0.5),
                                 changed("/buffers/B", {{"fault", 1}}),
                                 changed("/facts/same", nullptr),
                                 changed("/facts/same", 1.5),
                                 changed("/facts/same", ~uint64_t{0}),
                                 changed("/host_calls", true),
                                 changed("/complete", 1),
                                 changed("/surprise", 1),
                                 changed("/steps/0/surprise", 1)}) {
    EXPECT_NE(faults_of(bad), "ok") << bad;
  }
}

TEST(Records, AKeyOccursOnceAndARecordToo) {
  const std::string good = small_record().dump();
  EXPECT_NE(faults_of(good.substr(0, good.size() - 1) + R"(,"id":"G36"})").find("io.key"),
            std::string::npos);
  EXPECT_NE(faults_of(good + '\n' + good).find("a second one of G36"), std::string::npos);
}

TEST(Records, NoNestingIsTooDeepToRefuse) {
  const std::string deep(100'000, '[');
  EXPECT_NE(faults_of(R"({"id":)" + deep), "ok");
  EXPECT_NE(faults_of(R"({"id":)" + deep + std::string(100'000, ']') + '}').find("levels"),
            std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::records_test
