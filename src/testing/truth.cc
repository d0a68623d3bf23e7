// Computes the truth about a step from its batch.
#include <algorithm>

#include "attn/mask.h"
#include "attn/page_table.h"
#include "attn/row_keys.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {
namespace {

/// Adds rows, one request after the other.
class TruthBuilder {
 public:
  TruthBuilder(const ForwardBatch& batch, Pool pool)
      : b_(batch), pool_(pool), tree_(batch.spec.custom_mask) {}

  Truth run() {
    truth_.cu_seqlens_q = {0};
    for (int64_t i = 0; i < b_.size(); ++i) {
      if (pool_ == Pool::kEncoder) {
        add(b_.q_len(i), encoder_keys(b_, i));
        continue;
      }
      for (int32_t branch = 0; branch < rows_a_request(b_); ++branch)
        add(b_.q_len(i), row_keys(b_, i, branch));
    }
    return std::move(truth_);
  }

 private:
  void add(int32_t q_len, std::vector<int32_t> keys) {
    const auto kv_len = static_cast<int32_t>(keys.size());
    for (int32_t& slot : keys) {
      if (pool_ == Pool::kWindow)
        slot = static_cast<int32_t>(b_.full_to_swa[static_cast<size_t>(slot)]);
    }
    truth_.q_lens.push_back(q_len);
    truth_.kv_lens.push_back(kv_len);
    truth_.cu_seqlens_q.push_back(truth_.cu_seqlens_q.back() + q_len);
    if (pool_ != Pool::kEncoder)
      truth_.stored.insert(truth_.stored.end(), keys.end() - q_len, keys.end());
    truth_.keys.push_back(std::move(keys));
    add_mask(q_len, kv_len);
  }

  /// A draft tree says it itself.
  void add_mask(int32_t q_len, int32_t kv_len) {
    const MaskShape mask{.q_len = q_len, .kv_len = kv_len, .causal = pool_ != Pool::kEncoder};
    const auto pairs = static_cast<size_t>(q_len) * static_cast<size_t>(kv_len);
    if (mask.causal && !tree_.empty()) {
      const auto row = tree_.first(pairs);
      truth_.mask.insert(truth_.mask.end(), row.begin(), row.end());
      tree_ = tree_.subspan(pairs);
      return;
    }
    for (int32_t q = 0; q < q_len; ++q) {
      for (int32_t k = 0; k < kv_len; ++k) truth_.mask.push_back(attends(mask, q, k));
    }
  }

  const ForwardBatch& b_;
  Pool pool_;
  std::span<const uint8_t> tree_;  // of the rows that follow
  Truth truth_;
};

}  // namespace

std::vector<int32_t> Truth::num_pages(int32_t page_size) const {
  std::vector<int32_t> counts;
  for (const int32_t len : kv_lens)
    counts.push_back(static_cast<int32_t>(pages_for(len, page_size)));
  return counts;
}

Truth truth_of(const ForwardBatch& batch, Pool pool) { return TruthBuilder(batch, pool).run(); }

}  // namespace shadowgraph::testing
