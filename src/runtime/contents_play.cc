// Contents plays a step: its copies, moves and stores in the book.
#include <algorithm>

#include "core/laws.h"
#include "runtime/contents.h"

namespace shadowgraph {

/// A draft of another shape has other slots than those that the book knows.
bool Contents::has_chains(const Step& step) {
  return step.chains.fresh.size() == step.out_cache_loc.size();
}

/// Slots whose content others may read from now on.
void Contents::find_final(const PoolState& pools) {
  final_.assign(full_.slots.size(), false);
  for (const CachedSlot& c : pools.cached) final_[static_cast<size_t>(c.slot)] = true;
  for (const PoolRequest& r : pools.requests) {
    const size_t encoded = r.kv_len > 0 ? static_cast<size_t>(r.encoder_len) : 0;
    for (const int32_t slot : pools.row(r).first(encoded)) final_[static_cast<size_t>(slot)] = true;
    const auto stored = pools.text(r).first(static_cast<size_t>(r.kv_len));
    for (const int32_t slot : stored) final_[static_cast<size_t>(slot)] = true;
  }
}

void Contents::judge_write(int64_t slot, const Place& place) {
  judged("life.write");
  if (final_[static_cast<size_t>(slot)])
    fail("life.write", at(place.field, place.row, place.col), "a slot that nothing else needs",
         "slot " + std::to_string(slot) + ", which keeps " +
             name(full_.slots[static_cast<size_t>(slot)]));
}

/// In the full pool, and where the slot has one in the window pool.
void Contents::write_slot(int64_t slot, const PoolState& pools, const Held& what,
                          const Place& place) {
  judge_write(slot, place);
  full_.slots[static_cast<size_t>(slot)] = what;
  if (pools.full_to_swa.empty()) return;
  const int64_t window = pools.full_to_swa[static_cast<size_t>(slot)];
  if (window > 0) window_.slots[static_cast<size_t>(window)] = what;
}

void Contents::copy(const PoolState& pools, const Step& step) {
  for (size_t n = 0; n < step.copies.size(); ++n) {
    const SlotCopy& c = step.copies[n];
    write_slot(c.to, pools, Held(full_.slots[static_cast<size_t>(c.from)]),
               {"copies", static_cast<int64_t>(n)});
  }
}

void Contents::write(const PoolState& pools, const Step& step) {
  if (!has_chains(step)) return;
  const ForwardBatch batch = step.batch();
  const bool drafts = step.mode == ForwardMode::kDraftDecode;
  size_t n = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const Row& row = last_.rows[static_cast<size_t>(i)];
    const ForwardBatch one = batch.slice(i, 1);
    for (size_t t = 0; t < one.out_cache_loc.size(); ++t, ++n) {
      const auto in_branch = static_cast<int32_t>(t) % std::max(1, step.draft.num_steps);
      if (drafts && in_branch != step.draft_step) continue;
      const Place place{"out_cache_loc", i, static_cast<int64_t>(t)};
      if (is_draft_extend(step.mode, DraftExtendV2::kIncluded)) {
        judge_write(step.out_cache_loc[n], place);
        continue;
      }
      const int32_t position =
          drafts ? row.stored + in_branch : static_cast<int32_t>(one.positions[t]);
      write_slot(step.out_cache_loc[n], pools, {step.chains.fresh[n], row.request, position},
                 place);
    }
    const PoolRequest& r = *pools.find(row.request);
    if (config_.flight > 0)
      for (const int32_t slot : pools.slots(r)) last_.pages.push_back(slot / config_.page_size);
    if (step.encoder_out_cache_loc.empty()) continue;
    std::vector<Chain> encoder;
    append_encoder(r.id, r.encoder_len, &encoder);
    for (size_t p = 0; p < encoder.size(); ++p)
      write_slot(pools.row(r)[p], pools, {encoder[p], r.id, -1 - static_cast<int32_t>(p)},
                 {"encoder_out_cache_loc", i, static_cast<int64_t>(p)});
  }
  std::ranges::sort(last_.pages);
}

/// Moves beyond the pool are not played: what they should have made is missed.
void Contents::move_states(const Step& step) {
  const auto in_pool = [&](int64_t slot) { return slot >= 0 && slot < std::ssize(states_.slots); };
  for (const StateMove& m : step.state_moves) {
    if (!in_pool(m.slot)) continue;
    Held& slot = states_.slots[static_cast<size_t>(m.slot)];
    switch (m.kind) {
      case StateMove::Kind::kFresh: slot = {kNoTokens, m.owner, -1}; break;
      case StateMove::Kind::kCopy:
        slot = in_pool(m.from) ? states_.slots[static_cast<size_t>(m.from)] : Held{};
        break;
      case StateMove::Kind::kCommit: {
        const auto n =
            static_cast<size_t>(m.from) * static_cast<size_t>(config_.draft.num_draft_tokens) +
            static_cast<size_t>(m.step);
        slot = n < verified_.size() ? verified_[n] : Held{};
        break;
      }
      default: break;  // what it holds stays
    }
  }
}

/// A verify keeps the states behind its tokens apart; every other step goes on to its last token,
/// and leaves snapshots at the end of a chunk.
void Contents::play_states(const Step& step) {
  if (config_.state_slots == 0 || step.mode == ForwardMode::kDraftDecode ||
      is_draft_extend(step.mode, DraftExtendV2::kIncluded))
    return;
  if (!has_chains(step)) return;
  size_t n = 0;
  const bool verify = is_target_verify(step.mode);
  if (verify) verified_.clear();
  for (size_t i = 0; i < last_.rows.size(); ++i) {
    const Row& row = last_.rows[i];
    const auto held = [&](int32_t tokens) {
      return Held{step.chains.fresh[n + static_cast<size_t>(tokens) - 1], row.request,
                  row.stored + tokens - 1};
    };
    for (int32_t t = 1; verify && t <= row.q_len; ++t) verified_.push_back(held(t));
    const auto state = step.state_slots[static_cast<size_t>(step.req_pool_indices[i])];
    if (!verify) states_.slots[static_cast<size_t>(state)] = held(row.q_len);
    if (i < std::min(step.track_slots.size(), step.track_lens.size()) && step.track_slots[i] > 0) {
      const int32_t covered = step.track_lens[i] - row.stored;
      const int32_t behind = covered - covered % config_.state_chunk;
      if (behind > 0 && behind <= row.q_len)
        states_.slots[static_cast<size_t>(step.track_slots[i])] = held(behind);
    }
    n += static_cast<size_t>(row.q_len);
  }
}

}  // namespace shadowgraph
