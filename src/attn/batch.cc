#include "shadowgraph/batch.h"

#include "core/laws.h"

namespace shadowgraph {
namespace {

int64_t new_tokens(const ForwardBatch& b, int64_t i) {
  return b.extend_lens.empty() ? 1 : b.extend_lens[static_cast<size_t>(i)];
}

}  // namespace

RequestExtent ForwardBatch::extent(int64_t i) const {
  const auto len = seq_lens[static_cast<size_t>(i)];
  const auto q_len = static_cast<int32_t>(new_tokens(*this, i));
  if (seq_lens_kind == SeqLensKind::kPrefix) return {len, q_len, len + q_len};
  return {len - q_len, q_len, len};
}

Status validate(const ForwardBatch& b) {
  Status status;
  const auto batch = std::to_string(b.size());
  const auto same_length = [&](const char* field, size_t size, bool optional) {
    if (size == b.seq_lens.size() || (optional && size == 0)) return;
    status.add(make_finding("len.batch", at(field), batch, std::to_string(size)));
  };
  same_length("req_pool_indices", b.req_pool_indices.size(), true);
  same_length("extend_lens", b.extend_lens.size(), b.mode == ForwardMode::kDecode);
  if (b.extend_lens.size() != b.seq_lens.size() && !b.extend_lens.empty()) return status;
  if (b.extend_lens.empty() && b.mode != ForwardMode::kDecode) return status;

  int64_t total = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    const int64_t len = b.seq_lens[static_cast<size_t>(i)];
    const int64_t q_len = new_tokens(b, i);
    if (len < 0)
      status.add(make_finding("len.negative", at("seq_lens", i), ">= 0", std::to_string(len)));
    if (q_len < 0) {
      status.add(make_finding("len.negative", at("extend_lens", i), ">= 0", std::to_string(q_len)));
      continue;
    }
    total += q_len;
    const bool full = b.seq_lens_kind == SeqLensKind::kFull;
    if (full && len >= 0 && len < q_len) {
      status.add(make_finding("len.extent", at("seq_lens", i),
                              ">= " + std::to_string(q_len) + " new tokens", std::to_string(len)));
    }
    if (!full && len + q_len > INT32_MAX) {
      status.add(make_finding("len.overflow", at("seq_lens", i), "prefix + new <= 2147483647",
                              std::to_string(len + q_len)));
    }
  }
  if (total > INT32_MAX) {
    status.add(make_finding("len.overflow", at("extend_lens"), "sum <= 2147483647",
                            std::to_string(total)));
  }
  if (!b.out_cache_loc.empty() && static_cast<int64_t>(b.out_cache_loc.size()) != total) {
    status.add(make_finding("len.total", at("out_cache_loc"), std::to_string(total) + " new tokens",
                            std::to_string(b.out_cache_loc.size())));
  }
  return status;
}

}  // namespace shadowgraph
