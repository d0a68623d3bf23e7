#include "attn/page_table.h"

#include <gtest/gtest.h>

namespace shadowgraph::page_table_test {
namespace {

TEST(PageTable, PagesAndLastPageHoldTheTokensExactly) {
  for (int64_t page_size = 1; page_size <= 5; ++page_size) {
    for (int64_t tokens = 0; tokens <= 3 * page_size + 1; ++tokens) {
      const int64_t pages = pages_for(tokens, page_size),
                    last = last_page_len_for(tokens, page_size);
      EXPECT_EQ(tokens == 0, pages == 0);
      EXPECT_EQ(tokens == 0 ? 0 : (pages - 1) * page_size + last, tokens);
      EXPECT_EQ(last >= 1 && last <= page_size, tokens > 0);
    }
  }
  EXPECT_EQ(pages_for(INT32_MAX, 1), INT32_MAX);
  EXPECT_EQ(last_page_len_for(INT32_MAX, 256), 255);
}

/// One request of every length 0..3p+1, pages numbered from the back; `fill` where no page is.
DenseTable every_length(int32_t page_size, int32_t fill) {
  DenseTable t;
  t.max_pages = 4;
  int32_t page = 1000;
  for (int32_t tokens = 0; tokens <= 3 * page_size + 1; ++tokens) {
    t.cache_seqlens.push_back(tokens);
    for (int64_t p = 0; p < t.max_pages; ++p) {
      t.page_table.push_back(p < pages_for(tokens, page_size) ? page-- : fill);
    }
  }
  return t;
}

TEST(PageTable, DenseToCsrToDenseIsTheIdentity) {
  for (int32_t page_size = 1; page_size <= 5; ++page_size) {
    const DenseTable dense = every_length(page_size, -3);
    const CsrTable csr = to_csr(dense.view(), page_size);
    const DenseTable back = to_dense(csr.view(), page_size, dense.max_pages, -3);
    EXPECT_EQ(back.page_table, dense.page_table);
    EXPECT_EQ(back.cache_seqlens, dense.cache_seqlens);
    EXPECT_EQ(back.max_pages, dense.max_pages);
    const CsrTable again = to_csr(back.view(), page_size);
    EXPECT_EQ(again.kv_indptr, csr.kv_indptr);
    EXPECT_EQ(again.kv_indices, csr.kv_indices);
    EXPECT_EQ(again.last_page_len, csr.last_page_len);
  }
}

TEST(PageTable, EntriesPastTheLastPageAreNotLookedAt) {
  for (int32_t page_size = 1; page_size <= 5; ++page_size) {
    const CsrTable a = to_csr(every_length(page_size, -3).view(), page_size);
    const CsrTable b = to_csr(every_length(page_size, INT32_MAX).view(), page_size);
    EXPECT_EQ(a.kv_indices, b.kv_indices);
  }
}

TEST(PageTable, CsrSaysWhatItMeans) {
  const DenseTable dense = {{7, 9, -1, -1, -1, -1, 4, 2, 8}, {5, 0, 9}, 3};
  const CsrTable csr = to_csr(dense.view(), 3);
  EXPECT_EQ(csr.kv_indptr, (std::vector<int32_t>{0, 2, 2, 5}));
  EXPECT_EQ(csr.kv_indices, (std::vector<int32_t>{7, 9, 4, 2, 8}));
  EXPECT_EQ(csr.last_page_len, (std::vector<int32_t>{2, 0, 3}));
}

TEST(PageTable, BothFormsGiveARequestTheSamePages) {
  for (int32_t page_size = 1; page_size <= 5; ++page_size) {
    const DenseTable dense = every_length(page_size, -1);
    const CsrTable csr = to_csr(dense.view(), page_size);
    const PageTable views[] = {dense.view(), csr.view()};
    ASSERT_EQ(views[0].batch(), views[1].batch());
    for (int64_t i = 0; i < views[0].batch(); ++i) {
      const RequestPages a = request_pages(views[0], page_size, i),
                         b = request_pages(views[1], page_size, i);
      EXPECT_EQ(a.kv_len, i);
      EXPECT_EQ(b.kv_len, i);
      for (int64_t p = 0; p < pages_for(i, page_size); ++p) EXPECT_EQ(a.page_ids[p], b.page_ids[p]);
    }
  }
}

TEST(PageTable, LastPageLenOfARequestWithoutPagesIsIgnored) {
  const std::vector<int32_t> indptr = {0, 0, 1}, indices = {5}, last = {99, 2};
  const PageTable t = PageTable::csr(indptr, indices, last);
  EXPECT_EQ(request_pages(t, 4, 0).kv_len, 0);
  EXPECT_EQ(request_pages(t, 4, 1).kv_len, 2);
}

TEST(PageTable, NarrowerRowsAreCut) {
  const DenseTable wide = {{1, 2, 3}, {3}, 3};
  EXPECT_EQ(to_dense(wide.view(), 1, 2, -1).page_table, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace shadowgraph::page_table_test
