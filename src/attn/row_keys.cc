#include "attn/row_keys.h"

namespace shadowgraph {
namespace {

/// The slots of a request's row of req_to_token, the encoder's first, then the text's.
std::span<const int32_t> row_slots(const ForwardBatch& b, int64_t request) {
  return b.req_to_token.row(b.req_pool_indices[static_cast<size_t>(request)]);
}

}  // namespace

int32_t rows_a_request(const ForwardBatch& b) {
  return b.mode == ForwardMode::kDraftDecode ? b.spec.topk : 1;
}

std::vector<int32_t> row_keys(const ForwardBatch& b, int64_t request, int32_t branch) {
  const auto kv_len = static_cast<size_t>(b.extent(request).kv_len);
  // A draft without slots is a chain: they follow in the row.
  const bool drafts = b.mode == ForwardMode::kDraftDecode && !b.out_cache_loc.empty();
  const size_t drafted = drafts ? static_cast<size_t>(b.spec.step) + 1 : 0;
  const auto text =
      row_slots(b, request).subspan(static_cast<size_t>(b.encoder_len(request)), kv_len - drafted);
  std::vector<int32_t> keys(text.begin(), text.end());
  const int64_t first = (request * b.spec.topk + branch) * b.spec.num_steps;
  for (size_t j = 0; j < drafted; ++j)
    keys.push_back(static_cast<int32_t>(b.out_cache_loc[static_cast<size_t>(first) + j]));
  return keys;
}

std::vector<int32_t> encoder_keys(const ForwardBatch& b, int64_t request) {
  const auto slots = row_slots(b, request).first(static_cast<size_t>(b.encoder_len(request)));
  return {slots.begin(), slots.end()};
}

}  // namespace shadowgraph
