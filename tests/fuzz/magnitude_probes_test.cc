// Finite numbers in the place of infinities, and what else goes wrong only far from 0: calls as
// they are drawn find each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/float_formats.h"
#include "fuzz/call/attention_laws.h"
#include "fuzz/fuzz.h"
#include "testing/kernel_faults.h"

namespace shadowgraph::magnitude_probes_test {
namespace {

using testing::KernelOptions;
using testing::Sentinels;
using testing::TiledKernel;

// ---- kernels of users

KernelOptions support() {
  KernelOptions o;
  auto& s = o.support;
  s.calls = {testing::KernelCall::kPagedDecode, testing::KernelCall::kPagedExtend};
  s.terms = {testing::Term::kCausal, testing::Term::kWindowLeft, testing::Term::kSinks};
  s.types = {
      {}, {DType::kBF16, DType::kBF16, DType::kBF16}, {DType::kF16, DType::kF16, DType::kF16}};
  s.head_dims = {{16, 16}};
  s.page_sizes = {16};
  s.max_requests = 3, s.max_q_len = 4, s.max_kv_len = 192;
  o.calls = 1500;
  return o;
}

std::string first_law(const Sentinels& sentinels) {
  const Status status =
      check(support(), {.paged =
                            [&](const PagedAttention& call) {
                              TiledKernel(call, testing::Slip::kNone, sentinels).run();
                            },
                        .ragged = {}});
  return status.ok() ? "" : status.findings()[0].id;
}

TEST(MagnitudeProbes, AKernelOfInfinitiesPasses) { EXPECT_EQ(first_law({}), ""); }

TEST(MagnitudeProbes, EachSentinelOfAKernelIsFound) {
  for (const float number : {-1e4F, -5e4F, -1e30F}) {
    EXPECT_NE(first_law({.masked = number}), "") << number;
    // Beside a sink that weighs all only the LSE tells.
    for (const Sentinels& s : {Sentinels{.first_top = number}, Sentinels{.empty_split = number}})
      EXPECT_TRUE(std::set<std::string>({"num.exact", "num.lse_bound"}).contains(first_law(s)))
          << number << " " << s.first_top;
  }
}

TEST(MagnitudeProbes, EachSlipOfAMaximumIsFound) {
  EXPECT_NE(first_law({.tops_of_the_row_before = true}), "");
  EXPECT_EQ(first_law({.lse_without_top = true}), "num.lse_bound");
  for (const float most : {80.F, 6e4F}) {
    EXPECT_NE(first_law({.most = most}), "") << most;
    EXPECT_EQ(first_law({.most_lse = most}), "num.lse_bound") << most;
  }
}

// ---- what is drawn

struct FarCall {
  Case x;
  AttentionData data;
};

/// Calls of exact data far from 0, as `fuzz` draws them.
std::vector<FarCall> far_calls() {
  std::vector<FarCall> calls;
  for (uint64_t number = 0; number < 1500; ++number) {
    Case x = fuzz_case(1, number);
    if (x.as<AttentionCase>() == nullptr || !is_shifted(x.data)) continue;
    AttentionData data = make_attention_data(x);
    calls.push_back({std::move(x), std::move(data)});
  }
  return calls;
}

TEST(MagnitudeProbes, LogitsBeyondEachSentinelAreDrawnOnBothSides) {
  constexpr double kSentinels[] = {1e3, 1e4, 2e4, 5e4, 65504, 1e5, 1e30};
  std::vector<int64_t> below(std::size(kSentinels)), above(below);
  for (const FarCall& call : far_calls()) {
    const auto& x = std::get<AttentionCase>(call.x.call);
    for (const RequestData& d : call.data.requests) {
      for (int64_t q = 0; q < d.q.tokens() && d.k.tokens() > 0; ++q) {
        const double logit = double{d.q.value(q, 0, x.head_dim_qk - 1)} *
                             d.k.value(0, 0, x.head_dim_qk - 1) * x.sm_scale * x.k_scale;
        for (size_t i = 0; i < below.size(); ++i) {
          below[i] += logit < -kSentinels[i] ? 1 : 0;
          above[i] += logit > kSentinels[i] ? 1 : 0;
        }
      }
    }
  }
  for (size_t i = 0; i < below.size(); ++i) {
    EXPECT_GT(below[i], 20) << kSentinels[i];
    EXPECT_GT(above[i], 20) << kSentinels[i];
  }
}

/// Does each call whose LSE `slip` changes, of some row by more than the last digits, break a law?
template <class SlipOfLse>
void expect_each_found(const char* name, const SlipOfLse& slip) {
  int64_t changed = 0;
  for (const FarCall& call : far_calls()) {
    AttentionScene scene(call.x, call.data, AttentionArrangement::of(call.x));
    scene.lay(0);
    ASSERT_EQ(scene.run().to_string(), "ok");
    ASSERT_EQ(judge_attention(call.x, scene).to_string(), "ok") << call.x.to_string();
    bool acts = false;
    const TensorView lse = std::visit([](const auto& c) { return c.lse.tensor; }, scene.call());
    for (int64_t i = 0; i < lse.numel(); ++i) {
      std::byte* at = lse.at(i / lse.shape[1], i % lse.shape[1]);
      const float right = load_float(at, DType::kF32, 0), wrong = slip(right);
      // Rows of nobody, and those whose LSE a sink alone makes, are not far from 0.
      if (!std::isfinite(right) || std::abs(right) < 100) continue;
      acts |= std::abs(wrong - right) > 1e-4F * std::abs(right);
      store_float(at, DType::kF32, 0, wrong);
    }
    if (!acts) continue;
    ++changed;
    EXPECT_FALSE(judge_attention(call.x, scene).ok()) << name << ' ' << call.x.to_string();
  }
  EXPECT_GT(changed, 50) << name;
}

TEST(MagnitudeProbes, EachSlipOfAnLseIsFoundInEachCall) {
  expect_each_found("clamped", [](float x) { return std::clamp(x, -6e4F, 6e4F); });
  expect_each_found("in base 2", [](float x) { return x * 1.44269504F; });
  expect_each_found("of f16", [](float x) {
    return std::abs(x) > 65504 ? std::copysign(std::numeric_limits<float>::infinity(), x) : x;
  });
  expect_each_found("without its sign", [](float x) { return std::abs(x); });
}

}  // namespace
}  // namespace shadowgraph::magnitude_probes_test
