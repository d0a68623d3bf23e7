// Faults of schedulers: what a step says of its requests, and what requests are given.

#include <algorithm>
#include <numeric>

#include "faults/plant.h"

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

/// A prompt goes on from where its last chunk began, and not from where it ended.
struct ChunkNotAdvanced final : Tap {
  void step(Step& step, const PoolState& pools) override {
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

 private:
  std::map<OwnerId, int32_t> began_;  // the last chunk of a request
};

/// The host reads how many tokens were accepted before the copy from the device has come: the
/// numbers are those of the last round.
struct AcceptedOfTheLastRound final : Tap {
  void step(Step& step, const PoolState& pools) override {
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

 private:
  std::map<OwnerId, int32_t> accepted_;
};

constexpr Fault kSchedulesFaults[] = {
    {"K03", "CE", "A prompt's next chunk begins where the last one began",
     "mini-sglang@14157d5 fa.I-02", "", make_tap<ChunkNotAdvanced>},
    // Rows have room for the tokens of a draft, and none for pages of its branches' own.
    {"K06", "OOBW", "Rows of req_to_token have no room for pages of a draft's branches",
     "sglang#26972 fa.I-01", "", on_runtime([](Tap& tap, RuntimeConfig& config) {
       if (config.draft.num_steps == 0) return;
       const int32_t flat = 4 + config.draft.num_draft_tokens;
       if (flat >= draft_reserve(config.draft, config.page_size)) return;
       config.reserve = flat;
       tap.act();
     })},
    // Which tokens were accepted is read in rows of another width: a request reads the next one's.
    {"K09", "OOBR", "Accepted tokens are read in rows of another width", "sglang#26866", "",
     on_step([](Tap& tap, Step& step, const PoolState&) {
       if (!is_draft_extend(step.mode, DraftExtendV2::kIncluded) || step.copies.size() < 2) return;
       std::vector<SlotCopy> shifted = step.copies;
       for (size_t i = 0; i < shifted.size(); ++i)
         shifted[i].from = step.copies[(i + 1) % shifted.size()].from;
       if (shifted == step.copies) return;
       step.copies = std::move(shifted);
       tap.act();
     })},
    {"K65", "RACE", "The host reads accepted counts before their copy has come", "vllm#36013", "",
     make_tap<AcceptedOfTheLastRound>},
    // The writer of a chunk takes columns behind the request's own: what a row still holds of
    // whoever had it before.
    {"K79", "PREFIX", "A chunk is written by columns that a row's last owner has left",
     "vllm-tt-plugin#103", "", on_step([](Tap& tap, Step& step, const PoolState& pools) {
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
           tap.act();
         }
         first += count;
       }
     })},
    // The wrong one of several windows says what may go: tokens that a layer still sees are
    // evicted.
    {"K80", "PREFIX", "What a smaller window has lost is taken for still there",
     "TensorRT-LLM#2983 fa.I-14", "table.one_foreign",
     on_runtime([](Tap& tap, RuntimeConfig& config) {
       if (config.swa_pages == 0 || config.window_left < 1) return;
       config.window_left /= 2;
       tap.act();
     })},
};

}  // namespace

std::span<const Fault> themes::schedules() { return kSchedulesFaults; }

}  // namespace shadowgraph
