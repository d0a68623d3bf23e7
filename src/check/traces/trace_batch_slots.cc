// The slots that a line names, for its requests and for its new tokens: a twin takes them on trust.
#include <algorithm>
#include <limits>
#include <utility>

#include "check/traces/trace_batch.h"

namespace shadowgraph {

/// Token c stands at place c mod page_size of its page, and tokens of one page together.
bool TraceBatch::whole_pages(std::span<const int32_t> slots) const {
  for (size_t c = 0; c < slots.size(); ++c) {
    const size_t place = c % static_cast<size_t>(model.page_size);
    if (slots[c] != slots[c - place] + static_cast<int32_t>(place)) return false;
    if (place == 0 && slots[c] % model.page_size != 0) return false;
  }
  return true;
}

std::string TraceBatch::check_slots() const {
  const auto pool = full_to_swa_.empty() ? int64_t{std::numeric_limits<int32_t>::max()}
                                         : static_cast<int64_t>(full_to_swa_.size());
  const auto inside = [&](int64_t slot) { return slot >= 0 && slot < pool; };
  std::vector<int32_t> pool_rows = pool_rows_;
  std::ranges::sort(pool_rows);
  if (std::ranges::adjacent_find(pool_rows) != pool_rows.end())
    return "the batch is not legal: two requests have one row of req_to_token";
  // Drafts, and text behind an encoder, may begin anywhere.
  const bool drafts = batch.mode == ForwardMode::kDraftDecode || is_target_verify(batch.mode) ||
                      is_draft_extend(batch.mode, DraftExtendV2::kIncluded);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    const int64_t encoder = encoder_len(i);
    const int64_t keys = std::min(batch.req_to_token.width, encoder + e.kv_len);
    const auto row = batch.req_to_token.row(pool_rows_[static_cast<size_t>(i)]);
    if (!std::ranges::all_of(row.first(static_cast<size_t>(keys)), inside))
      return "the batch is not legal: a slot of request " + std::to_string(i) +
             " lies outside the pool";
    const int64_t text =
        drafts ? std::min(e.prefix_len, batch.seq_lens[static_cast<size_t>(i)]) : e.kv_len;
    if (encoder == 0 && !whole_pages(row.first(static_cast<size_t>(std::min(text, keys)))))
      return "the batch is not legal: the slots of request " + std::to_string(i) +
             " are not those of whole pages of " + std::to_string(model.page_size) + " tokens";
  }
  if (!std::ranges::all_of(out_cache_loc_, inside))
    return "the batch is not legal: out_cache_loc leads out of the pool";
  if (!std::ranges::all_of(full_to_swa_, [](int64_t v) { return std::in_range<int32_t>(v); }))
    return "the batch is not legal: full_to_swa leads out of the pool";
  return drafts ? check_stored_once() : check_stored();
}

/// Slot 0 is the sink, for whatever nobody reads.
std::string TraceBatch::check_stored_once() const {
  std::vector<int64_t> slots = out_cache_loc_;
  std::erase(slots, 0);
  std::ranges::sort(slots);
  const auto twice = std::ranges::adjacent_find(slots);
  if (twice == slots.end()) return "";
  return "the batch is not legal: out_cache_loc has slot " + std::to_string(*twice) + " twice";
}

/// Where keys are read is where they are stored. Drafts' slots are not in req_to_token yet, or are
/// those of another step.
std::string TraceBatch::check_stored() const {
  size_t token = 0;
  for (int64_t i = 0; i < batch.size() && !out_cache_loc_.empty(); ++i) {
    const RequestExtent e = batch.extent(i);
    const auto row = batch.req_to_token.row(pool_rows_[static_cast<size_t>(i)]);
    for (int64_t c = e.prefix_len; c < e.kv_len; ++c, ++token) {
      const int64_t slot = row[static_cast<size_t>(encoder_len(i) + c)];
      if (out_cache_loc_[token] != slot)
        return "the batch is not legal: out_cache_loc stores token " + std::to_string(c) +
               " of request " + std::to_string(i) + " in slot " +
               std::to_string(out_cache_loc_[token]) + ", req_to_token has slot " +
               std::to_string(slot);
    }
  }
  return check_stored_once();
}

int64_t TraceBatch::encoder_len(int64_t request) const {
  return encoder_lens_.empty() ? 0 : encoder_lens_[static_cast<size_t>(request)];
}

}  // namespace shadowgraph
