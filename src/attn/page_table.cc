#include "attn/page_table.h"

#include <algorithm>

namespace shadowgraph {

PageTable PageTable::dense(std::span<const int32_t> page_table, int64_t max_pages,
                           std::span<const int32_t> cache_seqlens) {
  PageTable t;
  t.form = Form::kDense;
  t.page_table = page_table;
  t.max_pages = max_pages;
  t.cache_seqlens = cache_seqlens;
  return t;
}

PageTable PageTable::csr(std::span<const int32_t> kv_indptr, std::span<const int32_t> kv_indices,
                         std::span<const int32_t> last_page_len) {
  PageTable t;
  t.form = Form::kCsr;
  t.kv_indptr = kv_indptr;
  t.kv_indices = kv_indices;
  t.last_page_len = last_page_len;
  return t;
}

int64_t PageTable::batch() const {
  return static_cast<int64_t>(form == Form::kDense ? cache_seqlens.size() : last_page_len.size());
}

RequestPages request_pages(const PageTable& t, int32_t page_size, int64_t request) {
  const auto i = static_cast<size_t>(request);
  if (t.form == PageTable::Form::kDense) {
    return {t.page_table.data() + request * t.max_pages, t.cache_seqlens[i]};
  }
  const int32_t pages = t.kv_indptr[i + 1] - t.kv_indptr[i];
  const int32_t kv_len = pages == 0 ? 0 : (pages - 1) * page_size + t.last_page_len[i];
  return {t.kv_indices.data() + t.kv_indptr[i], kv_len};
}

CsrTable to_csr(const PageTable& table, int32_t page_size) {
  CsrTable csr;
  csr.kv_indptr.push_back(0);
  for (int64_t i = 0; i < table.batch(); ++i) {
    const RequestPages r = request_pages(table, page_size, i);
    csr.kv_indices.insert(csr.kv_indices.end(), r.page_ids,
                          r.page_ids + pages_for(r.kv_len, page_size));
    csr.kv_indptr.push_back(static_cast<int32_t>(csr.kv_indices.size()));
    csr.last_page_len.push_back(static_cast<int32_t>(last_page_len_for(r.kv_len, page_size)));
  }
  return csr;
}

DenseTable to_dense(const PageTable& table, int32_t page_size, int64_t max_pages, int32_t fill) {
  DenseTable dense;
  dense.max_pages = max_pages;
  dense.page_table.assign(static_cast<size_t>(table.batch() * max_pages), fill);
  for (int64_t i = 0; i < table.batch(); ++i) {
    const RequestPages r = request_pages(table, page_size, i);
    const int64_t pages = std::min(pages_for(r.kv_len, page_size), max_pages);
    std::copy_n(r.page_ids, pages, dense.page_table.begin() + i * max_pages);
    dense.cache_seqlens.push_back(r.kv_len);
  }
  return dense;
}

}  // namespace shadowgraph
