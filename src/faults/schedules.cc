// Faults of schedulers.
#include "faults/schedules.h"

#include <algorithm>
#include <numeric>

namespace shadowgraph {
namespace {

bool is_prompt(const Step& step) {
  return step.mode == ForwardMode::kExtend || step.mode == ForwardMode::kSplitPrefill;
}

/// Request i's new tokens are from prefix on, so many as it has; first: of them in the step.
void place_tokens(Step& step, size_t i, size_t first, int32_t prefix, const PoolState& pools) {
  const auto text = pools.text(*pools.find(step.requests[i]));
  const auto count = static_cast<size_t>(step.extend_lens[i]);
  for (size_t t = 0; t < count; ++t) {
    step.out_cache_loc[first + t] = text[static_cast<size_t>(prefix) + t];
    step.positions[first + t] = prefix + static_cast<int64_t>(t);
  }
}

}  // namespace

void ChunkNotAdvanced::step(Step& step, const PoolState& pools) {
  if (!is_prompt(step)) return;
  size_t first = 0;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const int32_t count = step.extend_lens[i], prefix = step.seq_lens[i] - count;
    const auto [last, fresh] = began_.try_emplace(step.requests[i], prefix);
    const int32_t began = std::exchange(last->second, prefix);
    if (!fresh && began < prefix) {
      act();
      step.seq_lens[i] = began + count;
      place_tokens(step, i, first, began, pools);
    }
    first += static_cast<size_t>(count);
  }
}

void FlatHeadroom::runtime(RuntimeConfig& config) {
  if (config.draft.num_steps == 0) return;
  const int32_t flat = 4 + config.draft.num_draft_tokens;
  if (flat >= draft_reserve(config.draft, config.page_size)) return;
  config.reserve = flat;
  act();
}

void AcceptedByAnotherWidth::step(Step& step, const PoolState& /*pools*/) {
  if (!is_draft_extend(step.mode, DraftExtendV2::kIncluded) || step.copies.size() < 2) return;
  std::vector<SlotCopy> shifted = step.copies;
  for (size_t i = 0; i < shifted.size(); ++i)
    shifted[i].from = step.copies[(i + 1) % shifted.size()].from;
  if (shifted == step.copies) return;
  step.copies = std::move(shifted);
  act();
}

void AcceptedOfTheLastRound::step(Step& step, const PoolState& pools) {
  if (step.mode != ForwardMode::kDraftExtend) return;
  Step stale = step;
  stale.out_cache_loc.clear(), stale.positions.clear();
  const bool full = step.seq_lens_kind == SeqLensKind::kFull;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const PoolRequest& r = *pools.find(step.requests[i]);
    const int32_t now = step.extend_lens[i];
    const auto [last, fresh] = accepted_.try_emplace(r.id, now);
    const int32_t count = std::min(std::exchange(last->second, now), r.slots_len - r.kv_len);
    stale.extend_lens[i] = count;
    stale.seq_lens[i] = r.kv_len + (full ? count : 0);
    for (int32_t t = r.kv_len; t < r.kv_len + count; ++t) {
      stale.out_cache_loc.push_back(pools.text(r)[static_cast<size_t>(t)]);
      stale.positions.push_back(t);
    }
  }
  if (stale.extend_lens == step.extend_lens) return;
  step = std::move(stale);
  act();
}

void TailOfAReusedRow::step(Step& step, const PoolState& pools) {
  if (!is_prompt(step)) return;
  size_t first = 0;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const PoolRequest& r = *pools.find(step.requests[i]);
    const auto text = pools.text(r);
    const auto count = static_cast<size_t>(step.extend_lens[i]);
    for (size_t t = 0; t < count && r.kv_len > 0; ++t) {
      const size_t column = static_cast<size_t>(r.slots_len) + t;
      if (column >= text.size() || text[column] == 0) continue;
      step.out_cache_loc[first + t] = text[column];
      act();
    }
    first += count;
  }
}

void EvictedByAnotherWindow::runtime(RuntimeConfig& config) {
  if (config.swa_pages == 0 || config.window_left < 1) return;
  config.window_left /= 2;
  act();
}

}  // namespace shadowgraph
