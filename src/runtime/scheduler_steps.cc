// The steps of a scheduler: which requests, how many tokens, and the batch.
#include <algorithm>
#include <functional>

#include "runtime/scheduler.h"

namespace shadowgraph {
namespace {

/// Most of them, and so many at least.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, int32_t least, Choices& choices) {
  std::vector<T> some;
  for (const T& t : all) {
    if (choices.below(4) != 3) some.push_back(t);
  }
  const size_t enough = std::min(all.size(), static_cast<size_t>(least));
  return some.size() < enough ? std::vector<T>(all.begin(), all.begin() + enough) : some;
}

}  // namespace

Step Scheduler::plain_step(Choices& choices) {
  Requests prompts, ready;
  for (Request& r : running_) {
    if (r.pool.kv_len < r.prompt_len)
      prompts.push_back(&r);
    else if (has_room(r.pool.kv_len))  // else it ends as soon as that is known
      ready.push_back(&r);
  }
  const auto some = [&](const Requests& all) {
    return some_of(all, config_.least_requests, choices);
  };
  const auto extend = [&] {
    const Requests list = some(prompts);
    if (config_.prebuilt) return extend_step(ForwardMode::kPrebuilt, list, {}, choices);
    const bool split = choices.one_in(3);
    return extend_step(split ? ForwardMode::kSplitPrefill : ForwardMode::kExtend, list, {},
                       choices);
  };
  const auto go_on = [&] {
    const Requests list = some(ready);
    if (config_.dllm_block > 0) return block_step(list);
    if (config_.draft.num_steps == 0) return decode_step(list);
    begin_round(list, choices);
    return round_step(choices);
  };
  const auto mixed = [&] {
    const Requests more = some(ready);
    return extend_step(ForwardMode::kMixed, some(prompts), more, choices);
  };
  const bool mixes = config_.dllm_block == 0 && config_.draft.num_steps == 0 && !config_.prebuilt;
  std::vector<std::function<Step()>> options;
  if (!prompts.empty()) options.emplace_back(extend);
  const bool are_few = ready.size() < static_cast<size_t>(config_.least_requests);
  if (!ready.empty() && !(are_few && !prompts.empty())) options.emplace_back(go_on);
  if (!prompts.empty() && !ready.empty() && mixes) options.emplace_back(mixed);
  if (options.empty() || choices.one_in(16)) return step_of(ForwardMode::kIdle, {});
  return options[choices.below(static_cast<uint32_t>(options.size()))]();
}

/// What a batch of these requests is before it has tokens.
Step Scheduler::step_of(ForwardMode mode, const Requests& list) const {
  Step step;
  step.mode = mode, step.seq_lens_kind = usual_seq_lens_kind(mode);
  for (const Request* r : list) {
    step.requests.push_back(r->pool.id);
    step.req_pool_indices.push_back(r->pool.row);
    if (config_.max_encoder_len > 0) step.encoder_lens.push_back(r->pool.encoder_len);
  }
  return step;
}

/// The next tokens of a request: their slots, positions and ids.
void Scheduler::add_tokens(Step& step, const Request& r, int32_t count) {
  for (int32_t t = r.pool.kv_len; t < r.pool.kv_len + count; ++t) {
    step.out_cache_loc.push_back(text(r)[static_cast<size_t>(t)]);
    step.positions.push_back(t);
    step.input_ids.push_back(r.token(t));
  }
}

/// Chunks of prompts (what is prebuilt is whole, and what a chunk always has room for), and decodes
/// as extends by one token. An encoder is stored with the first chunk, and a batch stores all
/// encoders or none.
Step Scheduler::extend_step(ForwardMode mode, Requests prompts, Requests decodes,
                            Choices& choices) {
  const auto stores_encoder = [](const Request* r) {
    return r->pool.kv_len == 0 && r->pool.encoder_len > 0;
  };
  if (config_.max_encoder_len > 0) {
    const bool stores = stores_encoder(prompts[0]) && decodes.empty();
    std::erase_if(prompts, [&](const Request* r) { return stores_encoder(r) != stores; });
    if (stores && mode == ForwardMode::kMixed) mode = ForwardMode::kExtend;
  }
  if (prompts.empty()) return decode_step(decodes);
  std::vector<int32_t> counts;
  const bool whole = mode == ForwardMode::kPrebuilt || config_.whole_prompts();
  for (const Request* r : prompts) {
    const int32_t left = r->prompt_len - r->pool.kv_len;
    counts.push_back(whole ? left : choices.between(1, std::min(left, config_.max_chunk)));
  }
  counts.resize(prompts.size() + decodes.size(), 1);
  Requests list = prompts;
  list.insert(list.end(), decodes.begin(), decodes.end());
  grow(list, counts);
  Step step = step_of(mode, list);
  for (size_t i = 0; i < list.size(); ++i) {
    Request& r = *list[i];
    step.seq_lens.push_back(r.pool.kv_len + counts[i]);
    step.extend_lens.push_back(counts[i]);
    step.orig_seq_lens.push_back(std::max(r.prompt_len, step.seq_lens.back()));
    add_tokens(step, r, counts[i]);
    if (config_.state_slots > 0 && config_.radix) add_track(step, r, counts[i], choices);
    if (!stores_encoder(list[0])) continue;
    const auto encoder = rows_.row(r.pool.row).first(static_cast<size_t>(r.pool.encoder_len));
    step.encoder_out_cache_loc.insert(step.encoder_out_cache_loc.end(), encoder.begin(),
                                      encoder.end());
  }
  return step;
}

Step Scheduler::decode_step(Requests list) {
  grow(list, std::vector<int32_t>(list.size(), 1));
  Step step = step_of(ForwardMode::kDecode, list);
  for (const Request* r : list) {
    step.seq_lens.push_back(r->pool.kv_len + 1);
    add_tokens(step, *r, 1);
  }
  return step;
}

Step Scheduler::block_step(Requests list) {
  const int32_t block = config_.dllm_block;
  grow(list, std::vector<int32_t>(list.size(), block));
  Step step = step_of(ForwardMode::kDllmExtend, list);
  for (const Request* r : list) {
    step.seq_lens.push_back(r->pool.kv_len + block);
    step.extend_lens.push_back(block);
    add_tokens(step, *r, block);
  }
  return step;
}

/// Slots for the draft and for the verified tree.
void Scheduler::begin_round(Requests list, Choices& choices) {
  std::vector<int32_t> more;
  for (const Request* r : list) {
    const DraftLayout layout{config_.draft, config_.page_size, r->pool.kv_len};
    more.push_back(layout.end() - r->pool.kv_len);
  }
  grow(list, more);
  trees_.clear();
  for (const Request* r : list) {
    trees_.push_back(DraftTree::random(config_.draft, choices));
    told_.proposals.push_back({r->pool.id, trees_.back().parent});
  }
  last_ = step_of(ForwardMode::kIdle, list);  // who takes part
  next_draft_ = 0;
  phase_ = config_.draft.num_steps > 1 ? Phase::kDraft : Phase::kVerify;
}

Step Scheduler::round_step(Choices& choices) {
  if (phase_ == Phase::kDraft) return draft_step();
  if (phase_ == Phase::kVerify) return verify_step();
  return catch_up_step(choices);
}

Step Scheduler::draft_step() {
  const Requests list = in_step();
  Step step = step_of(ForwardMode::kDraftDecode, list);
  step.draft = config_.draft, step.draft_step = next_draft_++;
  for (const Request* r : list) {
    const DraftLayout layout{config_.draft, config_.page_size, r->pool.kv_len};
    step.seq_lens.push_back(r->pool.kv_len);
    layout.append_slots(text(*r), &step.out_cache_loc);
    step.positions.insert(step.positions.end(), static_cast<size_t>(config_.draft.topk),
                          r->pool.kv_len + step.draft_step);
    const ProposedTokens proposed{r->pool.id, r->pool.kv_len, config_.draft};
    for (int32_t k = 0; k < config_.draft.topk; ++k)
      step.input_ids.push_back(proposed.branch(k)[static_cast<size_t>(step.draft_step)]);
    if (step.draft_step == 0) layout.append_copies(text(*r), &step.copies);
  }
  if (next_draft_ + 1 == config_.draft.num_steps) phase_ = Phase::kVerify;
  return step;
}

Step Scheduler::verify_step() {
  const Requests list = in_step();
  Step step = step_of(ForwardMode::kTargetVerify, list);
  step.draft = config_.draft;
  for (size_t i = 0; i < list.size(); ++i) {
    const Request& r = *list[i];
    step.seq_lens.push_back(r.pool.kv_len);
    add_tokens(step, r, trees_[i].size());
    const auto first = step.positions.end() - trees_[i].size();
    for (int32_t t = 0; t < trees_[i].size(); ++t)
      first[t] = r.pool.kv_len + trees_[i].depth[static_cast<size_t>(t)];
    const ProposedTokens proposed{r.pool.id, r.pool.kv_len, config_.draft};
    std::ranges::copy(proposed.tree(r.token(r.pool.kv_len)),
                      step.input_ids.end() - trees_[i].size());
    if (config_.draft.topk > 1) trees_[i].append_mask(r.pool.kv_len, &step.custom_mask);
  }
  add_trees(step);
  phase_ = Phase::kAccept;
  return step;
}

/// The draft model stores the accepted tokens (v1), or all that were verified (v2). The KV of what
/// was accepted moves to where its position is.
Step Scheduler::catch_up_step(Choices& choices) {
  const Requests list = in_step();
  commit_states(list);
  const ForwardMode mode = choices.of({ForwardMode::kDraftExtend, ForwardMode::kDraftExtendV2});
  Step step = step_of(mode, list);
  step.seq_lens_kind = choices.of({SeqLensKind::kFull, SeqLensKind::kPrefix});
  step.draft = config_.draft;
  for (const Request* r : list) {
    const auto accepted = static_cast<int32_t>(r->accepted.size());
    const int32_t count =
        mode == ForwardMode::kDraftExtend ? accepted : config_.draft.num_draft_tokens;
    const bool full = step.seq_lens_kind == SeqLensKind::kFull;
    step.seq_lens.push_back(r->pool.kv_len + (full ? count : 0));
    step.extend_lens.push_back(count);
    add_tokens(step, *r, count);
    const auto drafts = text(*r).subspan(static_cast<size_t>(r->pool.kv_len));
    for (size_t j = 0; j < r->accepted.size(); ++j) {
      const int32_t from = drafts[static_cast<size_t>(r->accepted[j])], to = drafts[j];
      if (from != to) step.copies.push_back({from, to});
    }
  }
  phase_ = Phase::kCatchUp;
  return step;
}

}  // namespace shadowgraph
