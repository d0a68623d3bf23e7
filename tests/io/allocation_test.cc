// Out of memory is an ordinary finding: the n-th allocation fails, for every n.
#include <gtest/gtest.h>

#include "allocations.h"
#include "io/recorded/recorded_cases.h"
#include "io/safetensors_bytes.h"

namespace shadowgraph::allocation_test {
namespace {

/// Runs body() -> Status with the first, second, ... allocation failing, until it needs fewer;
/// returns how many.
template <class Body>
long fail_every_allocation(const Body& body) {
  for (long n = 0;; ++n) {
    allocations::left = n, allocations::then = allocations::Then::kNoneFails;
    const Status status = body();
    const bool failed = allocations::left < 0;
    allocations::left = -1;
    if (!failed) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      return n;
    }
    EXPECT_EQ(status.findings().size(), 1u) << n;
    for (const Finding& finding : status.findings()) EXPECT_EQ(finding.id, "io.memory") << n;
  }
}

TEST(Allocation, EveryFailureWhileParsingIsAFinding) {
  const auto bytes = std::make_shared<const Bytes>(
      file_of(R"({"__metadata__":{"a long enough key":"a text that no small string holds"},)"
              R"("a long enough tensor name":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]},)"
              R"("another long tensor name":{"dtype":"U16","shape":[],"data_offsets":[2,4]}})",
              "abcd"));
  EXPECT_GT(fail_every_allocation([&] {
              SafetensorsFile file;
              Status status = parse_safetensors(bytes, "test", &file);
              EXPECT_EQ(status.ok(), file.bytes != nullptr);
              return status;
            }),
            10);
}

TEST(Allocation, EveryFailureWhileReadingVectorsLeavesTheListsAlone) {
  const std::vector<float> v(6), s(3), out(2), lse(1);
  SafetensorsFile file;
  file.metadata["case000"] =
      R"({"kind":"merge","num_qo_heads":1,"num_kv_heads":1,"head_dim":2,"page_size":1,"batch":1,)"
      R"("sm_scale":1,"lse_base":2,"num_states":3})";
  file.tensors["case000/v"] = {v.data(), DType::kF32, {1, 3, 1, 2}};
  file.tensors["case000/s"] = {s.data(), DType::kF32, {1, 3, 1}};
  file.tensors["case000/out"] = {out.data(), DType::kF32, {1, 1, 2}};
  file.tensors["case000/lse"] = {lse.data(), DType::kF32, {1, 1}};
  EXPECT_GT(fail_every_allocation([&] {
              std::vector<RecordedCase> cases;
              std::vector<SkippedCase> skipped;
              Status status = parse_recorded_cases(file, "test", &cases, &skipped);
              EXPECT_EQ(status.ok(), !cases.empty());
              return status;
            }),
            10);
}

TEST(Allocation, EveryFailureWhileReadingRecurrentVectorsLeavesTheListsAlone) {
  const std::vector<float> values(4);
  const std::vector<int32_t> slots(1, -1);
  SafetensorsFile file;
  file.metadata["case000"] =
      R"({"system":"conv","kind":"conv_update","dtype":"torch.float32","B":1,"steps":1,"dim":2,)"
      R"("width":2,"activation":"silu","tree":false,"pad_rows":[0]})";
  for (const char* name : {"x", "out", "out_ref"})
    file.tensors[std::string("case000/") + name] = {values.data(), DType::kF32, {1, 1, 2}};
  for (const char* name : {"conv_state_before", "conv_state_after", "state_ref"})
    file.tensors[std::string("case000/") + name] = {values.data(), DType::kF32, {1, 2, 1}};
  file.tensors["case000/weight"] = {values.data(), DType::kF32, {2, 2}};
  file.tensors["case000/conv_state_indices"] = {slots.data(), DType::kI32, {1}};
  EXPECT_GT(fail_every_allocation([&] {
              std::vector<RecordedCase> cases;
              std::vector<SkippedCase> skipped;
              Status status = parse_recorded_cases(file, "test", &cases, &skipped);
              EXPECT_EQ(status.ok(), !cases.empty());
              return status;
            }),
            20);
}

TEST(Allocation, WhetherAFileHoldsRecurrentVectorsIsFalseWithoutMemory) {
  SafetensorsFile file;
  file.metadata["case000"] = R"({"system":"lightning","kind":"a text that no small string holds"})";
  for (long n = 0;; ++n) {
    allocations::left = n, allocations::then = allocations::Then::kNoneFails;
    const bool holds = names_systems(file);
    const bool failed = allocations::left < 0;
    allocations::left = -1;
    EXPECT_EQ(holds, !failed) << n;
    if (!failed) break;
  }
}

}  // namespace
}  // namespace shadowgraph::allocation_test
