// SGLang's FlashAttention took seq_lens of a draft extend for all keys. A test gave the cached
// prefix: what the step had stored was never read, and outputs were off by 0.55 (sglang#26512).
// Its mend always added the new tokens, and counted them twice where the worker had (sglang#26628).
// So the batch has to say which it is. Two requests: 4 and 7 cached tokens, 3 new ones each.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "shadowgraph/testing.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kWidth = 16;
struct Metadata {
  std::vector<int32_t> cache_seqlens;
  int32_t max_seq_len_k = 0;
};

// The builder. Before, a length is seq_lens as it comes.
Metadata build(const ForwardBatch& batch, bool mended) {
  Metadata m;
  const bool adds = mended && batch.seq_lens_kind == SeqLensKind::kPrefix;
  for (size_t i = 0; i < batch.seq_lens.size(); ++i)
    m.cache_seqlens.push_back(batch.seq_lens[i] + (adds ? batch.extend_lens[i] : 0));
  m.max_seq_len_k = *std::ranges::max_element(m.cache_seqlens);
  return m;
}

Status check(const Metadata& m, const testing::Truth& truth) {
  Status status = testing::check_kv_lens({"cache_seqlens", m.cache_seqlens}, truth);
  status.add(testing::check_longest("max_seq_len_k", m.max_seq_len_k, truth.kv_lens));
  return status;
}

}  // namespace

int main() {
  const std::vector<int32_t> prefix_lens = {4, 7}, extend_lens = {3, 3}, rows = {1, 2},
                             all = {7, 10};
  std::vector<int32_t> req_to_token(3 * kWidth);
  std::iota(req_to_token.begin(), req_to_token.end(), 0);
  ForwardBatch batch;
  batch.mode = ForwardMode::kDraftExtendV2;
  batch.seq_lens_kind = SeqLensKind::kPrefix;  // what seq_lens count is said, not guessed
  batch.seq_lens = prefix_lens, batch.extend_lens = extend_lens, batch.req_pool_indices = rows;
  batch.req_to_token = {req_to_token, kWidth};
  const testing::Truth truth = testing::truth_of(batch);

  const Status before = check(build(batch, false), truth);
  Status after = check(build(batch, true), truth);
  batch.seq_lens_kind = SeqLensKind::kFull, batch.seq_lens = all;  // the worker added them
  after.add(check(build(batch, true), truth));
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  return before.findings().size() == 3 && before.findings()[0].id == "len.kv_extent" && after.ok()
             ? 0
             : 1;
}
