// A line that is written is read as it was.
#include "io/traces/trace_write.h"

#include <gtest/gtest.h>

#include <tuple>

#include "io/traces/traces.h"

namespace shadowgraph::trace_write_test {
namespace {

void expect_same(const RecordedFields& read, const RecordedFields& written) {
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
}

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
  TraceLine made;
  made.input = {
      {"req_to_token", {"int32", {2, 2}, 2, {2, 5, 3, -10}, {}, true}},
      {"seq_lens", {"int64", {2}, 2, {5, INT64_MAX}}},
  };
  made.expect = {
      {"custom_mask", {"bool", {1, 2, 2}, 2, {1, 0, 1, 1}}},
      {"empty", {"int32", {2, 0}, 0, {}}},
      {"max_seqlen_k", {"pyint", {}, 1, {INT64_MIN}}},
      {"decode[0].indptr", {"int32", {2}, 2, {0, 3}}},
  };
  made.null_inputs = {"positions"}, made.null_fields = {"window"};
  made.calls = {{"decode_wrappers[0]", "", "plan", 0},
                {"decode_wrappers[0]", "decode[0]", "plan", 0}};
  const std::vector<RecordedFields> arguments = {{{"indptr", {"int32", {2}, 2, {0, 9}}}},
                                                 {{"indptr", {"int32", {2}, 2, {0, 3}}}}};
  JsonValue::Object raised;
  raised["type"].value = std::string("IndexError"), raised["msg"].value = std::string("3");
  const JsonValue exception{raised};
  std::vector<TraceLine> lines;
  const std::string text = trace_text({head, made, arguments, &exception});
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
  EXPECT_EQ(line.null_inputs, made.null_inputs);
  EXPECT_EQ(line.null_fields, made.null_fields);
  EXPECT_EQ(line.exception, "IndexError: 3");
  ASSERT_EQ(line.calls.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(line.calls[i].wrapper, made.calls[i].wrapper);
    EXPECT_EQ(line.calls[i].name, made.calls[i].name);
    EXPECT_EQ(line.calls[i].kind, "plan");
  }
  expect_same(line.input, made.input);
  expect_same(line.expect, made.expect);
}

TEST(TraceWrite, ManyElementsAreBytesAndReadAsTheyWere) {
  JsonValue::Object head;
  head["id"].value = std::string("many"), head["backend"].value = std::string("laws");
  head["mode"].value = std::string("decode"), head["phase"].value = std::string("eager");
  head["config"].value = JsonValue::Object{};
  TraceLine made;
  for (const auto& [dtype, low, high] : {std::tuple<const char*, int64_t, int64_t>{"bool", 0, 1},
                                         {"int8", -128, 127},
                                         {"uint8", 0, 255},
                                         {"int32", INT32_MIN, INT32_MAX},
                                         {"int64", INT64_MIN, INT64_MAX}}) {
    for (const int64_t length : {64, 65, 66, 67}) {  // the first is written as numbers
      std::vector<int64_t> data;
      for (int64_t i = 0; i < length; ++i) data.push_back(i % 2 == 0 ? low : high);
      made.expect[dtype + std::to_string(length)] = {dtype, {length}, length, data};
    }
  }
  made.input = {{"seq_lens", {"int64", {1}, 1, {5}}},
                {"req_pool_indices", {"int64", {1}, 1, {0}}},
                {"req_to_token", {"int32", {1, 65}, 65, std::vector<int64_t>(65, 7), {}, true}}};
  std::vector<TraceLine> lines;
  const std::string text = trace_text({head, made, {}, nullptr});
  const Status status = parse_traces(text, "written", &lines);
  ASSERT_TRUE(status.ok()) << status.to_string() << text;
  expect_same(lines.at(0).input, made.input);
  expect_same(lines.at(0).expect, made.expect);
  EXPECT_NE(text.find(R"("int865":{"dtype":"int8","shape":[65],"b64":"gH+A)"), std::string::npos);
  EXPECT_NE(text.find(R"("int864":{"dtype":"int8","shape":[64],"data":[-128,)"), std::string::npos);
}

TEST(TraceWrite, NoPlanIsOtherThanNoWordOfPlans) {
  JsonValue::Object head;
  for (const char* key : {"id", "backend", "mode", "phase"}) head[key].value = std::string("x");
  head["config"].value = JsonValue::Object{};
  for (const bool no_calls : {false, true}) {
    TraceLine made;
    made.no_calls = no_calls;
    std::vector<TraceLine> lines;
    ASSERT_TRUE(parse_traces(trace_text({head, made, {}}), "written", &lines).ok());
    EXPECT_EQ(lines.at(0).no_calls, no_calls);
  }
}

}  // namespace
}  // namespace shadowgraph::trace_write_test
