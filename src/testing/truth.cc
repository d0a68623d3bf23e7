#include <algorithm>

#include "attn/page_table.h"
#include "attn/row_keys.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

std::vector<int32_t> Truth::num_pages(int32_t page_size) const {
  std::vector<int32_t> counts;
  for (const int32_t len : kv_lens)
    counts.push_back(static_cast<int32_t>(pages_for(len, page_size)));
  return counts;
}

Truth truth_of(const ForwardBatch& batch, Pool pool) {
  Truth truth;
  truth.cu_seqlens_q = {0};
  const auto add = [&](int32_t q_len, std::vector<int32_t> keys) {
    truth.q_lens.push_back(q_len);
    truth.cu_seqlens_q.push_back(truth.cu_seqlens_q.back() + q_len);
    truth.kv_lens.push_back(static_cast<int32_t>(keys.size()));
    if (pool != Pool::kEncoder)
      truth.stored.insert(truth.stored.end(), keys.end() - q_len, keys.end());
    truth.keys.push_back(std::move(keys));
  };
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (pool == Pool::kEncoder) {
      add(batch.q_len(i), encoder_keys(batch, i));
      continue;
    }
    for (int32_t branch = 0; branch < rows_a_request(batch); ++branch) {
      std::vector<int32_t> keys = row_keys(batch, i, branch);
      for (int32_t& slot : keys) {
        if (pool == Pool::kWindow)
          slot = static_cast<int32_t>(batch.full_to_swa[static_cast<size_t>(slot)]);
      }
      add(batch.q_len(i), std::move(keys));
    }
  }
  return truth;
}

}  // namespace shadowgraph::testing
