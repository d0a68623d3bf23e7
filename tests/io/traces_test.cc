// Reading engine traces: every recorded line, and what strangers may send instead of one.
#include "io/traces/traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "core/laws.h"

namespace shadowgraph::traces_test {
namespace {

namespace fs = std::filesystem;

const std::string kLine =
    R"({"id":"a","backend":"flashattention","mode":"decode","phase":"eager",)"
    R"("config":{"page_size":4,"max_context_len":48,"pool_pages":64,"window":7,"topk":null},)"
    R"("input":{"seq_lens":{"dtype":"int64","shape":[2],"data":[5,9]}},)"
    R"("expect":{"page_table":{"dtype":"int32","shape":[2,6],"cols":3,"extent":[2,3],)"
    R"("data":[[1,2,0],[3,4,-7777]]},"max_seq_len_q":{"dtype":"pyint","shape":[],"data":1}}})";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

struct Parsed {
  Status status;
  std::vector<TraceLine> lines;
};
Parsed parse(const std::string& text) {
  Parsed p;
  p.status = parse_traces(text, "f.jsonl", &p.lines);
  return p;
}

TEST(Traces, ALineIsReadAsItStands) {
  const Parsed p = parse(kLine + "\r\n\n");
  ASSERT_EQ(p.status.to_string(), "ok");
  ASSERT_EQ(p.lines.size(), 1U);
  const TraceLine& line = p.lines[0];
  EXPECT_EQ(line.id, "a");
  EXPECT_EQ(line.config.page_size, 4);
  EXPECT_EQ(line.config.pool_pages, 64);
  EXPECT_EQ(line.config.window, 7);
  EXPECT_EQ(line.config.topk, 0);
  EXPECT_EQ(line.input.at("seq_lens").data, (std::vector<int64_t>{5, 9}));
  const RecordedField& table = line.expect.at("page_table");
  EXPECT_EQ(table.shape, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(table.cols, 3);
  EXPECT_EQ(table.data, (std::vector<int64_t>{1, 2, 0, 3, 4, -7777}));
  EXPECT_TRUE(line.expect.at("max_seq_len_q").shape.empty());
}

TEST(Traces, ABadLineIsNamedWithLineAndColumnAndTheOthersAreRead) {
  const Parsed p =
      parse(kLine + "\n{\"id\":\"b\",}\n" + replaced(kLine, R"("id":"a")", R"("id":"c")") + "\n");
  ASSERT_EQ(p.lines.size(), 2U);
  EXPECT_EQ(p.lines[1].line, 3U);
  ASSERT_EQ(p.status.findings().size(), 1U);
  const Finding& f = p.status.findings()[0];
  EXPECT_EQ(f.id, "io.line");
  EXPECT_EQ(f.case_id, "f.jsonl");
  EXPECT_EQ(f.where.row, 2);
  EXPECT_TRUE(f.got.ends_with("at column 11") || f.got.ends_with("at column 12")) << f.got;
}

TEST(Traces, TwoLinesOfOneIdAreNamed) {
  const Parsed p =
      parse(kLine + '\n' + replaced(kLine, R"("id":"a")", R"("id":"b")") + "\n\n" + kLine);
  ASSERT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
  EXPECT_EQ(p.status.findings()[0].where, at("id", 4));
  EXPECT_EQ(p.status.findings()[0].got, R"("a", as line 1)");
}

TEST(Traces, AContextOfNoTokensIsRefused) {
  const Parsed p = parse(replaced(kLine, R"("max_context_len":48)", R"("max_context_len":0)"));
  ASSERT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
  EXPECT_EQ(p.status.findings()[0].where.field, "config.max_context_len");
}

TEST(Traces, PagesHaveAPowerOfTwoOfTokens) {
  for (const int page_size : {1, 2, 3, 64, 96}) {
    const Parsed p = parse(
        R"({"id":"a","backend":"laws","mode":"decode","phase":"eager","config":{"page_size":)" +
        std::to_string(page_size) + R"(},"input":{},"expect":{}})");
    EXPECT_EQ(p.status.ok(), page_size != 3 && page_size != 96) << p.status.to_string();
  }
}

TEST(Traces, EveryFaultOfALineIsSaid) {
  const Parsed p = parse(
      R"({"id":7,"backend":"x","phase":"eager","config":{"page_size":0},"input":[],"expect":{}})");
  EXPECT_TRUE(p.lines.empty());
  std::vector<std::string> fields;
  for (const Finding& f : p.status.findings()) {
    EXPECT_EQ(f.id, "io.line");
    EXPECT_EQ(f.where.row, 1);
    fields.push_back(f.where.field);
  }
  EXPECT_EQ(fields, (std::vector<std::string>{"id", "mode", "config.page_size", "input"}));
}

TEST(Traces, WhatAShapePromisesMustBeThere) {
  const struct {
    const char *what, *by;
  } kFaults[] = {
      {"\"shape\":[2]", "\"shape\":[3]"},
      {"\"shape\":[2]", "\"shape\":[1099511627776]"},
      {"\"shape\":[2]", "\"shape\":[2,1099511627776]"},
      {"\"shape\":[2]", "\"shape\":[-1]"},
      {"\"shape\":[2]", "\"shape\":[18446744073709551615]"},
      {"\"shape\":[2]", "\"shape\":[1,1,1,1,2]"},
      {"\"cols\":3", "\"cols\":2"},
      {"\"cols\":3", "\"cols\":7"},
      {"\"shape\":[2,6]", "\"shape\":[2,2]"},
      {"[3,4,-7777]", "[3,4]"},
      {"[3,4,-7777]", "[3,4,null]"},
      {"[3,4,-7777]", "[3,4,9223372036854775808]"},
      {"\"max_context_len\":48", "\"max_context_len\":2147483648"},
  };
  for (const auto& fault : kFaults) {
    const Parsed p = parse(replaced(kLine, fault.what, fault.by));
    EXPECT_TRUE(p.lines.empty()) << fault.by;
    ASSERT_FALSE(p.status.ok()) << fault.by;
    EXPECT_EQ(p.status.findings()[0].id, "io.line") << fault.by;
  }
}

TEST(Traces, WhatNobodyKnowsIsKeptByName) {
  std::string text = replaced(kLine, "flashattention", "tomorrow");
  text = replaced(text, "\"page_size\":4", "\"page_size\":4,\"colour\":[1,{\"x\":2}]");
  text = replaced(text, "\"expect\":{",
                  R"("expect":{"calls":[{"q":{"dtype":"int32","shape":[1],)"
                  R"("data":[3]}}],"scale":{"dtype":"float32","shape":[2],)"
                  R"("data":[0.5,1]},)");
  const Parsed p = parse(text);
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).backend, "tomorrow");
  EXPECT_EQ(p.lines[0].expect.at("calls").unreadable, "a list with an object of 1");
  EXPECT_EQ(p.lines[0].expect.at("scale").unreadable, "of dtype float32");
  EXPECT_EQ(p.lines[0].config_keys, std::vector<std::string>{"colour"});
  EXPECT_TRUE(p.lines[0].expect.at("scale").data.empty());
}

TEST(Traces, PlainJsonIntegersAreScalarsAndVectors) {
  const Parsed p =
      parse(replaced(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", "[5,9]"),
                     R"({"dtype":"pyint","shape":[],"data":1})", "1"));
  ASSERT_EQ(p.status.to_string(), "ok");
  const RecordedField& lens = p.lines.at(0).input.at("seq_lens");
  EXPECT_EQ(lens.unreadable, "");
  EXPECT_EQ(lens.shape, std::vector<int64_t>{2});
  EXPECT_EQ(lens.cols, 2);
  EXPECT_EQ(lens.data, (std::vector<int64_t>{5, 9}));
  const RecordedField& longest = p.lines[0].expect.at("max_seq_len_q");
  EXPECT_TRUE(longest.shape.empty());
  EXPECT_EQ(longest.data, std::vector<int64_t>{1});
}

TEST(Traces, WhatIsNoArrayOfIntegersSaysWhatItIs) {
  const std::string kLens = R"({"dtype":"int64","shape":[2],"data":[5,9]})";
  const std::pair<const char*, const char*> kOthers[] = {
      {R"({"dtype":"int64","shape":[2],"data":[5,9.5]})", "the float 9.5"},
      {R"({"dtype":"int64","shape":[2],"data":[5.0,9]})", "the float 5"},
      {R"({"dtype":"int33","shape":[2],"data":[5,9]})", "of dtype int33; did you mean int32?"},
      {R"({"dtype":"int8","shape":[2],"data":[5,128]})", "a value that int8 cannot hold"},
      {R"({"dtype":"int32","shape":[2],"data":[5,-2147483649]})", "a value that int32 cannot hold"},
      {R"({"dtype":"uint8","shape":[2],"data":[5,-1]})", "a value that uint8 cannot hold"},
      {R"({"dtype":"int64","shape":[2],"data":[5,"9"]})", "\"9\""},
      {"[5,[9]]", "a list with a list of 1"},
      {"[[5],9]", "a list with 9"},
      {"[[5,7],[9]]", "lists of 2 and of 1 elements"},
      {"[5,true]", "a list with true"},
      {"[true,5]", "a list with 5"},
      {"5.5", "the float 5.5"},
      {"\"5\"", "\"5\""},
      {R"({"dtype":"int64","shape":[2]})", "an object without data or pages"},
  };
  for (const auto& [text, what] : kOthers) {
    const Parsed p = parse(replaced(kLine, kLens, text));
    ASSERT_EQ(p.status.to_string(), "ok") << text;
    EXPECT_EQ(p.lines.at(0).input.at("seq_lens").unreadable, what);
    EXPECT_TRUE(p.lines[0].input.at("seq_lens").data.empty());
  }
  for (const char* text : {R"({"dtype":"bool","shape":[2],"data":[true,0]})",
                           R"({"dtype":"int32","shape":[2],"data":[2147483647,-2147483648]})"}) {
    const Parsed p = parse(replaced(kLine, kLens, text));
    EXPECT_EQ(p.lines.at(0).input.at("seq_lens").unreadable, "") << text;
  }
}

TEST(Traces, ATruthIsNoLength) {
  EXPECT_FALSE(parse(replaced(kLine, "[5,9]", "[true,9]")).status.ok());
  EXPECT_FALSE(parse(replaced(kLine, "\"page_size\":4", "\"page_size\":true")).status.ok());
}

TEST(Traces, NullIsNothingAndKeptByName) {
  const Parsed p = parse(replaced(replaced(kLine, "\"input\":{", "\"input\":{\"positions\":null,"),
                                  "\"expect\":{", "\"expect\":{\"x\":null,"));
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).null_inputs, std::vector<std::string>{"positions"});
  EXPECT_EQ(p.lines[0].null_fields, std::vector<std::string>{"x"});
  EXPECT_FALSE(p.lines[0].input.contains("positions"));
}

TEST(Traces, KeysThatAreNotReadAreKeptByName) {
  const Parsed p = parse(replaced(replaced(kLine, "\"page_size\":4", "\"pagesize\":4"),
                                  "\"id\":", "\"raw_bs\":1,\"id\":"));
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).line_keys, std::vector<std::string>{"raw_bs"});
  EXPECT_EQ(p.lines[0].config_keys, std::vector<std::string>{"pagesize"});
}

/// The line, laid out over several.
std::string pretty() { return replaced(kLine, ",\"config\"", ",\n  \"config\"") + "\n"; }

TEST(Traces, OneObjectMayBeLaidOutOverSeveralLines) {
  const Parsed p = parse(pretty());
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.size(), 1U);
}

TEST(Traces, SeveralObjectsOverSeveralLinesAreRefusedOnceWithTheWayOut) {
  for (const std::string& text :
       {pretty() + pretty(), '[' + kLine + "]\n", "{\n" + kLine + "\n}"}) {
    const Parsed p = parse(text);
    EXPECT_TRUE(p.lines.empty());
    ASSERT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
    EXPECT_EQ(p.status.findings()[0].id, "io.line");
    EXPECT_NE(p.status.findings()[0].expected.find("jq -c . FILE"), std::string::npos);
  }
}

TEST(Traces, AFirstLineThatIsCutOffHidesNoOther) {
  for (const char end : {',', '{', ':', '['}) {
    const std::string cut = kLine.substr(0, kLine.find(end) + 1);
    const Parsed p = parse("\n" + (cut == "{" ? R"({"id": {)" : cut) + "\n\n" + kLine + "\n{\n");
    EXPECT_EQ(p.lines.size(), 1U) << end;
    ASSERT_EQ(p.status.findings().size(), 2U) << p.status.to_string();
    EXPECT_EQ(p.status.findings()[0].where.row, 2);
    EXPECT_EQ(p.status.findings()[1].where.row, 5);
  }
}

TEST(Traces, AByteOrderMarkIsPassedOver) {
  EXPECT_EQ(parse("\xef\xbb\xbf" + kLine).lines.size(), 1U);
}

TEST(Traces, AnArchiveIsNamed) {
  const Parsed p = parse("\x1f\x8b\x08" + kLine);
  ASSERT_EQ(p.status.findings().size(), 1U);
  EXPECT_EQ(p.status.findings()[0].id, "io.kind");
  EXPECT_NE(p.status.findings()[0].expected.find("gzip -dc"), std::string::npos);
}

TEST(Traces, ARaisedExceptionAndAccessesOutsideAreKeptInWords) {
  std::string text =
      replaced(kLine, "\"expect\":{",
               R"("triton_oob":[{"kind":"oob_store","kernel":"k","first_off":64,"size":64}],)"
               R"("expect":{"exception":{"type":"IndexError","msg":"index 68"},)");
  const Parsed p = parse(text);
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).exception, "IndexError: index 68");
  EXPECT_EQ(p.lines[0].triton_oob, std::vector<std::string>{"oob_store by k at offset 64 of 64"});
  EXPECT_FALSE(p.lines[0].expect.contains("exception"));
}

TEST(Traces, WhatIsNoExceptionListOrNameIsSaid) {
  const struct {
    const char *what, *by, *field;
  } kFaults[] = {
      {"\"expect\":{", R"("expect":{"exception":7,)", "expect.exception"},
      {"\"expect\":{", R"("expect":{"exception":{"type":"E"},)", "expect.exception"},
      {"\"expect\":{", R"("expect":{"exception":{"msg":"m"},)", "expect.exception"},
      {"\"expect\":{", R"("expect":{"exception":{"type":1,"msg":"m"},)", "expect.exception"},
      {"\"expect\":{", R"("triton_oob":{"kind":"k"},"expect":{)", "triton_oob"},
      {"\"config\":{", R"("config":{"seq_lens_semantics":7,)", "config.seq_lens_semantics"},
      {"\"dtype\":\"int64\",\"shape\":[2]", R"("dtype":"int64","shape":[2],"cols":"all")",
       "input.seq_lens.cols"},
  };
  for (const auto& fault : kFaults) {
    const Parsed p = parse(replaced(kLine, fault.what, fault.by));
    EXPECT_TRUE(p.lines.empty()) << fault.by;
    ASSERT_EQ(p.status.findings().size(), 1U) << fault.by;
    EXPECT_EQ(p.status.findings()[0].where.field, fault.field) << fault.by;
  }
}

TEST(Traces, ALineHasItsThreeObjects) {
  for (const char* key : {"config", "input", "expect"}) {
    const std::string quoted = std::string("\"") + key + "\":";
    for (const Parsed& p : {parse(replaced(kLine, quoted, "\"other\":")),
                            parse(replaced(kLine, quoted, quoted + "7,\"other\":"))}) {
      ASSERT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
      EXPECT_EQ(p.status.findings()[0].where.field, key);
      EXPECT_EQ(p.status.findings()[0].expected, "an object");
    }
  }
}

TEST(Traces, WhatAnArrayDoesNotSayFollowsFromItsData) {
  struct Array {
    const char* text;
    const char* dtype;
    std::vector<int64_t> shape, data;
    bool pages = false;
  };
  const Array kArrays[] = {
      {"7", "pyint", {}, {7}},
      {"[5,9]", "pylist", {2}, {5, 9}},
      {"[[5,9,1],[2,3,4]]", "pylist", {2, 3}, {5, 9, 1, 2, 3, 4}},
      {"[[],[]]", "pylist", {2, 0}, {}},
      {"[[[1],[2]]]", "pylist", {1, 2, 1}, {1, 2}},
      {"[[true,false]]", "pybool", {1, 2}, {1, 0}},
      {R"({"data":[[5,9]]})", "pylist", {1, 2}, {5, 9}},
      {R"({"dtype":"int32","data":[[5],[9]]})", "int32", {2, 1}, {5, 9}},
      {R"({"shape":[2],"data":[5,9]})", "pylist", {2}, {5, 9}},
      {R"({"shape":[2,1],"data":[5,9]})", "pylist", {2, 1}, {5, 9}},
      {R"({"dtype":"torch.int32","shape":[2],"data":[5,9]})", "int32", {2}, {5, 9}},
      {R"({"pages":[[5,9]]})", "pylist", {1, 2}, {5, 9}, true},
      {R"({"dtype":"int32","shape":[2],"b64":"BQAAAAkAAAA="})", "int32", {2}, {5, 9}},
      {R"({"dtype":"torch.int16","shape":[2,1],"b64":"//8JAA=="})", "int16", {2, 1}, {-1, 9}},
      {R"({"pages":{"dtype":"uint16","shape":[1,2],"b64":"//8JAA=="}})",
       "uint16",
       {1, 2},
       {65535, 9},
       true},
      {R"({"dtype":"int64","shape":[0],"b64":""})", "int64", {0}, {}},
  };
  for (const Array& a : kArrays) {
    const Parsed p =
        parse(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", a.text));
    ASSERT_EQ(p.status.to_string(), "ok") << a.text;
    const RecordedField& f = p.lines.at(0).input.at("seq_lens");
    EXPECT_EQ(f.unreadable, "") << a.text;
    EXPECT_EQ(f.dtype, a.dtype) << a.text;
    EXPECT_EQ(f.shape, a.shape) << a.text;
    EXPECT_EQ(f.data, a.data) << a.text;
    EXPECT_EQ(f.pages, a.pages) << a.text;
  }
}

TEST(Traces, BytesAreBase64OfASizeThatDtypeAndShapeSay) {
  const struct {
    const char *field, *got;
  } kFaults[] = {
      {R"({"dtype":"int32","shape":[3],"b64":"BQAAAAkAAAA="})", "8"},
      {R"({"dtype":"int32","shape":[2],"b64":"BQAAAAkAAAA"})", "other characters"},
      {R"({"dtype":"int32","shape":[2],"b64":"BQAA*AkAAAA="})", "other characters"},
      {R"({"dtype":"int32","shape":[2],"b64":"BQAA=AkAAAA="})", "other characters"},
      {R"({"dtype":"int32","shape":[2],"b64":7})", "7"},
      {R"({"dtype":"int32","b64":"BQAAAAkAAAA="})", "without one"},
      {R"({"shape":[2],"b64":"BQAAAAkAAAA="})", "without one"},
      {R"({"dtype":"pyint","shape":[2],"b64":"BQAAAAkAAAA="})", "without one"},
  };
  for (const auto& fault : kFaults) {
    const Parsed p =
        parse(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", fault.field));
    ASSERT_EQ(p.status.findings().size(), 1U) << fault.field;
    EXPECT_NE(p.status.findings()[0].where.field.find("seq_lens.b64"), std::string::npos);
    EXPECT_TRUE(p.status.findings()[0].got.starts_with(fault.got)) << p.status.to_string();
  }
  for (const char* field : {R"({"dtype":"float32","shape":[2],"b64":"BQAAAAkAAAA="})",
                            R"({"dtype":"bool","shape":[2],"b64":"BQA="})",
                            R"({"dtype":"uint64","shape":[1],"b64":"//////////8="})"}) {
    const Parsed p = parse(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", field));
    ASSERT_EQ(p.status.to_string(), "ok") << field;
    EXPECT_NE(p.lines.at(0).input.at("seq_lens").unreadable, "") << field;
  }
}

TEST(Traces, AnArraysDtypeIsAWordAndItsShapeAList) {
  for (const char* field :
       {R"({"dtype":7,"shape":[2],"data":[5,9]})", R"({"dtype":"int64","shape":2,"data":[5,9]})"}) {
    const Parsed p = parse(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", field));
    EXPECT_EQ(p.status.findings().size(), 1U) << field;
  }
}

TEST(Traces, OnlyTheFirstThingThatIsNoIntegerIsNamed) {
  const Parsed p =
      parse(replaced(kLine, R"({"dtype":"int64","shape":[2],"data":[5,9]})", R"([1,"a",null])"));
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).input.at("seq_lens").unreadable, R"(a list with "a")");
}

TEST(Traces, NullIsNoExceptionNoAccessAndNoName) {
  std::string text =
      replaced(kLine, "\"expect\":{",
               R"("triton_oob":null,"source":{"role":7},"expect":{"exception":null,)");
  text = replaced(text, "\"config\":{", R"("config":{"seq_lens_semantics":null,)");
  const Parsed p = parse(text);
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_TRUE(p.lines.at(0).exception.empty());
  EXPECT_TRUE(p.lines[0].triton_oob.empty());
  EXPECT_TRUE(p.lines[0].config.seq_lens_semantics.empty());
  EXPECT_TRUE(p.lines[0].role.empty());
}

TEST(Traces, AnAccessOutsideIsKeptHoweverLittleIsSaidOfIt) {
  const Parsed p = parse(
      replaced(kLine, "\"expect\":{", R"("triton_oob":[{"kernel":"k","size":[1]}],"expect":{)"));
  ASSERT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(p.lines.at(0).triton_oob,
            std::vector<std::string>{"? by k at offset ? of a list of 1"});
}

TEST(Traces, DepthIsBounded) {
  const Parsed p = parse(replaced(kLine, "[5,9]", std::string(9, '[') + std::string(9, ']')));
  ASSERT_EQ(p.status.findings().size(), 1U);
  EXPECT_NE(p.status.findings()[0].expected.find("depth"), std::string::npos);
}

TEST(Traces, AnEmptyFileIsNoTrace) { EXPECT_EQ(parse("\n \n").status.findings()[0].id, "io.kind"); }

TEST(Traces, NothingIsReadOfAFileThatIsNotThere) {
  std::vector<TraceLine> lines;
  EXPECT_EQ(read_traces("/nowhere.jsonl", &lines).findings()[0].id, "io.open");
}

/// traces/*.jsonl of the folder that SHADOWGRAPH_VECTORS names; by default the curated ones.
TEST(Traces, EveryRecordedLineIsRead) {
  const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
  const fs::path root = fs::path(folder == nullptr ? SHADOWGRAPH_TEST_DATA : folder) / "traces";
  if (!fs::is_directory(root)) GTEST_SKIP() << "no traces in the folder of SHADOWGRAPH_VECTORS";
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() != ".jsonl") continue;
    std::vector<TraceLine> lines;
    EXPECT_EQ(read_traces(entry.path().string(), &lines).to_string(), "ok") << entry.path();
    std::ifstream file(entry.path());
    std::string text;
    size_t wanted = 0;
    while (std::getline(file, text)) wanted += !text.empty();
    EXPECT_EQ(lines.size(), wanted) << entry.path();
    for (const TraceLine& line : lines) {
      EXPECT_TRUE(line.input.contains("req_to_token")) << line.id;
      EXPECT_FALSE(line.role.empty()) << line.id;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::traces_test
