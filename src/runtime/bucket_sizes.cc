#include "runtime/bucket_sizes.h"

#include <algorithm>
#include <cassert>
#include <functional>

namespace shadowgraph {
namespace {

/// first, first + step, ... up to last.
struct Range {
  int32_t first, step, last;
};
constexpr Range kPlain[] = {
    {1, 1, 2}, {4, 4, 12}, {16, 8, 256}, {272, 16, 511}, {512, 32, INT32_MAX}};
constexpr Range kSpeculative[] = {
    {1, 1, 8}, {10, 2, 32}, {40, 4, 64}, {72, 8, 256}, {272, 16, INT32_MAX}};
constexpr Range kEvery[] = {{1, 1, INT32_MAX}};

std::span<const Range> ranges_of(const BucketRule& rule) {
  if (!rule.padding) return kEvery;
  return rule.speculative ? std::span<const Range>(kSpeculative) : std::span<const Range>(kPlain);
}

}  // namespace

std::vector<int32_t> bucket_sizes(const BucketRule& rule) {
  const int64_t multiple = int64_t{rule.token_multiple} * (rule.two_batch ? 2 : 1);
  std::vector<int32_t> sizes;
  for (const Range& r : ranges_of(rule)) {
    for (int32_t n = r.first; n <= std::min(r.last, rule.max_rows); n += r.step) {
      if (int64_t{n} * rule.tokens_per_row % multiple == 0) sizes.push_back(n);
    }
  }
  return sizes;
}

std::vector<int32_t> capture_order(std::vector<int32_t> sizes) {
  std::ranges::sort(sizes, std::greater{});
  return sizes;
}

TwoBatches split_in_two(const ForwardBatch& batch, int32_t rows) {
  assert(rows >= 2 && batch.size() <= rows && batch.encoder_lens.empty());
  TwoBatches two;
  two.rows[0] = rows / 2, two.rows[1] = rows - rows / 2;
  const int64_t first = std::min<int64_t>(batch.size(), two.rows[0]);
  two.batch[0] = batch.slice(0, first);
  two.batch[1] = batch.slice(first, batch.size() - first);
  return two;
}

}  // namespace shadowgraph
