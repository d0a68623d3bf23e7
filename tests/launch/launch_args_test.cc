// A launch's arguments are its call, and nothing else: addresses in order, the same bytes for the
// same call, nothing of the host.
#include "launch/launch_args.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "launch/attention_launch.h"

namespace shadowgraph::launch_args_test {
namespace {

/// Memory that only its addresses matter of.
std::array<std::byte, 64> g_memory;
int32_t g_ints[4] = {};
float g_floats[4] = {};

PagedAttention paged() {
  PagedAttention c;
  c.q = ConstTensorView(&g_memory[0], DType::kF16, {3, 4, 8});
  c.cache.k.data = &g_memory[1], c.cache.v.data = &g_memory[2];
  c.cache.k.scales = &g_floats[0], c.cache.v.scales = &g_floats[1];
  c.cache.v.scale_head_stride = 7, c.cache.k_scale = 0.5F, c.cache.well_formed = true;
  c.pages = PageTable::dense({&g_ints[0], 4}, 2, {&g_ints[1], 2});
  c.params.sinks = {&g_floats[2], 2};
  c.params.window_left = 3, c.params.causal = true;
  c.out = TensorView(&g_memory[3], DType::kF16, {3, 4, 8}, {64, 8, 1});
  c.lse = NaturalLse(TensorView(&g_memory[4], DType::kF32, {3, 4}));
  c.options.num_threads = 2, c.options.lse_sink = LseSink::kIncluded;
  c.max_seqlen_q = 5;
  return c;
}

TEST(LaunchArgs, AddressesComeFirstInTheirOrder) {
  const KernelLaunch launch = attention_launch(paged());
  const void* const expected[] = {&g_memory[0], &g_memory[1], &g_memory[2], &g_floats[0],
                                  &g_floats[1], &g_ints[0],   &g_ints[1],   nullptr,
                                  nullptr,      &g_floats[2], nullptr,      nullptr,
                                  &g_memory[3], &g_memory[4], nullptr};
  ASSERT_EQ(launch.args.size(), std::size(expected) + 1);
  for (size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(launch.args.get<const void*>(i), expected[i]) << i;
  EXPECT_EQ(launch.args.kind(std::size(expected)), ArgKind::kScalar);
}

TEST(LaunchArgs, ACallComesBackAsItWasGiven) {
  const auto [c, rows] = call_of<PagedAttention>(attention_launch(paged(), {2, 1}));
  EXPECT_EQ(c.q.data, &g_memory[0]);
  EXPECT_EQ(c.q.shape, paged().q.shape);
  EXPECT_EQ(c.out.stride, paged().out.stride);
  EXPECT_EQ(c.cache.k, paged().cache.k);
  EXPECT_EQ(c.cache.v, paged().cache.v);
  EXPECT_EQ(c.cache.k_scale, 0.5F);
  EXPECT_TRUE(c.cache.well_formed);
  EXPECT_EQ(c.pages.form, PageTable::Form::kDense);
  EXPECT_EQ(c.pages.max_pages, 2);
  EXPECT_EQ(c.pages.page_table.data(), &g_ints[0]);
  EXPECT_EQ(c.pages.page_table.size(), 4U);
  EXPECT_EQ(c.pages.cache_seqlens.size(), 2U);
  EXPECT_EQ(c.params.sinks.size(), 2U);
  EXPECT_EQ(c.params.window_left, 3);
  EXPECT_TRUE(c.params.causal);
  EXPECT_EQ(c.options.num_threads, 2);
  EXPECT_EQ(c.options.lse_sink, LseSink::kIncluded);
  EXPECT_EQ(c.max_seqlen_q, 5);
  EXPECT_EQ(rows.a_request, 2);
  EXPECT_EQ(rows.first, 1);
}

/// A view has bytes between its dtype and its rank that are nobody's.
PagedAttention with_padding(std::byte held) {
  PagedAttention c = paged();
  for (auto* at = reinterpret_cast<std::byte*>(&c.q.dtype) + 1;
       at != reinterpret_cast<std::byte*>(&c.q.rank); ++at)
    *at = held;
  return c;
}

TEST(LaunchArgs, EqualCallsHaveEqualBytes) {
  EXPECT_EQ(attention_launch(with_padding(std::byte{0})).args,
            attention_launch(with_padding(std::byte{0xff})).args);
}

TEST(LaunchArgs, AxesBehindTheRankSayNothing) {
  PagedAttention c = paged();
  c.lse.tensor.shape[3] = 17, c.lse.tensor.stride[4] = 17;
  EXPECT_EQ(attention_launch(c).args, attention_launch(paged()).args);
}

TEST(LaunchArgs, NothingOfTheHostIsInALaunch) {
  PagedAttention c = paged();
  std::array<std::byte, 32> scratch;
  const std::string isa = "generic";
  c.options.isa = isa, c.options.scratch = scratch;
  EXPECT_EQ(attention_launch(c).args, attention_launch(paged()).args);
}

TEST(LaunchArgs, EveryNumberOfACallIsInItsLaunch) {
  const auto differs = [](auto change) {
    PagedAttention c = paged();
    change(c);
    return attention_launch(c).args != attention_launch(paged()).args;
  };
  EXPECT_TRUE(differs([](PagedAttention& c) { c.params.sm_scale = 2; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.params.logits_soft_cap = 1; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.cache.k.order = KvOrder::kKeyPanels; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.cache.k.scale_page_stride = 1; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.pages.max_pages = 1; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.pages.page_table = {&g_ints[0], 3}; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.options.arith = Arith::kFast; }));
  EXPECT_TRUE(differs([](PagedAttention& c) { c.q.dtype = DType::kBF16; }));
}

}  // namespace
}  // namespace shadowgraph::launch_args_test
