// Plans of FlashInfer's wrappers in a line: one field for each argument, and no plan is lost.
#include "io/traces/trace_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/traces/traces.h"

namespace shadowgraph::trace_calls_test {
namespace {

std::string line_of(const std::string& expect) {
  return R"({"id":"a","backend":"flashinfer","mode":"decode","phase":"eager","config":{},)"
         R"("input":{},"expect":)" +
         expect + "}\n";
}

TraceLine read(const std::string& expect) {
  std::vector<TraceLine> lines;
  EXPECT_EQ(parse_traces(line_of(expect), "f", &lines).to_string(), "ok");
  return lines.empty() ? TraceLine{} : lines[0];
}

std::vector<std::string> names(const RecordedFields& fields) {
  std::vector<std::string> all;
  for (const auto& [name, field] : fields) all.push_back(name);
  return all;
}

TEST(TraceCalls, AWrapperHasTheRoleOfItsStepWhicheverGraphItIsOf) {
  EXPECT_EQ(wrapper_role("decode_wrappers[0]"), (WrapperRole{"decode[0]", 0}));
  EXPECT_EQ(wrapper_role("decode_cuda_graph_metadata[8][1]"), (WrapperRole{"decode[1]", 8}));
  EXPECT_EQ(wrapper_role("prefill_wrappers_paged[1]"), (WrapperRole{"paged[1]", 0}));
  EXPECT_EQ(wrapper_role("prefill_wrappers_verify[0]"), (WrapperRole{"paged[0]", 0}));
  EXPECT_EQ(wrapper_role("prefill_cuda_graph_metadata[16][1]"), (WrapperRole{"paged[1]", 16}));
  EXPECT_EQ(wrapper_role("draft_extend_cuda_graph_metadata[4][0]"), (WrapperRole{"paged[0]", 4}));
  EXPECT_EQ(wrapper_role("prefill_wrapper_ragged"), (WrapperRole{"ragged", 0}));
  for (const char* name :
       {"", "decode_wrappers", "decode_wrappers[]", "decode_wrappers[x]", "decode_wrappers[0",
        "decode_wrappers0]", "decode_wrappers[2][0]", "decode_cuda_graph_metadata[0]",
        "decode_wrappers[-1]", "prefill_wrapper_ragged[0]", "decode_wrapper[0]", "[0]"})
    EXPECT_EQ(wrapper_role(name), WrapperRole{}) << name;
}

TEST(TraceCalls, ArgumentsAreFieldsOfTheirWrapper) {
  const TraceLine line = read(R"({"calls":[
      {"wrapper":"prefill_wrapper_ragged","call":"plan","qo_indptr":[0,2]},
      {"wrapper":"prefill_wrappers_paged[0]","call":"plan","kv_indptr":[0,3],"custom_mask":null},
      {"wrapper":"prefill_wrapper_ragged","call":"plan","qo_indptr":[0,4]},
      {"wrapper":"prefill_wrappers_paged[1]","call":"plan","kv_indptr":[0,5]}],
      "use_ragged":{"dtype":"pybool","shape":[],"data":1}})");
  EXPECT_EQ(names(line.expect),
            (std::vector<std::string>{"paged[0].kv_indptr", "paged[1].kv_indptr",
                                      "ragged[0].qo_indptr", "ragged[1].qo_indptr", "use_ragged"}));
  EXPECT_EQ(line.expect.at("ragged[1].qo_indptr").data[1], 4);
  EXPECT_EQ(line.null_fields, std::vector<std::string>{"paged[0].custom_mask"});
  ASSERT_EQ(line.calls.size(), 4U);
  EXPECT_EQ(line.calls[2].name, "ragged[1]");
  EXPECT_EQ(line.calls[3].kind, "plan");
}

TEST(TraceCalls, TheLastPlanOfAWrapperIsKeptAndEveryOtherIsListed) {
  const TraceLine line = read(R"({"calls":[
      {"wrapper":"decode_wrappers[0]","call":"plan","kv_indptr":[0,1]},
      {"wrapper":"decode_cuda_graph_metadata[2][0]","call":"fast_decode_plan","kv_indptr":[0,2]},
      {"wrapper":"mystery","call":"plan","kv_indptr":[0,3]}]})");
  EXPECT_EQ(names(line.expect), std::vector<std::string>{"decode[0].kv_indptr"});
  EXPECT_EQ(line.expect.at("decode[0].kv_indptr").data[1], 2);
  ASSERT_EQ(line.calls.size(), 3U);
  EXPECT_EQ(line.calls[0].name, "");
  EXPECT_EQ(line.calls[0].wrapper, "decode_wrappers[0]");
  EXPECT_EQ(line.calls[1].bucket, 2);
  EXPECT_EQ(line.calls[2].name, "");
}

TEST(TraceCalls, AListOfNoPlansSaysSo) {
  EXPECT_TRUE(read(R"({"calls":[]})").no_calls);
  for (const char* expect : {"{}", R"({"calls":null})", R"({"calls":{}})"})
    EXPECT_FALSE(read(expect).no_calls) << expect;
}

TEST(TraceCalls, AListOfAnythingElseIsAFieldOfThatName) {
  for (const char* list : {R"([{"call":"plan"}])", R"([{"wrapper":"decode_wrappers[0]"}])",
                           R"([{"wrapper":1,"call":"plan"}])", "[[\"plan\"]]", "{}"}) {
    const TraceLine line = read(R"({"calls":)" + std::string(list) + "}");
    EXPECT_TRUE(line.calls.empty()) << list;
    EXPECT_EQ(names(line.expect), std::vector<std::string>{"calls"}) << list;
    EXPECT_FALSE(line.expect.at("calls").unreadable.empty()) << list;
  }
}

TEST(TraceCalls, AnArgumentIsSaidOnce) {
  std::vector<TraceLine> lines;
  const Status status = parse_traces(line_of(R"({"calls":[
      {"wrapper":"decode_wrappers[0]","call":"plan","kv_indptr":[0,1]}],
      "decode[0].kv_indptr":[0,1]})"),
                                     "f", &lines);
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].id, "io.line");
  EXPECT_TRUE(lines.empty());
}

TEST(TraceCalls, AFaultInAnArgumentNamesIt) {
  std::vector<TraceLine> lines;
  const Status status = parse_traces(line_of(R"({"calls":[
      {"wrapper":"decode_wrappers[0]","call":"plan",
       "kv_indptr":{"dtype":"int32","shape":[3],"data":[0,1]}}]})"),
                                     "f", &lines);
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].where.field, "expect.decode[0].kv_indptr.data");
}

}  // namespace
}  // namespace shadowgraph::trace_calls_test
