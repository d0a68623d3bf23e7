// What IEEE values at their ends do to a row.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/small_attention.h"

namespace shadowgraph::edges_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Edges : public ::testing::TestWithParam<std::tuple<CaseKernel, int>> {};

// The maximum is looked at tile by tile (64 keys in decode, 256 in prefill), splits are 512 keys:
// wherever the first finite logit stands, the keys of logit -inf before it weigh nothing.
TEST_P(Edges, KeysOfLogitMinusInfinityWeighNothing) {
  const auto [kernel, hidden] = GetParam();
  for (std::string_view isa : available_isas()) {
    SmallAttention c(kernel, isa, SmallShape{.requests = {{1, 600}}, .dim_qk = 1, .dim_vo = 1});
    c.fill_q([](auto...) { return 1.f; });
    c.fill_k([hidden = hidden](int64_t, int64_t t, int64_t, int64_t) {
      return t < hidden ? -kInf : 0.f;
    });
    c.fill_v([](int64_t, int64_t t, int64_t, int64_t) { return t < 300 ? 2.f : 4.f; });
    ASSERT_EQ(c.run().to_string(), "ok");
    const float before = hidden < 300 ? static_cast<float>(300 - hidden) : 0;
    const float after = static_cast<float>(600 - std::max(300, hidden));
    float out = 0;
    std::memcpy(&out, c.paged.out.at(0, 0), 4);
    if (c.ragged_kv()) std::memcpy(&out, c.ragged.out.at(0, 0), 4);
    EXPECT_EQ(out, (2 * before + 4 * after) / (before + after)) << isa << " " << hidden;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Edges,
    ::testing::Combine(::testing::Values(CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                         CaseKernel::kPrefillRagged),
                       ::testing::Values(0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 599)));

}  // namespace
}  // namespace shadowgraph::edges_test
