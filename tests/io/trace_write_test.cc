// A line that is written is read as it was.
#include "io/traces/trace_write.h"

#include <gtest/gtest.h>

#include "io/traces/traces.h"

namespace shadowgraph {
namespace {

TEST(TraceWrite, ALineIsReadAsItWasWritten) {
  JsonValue::Object config, head;
  config["page_size"].value = uint64_t{4};
  config["window"].value = int64_t{-1};
  config["engine"].value = std::string("any");
  config["window_columns"].value = true;
  config["topk"].value = nullptr;
  head["id"].value = std::string("a \"line\"\n");
  head["backend"].value = std::string("laws"), head["mode"].value = std::string("decode");
  head["phase"].value = std::string("eager"), head["config"].value = config;
  head["list"].value = JsonValue::Array{JsonValue{uint64_t{1}}, JsonValue{0.5}};
  const RecordedFields input = {
      {"req_to_token", {"int32", {2, 2}, 2, {2, 5, 3, -10}, {}, true}},
      {"seq_lens", {"int64", {2}, 2, {5, INT64_MAX}}},
  };
  const RecordedFields expect = {
      {"custom_mask", {"bool", {1, 2, 2}, 2, {1, 0, 1, 1}}},
      {"empty", {"int32", {2, 0}, 0, {}}},
      {"max_seqlen_k", {"pyint", {}, 1, {INT64_MIN}}},
  };
  std::vector<TraceLine> lines;
  const std::string text = trace_text(head, input, expect);
  const Status status = parse_traces(text, "written", &lines);
  ASSERT_TRUE(status.ok()) << status.to_string() << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const TraceLine& line = lines.at(0);
  EXPECT_EQ(line.id, "a \"line\"\n");
  EXPECT_EQ(line.config.page_size, 4);
  EXPECT_EQ(line.config.window, -1);
  EXPECT_EQ(line.config.engine, "any");
  EXPECT_EQ(line.config.conventions.at("window_columns"), 1);
  EXPECT_EQ(line.config.nulls, std::vector<std::string>{"topk"});
  EXPECT_EQ(line.line_keys, std::vector<std::string>{"list"});
  const auto expect_same = [](const RecordedFields& read, const RecordedFields& written) {
    ASSERT_EQ(read.size(), written.size());
    for (const auto& [name, field] : written) {
      const RecordedField& got = read.at(name);
      EXPECT_EQ(got.dtype, field.dtype) << name;
      EXPECT_EQ(got.shape, field.shape) << name;
      EXPECT_EQ(got.cols, field.cols) << name;
      EXPECT_EQ(got.data, field.data) << name;
      EXPECT_EQ(got.pages, field.pages) << name;
      EXPECT_EQ(got.unreadable, "") << name;
    }
  };
  expect_same(line.input, input);
  expect_same(line.expect, expect);
}

}  // namespace
}  // namespace shadowgraph
