// A cache seen as pages of one token is the same cache: attention over its slots has the bits of
// attention over its pages.
#include <gtest/gtest.h>

#include "kernels/small_attention.h"

namespace shadowgraph::slot_view_test {
namespace {

TEST(SlotView, AttentionOverSlotsHasTheBitsOfAttentionOverPages) {
  for (const CaseKernel kernel : {CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      SmallShape shape{.requests = {{3, 9}, {1, 4}, {2, 70}}, .qo_heads = 4, .kv_heads = 2};
      shape.kv_dtype = dtype;
      SmallAttention a(kernel, "", shape);
      a.params.causal = true;
      a.fill_q([](int64_t r, int64_t t, int64_t h, int64_t d) {
        return static_cast<float>((r + 3 * t + h + d) % 7 - 3) / 4;
      });
      a.fill_k([](int64_t, int64_t t, int64_t h, int64_t d) {
        return static_cast<float>((t + 3 * h + d) % 5 - 2);
      });
      a.fill_v(SmallAttention::code);
      ASSERT_EQ(a.run().to_string(), "ok");
      const auto out = a.out_memory, lse = a.lse_memory;
      const PageTable pages = a.paged.pages;
      const int32_t page_size = a.paged.cache.page_size;
      std::vector<int32_t> slots;
      for (const int32_t page : pages.page_table)
        for (int32_t token = 0; token < page_size; ++token)
          slots.push_back(page * page_size + token);
      a.paged.cache = slot_view(a.paged.cache);
      a.paged.pages = PageTable::dense(slots, pages.max_pages * page_size, pages.cache_seqlens);
      ASSERT_EQ(a.run().to_string(), "ok");
      EXPECT_EQ(a.out_memory, out);
      EXPECT_EQ(a.lse_memory, lse);
    }
  }
}

}  // namespace
}  // namespace shadowgraph::slot_view_test
