// The only home of page arithmetic: how many pages a request has, which, and dense <-> CSR.
// Tested by tests/attn/page_table_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

/// ceil(tokens / page_size); 0 pages hold 0 tokens.
constexpr int64_t pages_for(int64_t tokens, int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

/// Tokens on the last page, 1..page_size; 0 for no tokens.
constexpr int64_t last_page_len_for(int64_t tokens, int64_t page_size) {
  return tokens == 0 ? 0 : tokens - (pages_for(tokens, page_size) - 1) * page_size;
}

/// One request's pages in either form. Requires a table that validate() accepts.
struct RequestPages {
  const int32_t* page_ids = nullptr;
  int32_t kv_len = 0;
};
/// The slot of one of its tokens.
constexpr int32_t slot_of(const RequestPages& pages, int32_t page_size, int32_t token) {
  return pages.page_ids[token / page_size] * page_size + token % page_size;
}
RequestPages request_pages(const PageTable& table, int32_t page_size, int64_t request);

/// Owned tables. page_ids past a request's pages are `fill`.
struct DenseTable {
  std::vector<int32_t> page_table, cache_seqlens;
  int64_t max_pages = 0;
  PageTable view() const { return PageTable::dense(page_table, max_pages, cache_seqlens); }
};
struct CsrTable {
  std::vector<int32_t> kv_indptr, kv_indices, last_page_len;
  PageTable view() const { return PageTable::csr(kv_indptr, kv_indices, last_page_len); }
};
CsrTable to_csr(const PageTable& table, int32_t page_size);
DenseTable to_dense(const PageTable& table, int32_t page_size, int64_t max_pages, int32_t fill);

}  // namespace shadowgraph
