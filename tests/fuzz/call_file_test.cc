// The file of a call is the same call again, and hostile ones are refused; what fails is made
// small.
#include "fuzz/file/call_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "fuzz/call/generate.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::call_file_test {
namespace {

class CallFile : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  Status read(const std::string& text, CallCase* x) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_call(path_, x);
  }
  CallCase number(uint64_t i) {
    CallCase call;
    Choices choices = case_choices(3, i);
    call.x = generate(choices);
    call.choices = choices.made();
    return call;
  }

  const std::string path_ = ::testing::TempDir() + "call_file_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".json";
};

TEST_F(CallFile, GivesBackEveryNumber) {
  std::set<CaseKernel> kernels;
  for (uint64_t i = 0; i < 400; ++i) {
    const CallCase x = number(i);
    CallCase y;
    ASSERT_EQ(read(to_json(x), &y).to_string(), "ok") << x.x.to_string();
    EXPECT_EQ(y.x.to_string(), x.x.to_string());
    EXPECT_EQ(to_json(y), to_json(x));
    EXPECT_TRUE(is_call_file(path_));
    kernels.insert(x.x.kernel());
  }
  EXPECT_EQ(kernels.size(), 6u);
}

TEST_F(CallFile, WhatCannotRunIsRefused) {
  CallCase attention, linear, sparse;
  for (uint64_t i = 0; attention.x.as<AttentionCase>() == nullptr || i == 0; ++i)
    attention = number(i);
  for (uint64_t i = 0; linear.x.as<RecurrentCase>() == nullptr; ++i) linear = number(i);
  for (uint64_t i = 0; sparse.x.as<SparseCase>() == nullptr; ++i) sparse = number(i);
  const std::pair<const char*, const char*> slips[] = {
      {"\"head_dim_qk\": ", "0"},    {"\"num_kv_heads\": ", "7000"},
      {"\"page_size\": ", "0"},      {"\"q_len\": ", "-1"},
      {"\"kv_dtype\": ", "\"i32\""}, {"\"layout\": ", "\"nnn\""},
      {"\"width\": ", "9"},          {"\"tokens\": ", "-3"},
      {"\"head_dim_v\": ", "0"},     {"\"num_v_heads\": ", "0"},
      {"\"chunk_size\": ", "-1"},    {"\"dtype\": ", "\"e4m3\""},
      {"\"decay_rank\": ", "4"},     {"\"call\": ", "\"none\""},
      {"\"scale\": ", "\"x\""},      {"\"ratio\": ", "8"},
      {"\"topk\": ", "0"},           {"\"rope_dim\": ", "3"},
      {"\"head_dim\": ", "1025"},    {"\"heads\": ", "0"},
      {"\"count\": ", "-1"},         {"\"out_dtype\": ", "\"i8\""},
      {"\"requests\": ", "0"},       {"\"schema\": ", "\"other/1\""}};
  for (const auto& [field, value] : slips) {
    for (const CallCase* x : {&attention, &linear, &sparse}) {
      std::string text = to_json(*x);
      const size_t at = text.find(field);
      if (at == std::string::npos) continue;
      const size_t begin = at + std::string(field).size();
      text.replace(begin, text.find_first_of(",}\n", begin) - begin, value);
      CallCase y;
      y.law = "as it was";
      const Status status = read(text, &y);
      ASSERT_FALSE(status.ok()) << field;
      EXPECT_TRUE(status.findings()[0].id.starts_with("case.")) << status.to_string();
      EXPECT_EQ(y.law, "as it was");
    }
  }
}

TEST_F(CallFile, IsTheCallOfItsChoices) {
  RunOptions nowhere;
  nowhere.isa = "riscv";
  for (uint64_t i = 0; i < 20; ++i) {
    const Case x = fuzz_case(3, i);
    Choices choices = case_choices(3, i);
    (void)generate(choices);
    const CallCase call = call_of(choices.made(), nowhere);
    EXPECT_EQ(call.x.to_string(), x.to_string());
    const auto* linear = x.as<RecurrentCase>();
    const bool gate = linear != nullptr && linear->call == RecurrentCase::Call::kGate;
    EXPECT_EQ(call.law, gate ? "" : "input.isa");  // a gate has no instruction set
  }
}

}  // namespace
}  // namespace shadowgraph::call_file_test
