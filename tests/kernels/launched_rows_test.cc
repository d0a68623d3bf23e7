// max_seqlen_q: queries past it are not computed, not read and not written, nor are the keys that
// only they see; the others have the bits of the whole call.
#include <gtest/gtest.h>

#include "kernels/footprint.h"
#include "kernels/small_attention.h"

namespace shadowgraph::launched_rows_test {
namespace {

constexpr CaseKernel kKernels[] = {CaseKernel::kPrefillPaged, CaseKernel::kPrefillRagged};

/// Requests shorter and longer than any limit here, one with fewer keys than queries, one in more
/// than one block.
SmallShape shape() { return {.requests = {{3, 9}, {1, 4}, {6, 2}, {0, 3}, {200, 230}}}; }

void fill(SmallAttention& a) {
  a.fill_q([](int64_t r, int64_t t, int64_t h, int64_t d) {
    return static_cast<float>((r + 3 * t + h + d) % 7 - 3) / 4;
  });
  a.fill_k([](int64_t, int64_t t, int64_t h, int64_t d) {
    return static_cast<float>((t + 3 * h + d) % 5 - 2);
  });
  a.fill_v(SmallAttention::code);
}

void limit(SmallAttention& a, int32_t max_seqlen_q) {
  a.paged.max_seqlen_q = a.ragged.max_seqlen_q = max_seqlen_q;
}

Footprint footprint(SmallAttention& a) {
  a.settle();
  return a.ragged_kv() ? attention_footprint(a.ragged) : attention_footprint(a.paged);
}

TEST(LaunchedRows, TheFirstQueriesHaveTheBitsOfTheWholeCallAndTheRestStays) {
  for (const CaseKernel kernel : kKernels) {
    for (const bool causal : {true, false}) {
      for (const int32_t most : {1, 2, 3, 5, 97, 200, INT32_MAX}) {
        SmallAttention a(kernel, "", shape());
        a.params.causal = causal;
        a.params.window_left = causal ? 20 : -1;
        fill(a);
        ASSERT_EQ(a.run().to_string(), "ok");
        const auto out = a.out_memory, lse = a.lse_memory;
        limit(a, most);
        ASSERT_EQ(a.run().to_string(), "ok");
        const int64_t row_bytes = a.paged.out.stride[0] * 4;
        int64_t row = 0;
        for (size_t r = 0; r < a.shape.requests.size(); ++r) {
          for (int32_t t = 0; t < a.q_len(r); ++t, ++row) {
            const auto same =
                std::equal(out.begin() + row * row_bytes, out.begin() + (row + 1) * row_bytes,
                           a.out_memory.begin() + row * row_bytes);
            EXPECT_TRUE(t < most ? same : std::isnan(a.out(r, t, 0, 0))) << r << " " << t;
            EXPECT_EQ(std::isnan(a.lse(r, t, 0)), t >= most) << r << " " << t;
          }
        }
      }
    }
  }
}

TEST(LaunchedRows, WhatOnlyOtherQueriesSeeIsNotInTheFootprint) {
  for (const CaseKernel kernel : kKernels) {
    SmallAttention limited(kernel, "", {.requests = {{4, 9}}});
    SmallAttention all(kernel, "", {.requests = {{4, 9}}});
    limited.params.causal = all.params.causal = true;
    limit(limited, 2);
    // The last key in reach of the first two queries is at position 6.
    const auto reads = [](SmallAttention& a, const void* buffer) {
      int64_t count = 0;
      for (const AccessSpan& s : footprint(a)) count += s.buffer == buffer ? s.count : 0;
      return count;
    };
    EXPECT_EQ(reads(all, all.paged.q.data), 4 * 4);
    EXPECT_EQ(reads(limited, limited.paged.q.data), 2 * 4);
    EXPECT_EQ(reads(limited, limited.out_memory.data()), 2 * 4);
    const auto keys = [&](SmallAttention& a) {
      return reads(a, a.ragged_kv() ? a.ragged.k.data : a.paged.cache.k.data);
    };
    EXPECT_EQ(keys(all), 9 * 4);
    EXPECT_EQ(keys(limited), 7 * 4);
  }
}

TEST(LaunchedRows, APageThatOnlyOtherQueriesNeedMayBeMissing) {
  SmallAttention a(CaseKernel::kPrefillPaged, "", {.requests = {{4, 9}}});
  a.params.causal = true;
  fill(a);
  std::vector<int32_t> table(a.paged.pages.page_table.begin(), a.paged.pages.page_table.end());
  table[2] = -1;  // of the key at position 8
  a.paged.pages.page_table = table;
  EXPECT_NE(a.run().to_string().find("table.page_id"), std::string::npos);
  limit(a, 3);
  EXPECT_EQ(a.run().to_string(), "ok");
  limit(a, 4);
  EXPECT_NE(a.run().to_string().find("table.page_id"), std::string::npos);
}

TEST(LaunchedRows, APlanIsOfTheQueriesThatAreComputed) {
  SmallAttention a(CaseKernel::kPrefillPaged, "", shape());
  fill(a);
  limit(a, 97);
  a.settle();
  std::vector<int32_t> plan(static_cast<size_t>(attention_plan_size(a.paged)));
  ASSERT_EQ(plan_attention(a.paged, plan).to_string(), "ok");
  ASSERT_EQ(a.run().to_string(), "ok");
  const auto out = a.out_memory;
  a.paged.plan = plan;
  ASSERT_EQ(a.run().to_string(), "ok");
  EXPECT_EQ(a.out_memory, out);
  limit(a, 0);
  EXPECT_NE(a.run().to_string().find("input.plan"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::launched_rows_test
