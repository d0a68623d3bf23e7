// A property test of somebody's own metadata builder. The clean builder passes; of two planted
// slips each is found, and shrunk to the smallest batch that shows it.
#include <algorithm>
#include <cstdio>
#include <string>

#include "shadowgraph/testing.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kBucket = 4, kColumns = 32;

enum class Slip { kNone, kPagesOfThePrefix, kPaddingForgotten };

// The builder: lengths, offsets and page table of a captured decode or extend, in fixed buffers.
// Rows behind the batch are padding: one query over the one key that page 0 holds.
struct Metadata {
  int32_t *cache_seqlens, *cu_seqlens_q, *page_table;
};

void build(const ForwardBatch& batch, int32_t page_size, Slip slip, const Metadata& m) {
  m.cu_seqlens_q[0] = 0;
  for (int64_t i = 0; i < kBucket; ++i) {
    const bool padding = i >= batch.size();
    if (padding && slip == Slip::kPaddingForgotten) return;
    const RequestExtent e = padding ? RequestExtent{0, 1, 1} : batch.extent(i);
    m.cache_seqlens[i] = e.kv_len;
    m.cu_seqlens_q[i + 1] = m.cu_seqlens_q[i] + e.q_len;
    const int32_t keys = slip == Slip::kPagesOfThePrefix ? e.prefix_len : e.kv_len;
    for (int32_t c = 0; c * page_size < keys; ++c) {
      const int32_t row = padding ? 0 : batch.req_pool_indices[static_cast<size_t>(i)];
      const auto column = static_cast<size_t>(c) * static_cast<size_t>(page_size);
      m.page_table[i * kColumns + c] = batch.req_to_token.row(row)[column] / page_size;
    }
  }
}

// The test.
Status test(Slip slip, testing::Counts* counts) {
  testing::Options options;
  options.max_requests = kBucket;
  options.max_context_len = kColumns;
  options.command = "./property_test";
  const auto property = [&](testing::Steps& steps) {
    testing::Shadowed<int32_t> cache_seqlens(steps, "cache_seqlens", kBucket);
    testing::Shadowed<int32_t> cu_seqlens_q(steps, "cu_seqlens_q", kBucket + 1);
    testing::Shadowed<int32_t> page_table(steps, "page_table", kBucket * kColumns);
    while (const testing::Case* c = steps.next()) {
      build(c->batch, c->page_size, slip,
            {cache_seqlens.data(), cu_seqlens_q.data(), page_table.data()});
      steps.expect(check_kv_lens(cache_seqlens, c->truth));
      steps.expect(check_padding(cache_seqlens.values().from(c->truth.rows()), 1, 1));
      steps.expect(check_indptr(cu_seqlens_q, c->truth.q_lens, options.max_tokens()));
      steps.expect(check_page_table(page_table, kColumns, c->page_size, c->pool_pages, c->truth));
    }
  };
  return testing::check(options, property, counts);
}

// The slip is found by this law, first.
bool found(const Status& status, const char* law) {
  std::printf("%s\n", status.to_string().c_str());
  return !status.ok() && status.findings().front().id == law;
}

}  // namespace

int main() {
  testing::Counts counts;
  const Status clean = test(Slip::kNone, &counts);
  std::printf("%s: %lld small batches, %lld histories, %lld steps\n", clean.to_string().c_str(),
              static_cast<long long>(counts.small), static_cast<long long>(counts.histories),
              static_cast<long long>(counts.steps));
  const bool pages = found(test(Slip::kPagesOfThePrefix, nullptr), "mem.uninit_read");
  const bool padding = found(test(Slip::kPaddingForgotten, nullptr), "mem.uninit_read");
  return clean.ok() && pages && padding ? 0 : 1;
}
