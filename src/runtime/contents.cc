// The requests of a book of contents: their tokens, and how many of them are stored.
#include "runtime/contents.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {
namespace {

size_t slots_of(int32_t pages, int32_t page_size) {
  return (static_cast<size_t>(pages) + 1) * static_cast<size_t>(page_size);
}

}  // namespace

Contents::Contents(const RuntimeConfig& config) : config_(config) {
  full_.slots.resize(slots_of(config.num_pages, config.page_size));
  if (config.swa_pages > 0) window_.slots.resize(slots_of(config.swa_pages, config.page_size));
  states_.slots.resize(static_cast<size_t>(config.state_slots) + 1);
}

int32_t Contents::Text::token(OwnerId request, int32_t position) const {
  return position < std::ssize(tokens) ? tokens[static_cast<size_t>(position)]
                                       : own_token(request, position);
}

Chain Contents::Text::chain(OwnerId request, int32_t count) {
  while (std::ssize(chains) < count) {
    const auto next = static_cast<int32_t>(chains.size());
    chains.push_back(extend(chains.empty() ? kNoTokens : chains.back(), token(request, next)));
  }
  return count == 0 ? kNoTokens : chains[static_cast<size_t>(count) - 1];
}

/// The first so many tokens, and no others.
void Contents::Text::keep(OwnerId request, int32_t count) {
  for (auto p = static_cast<int32_t>(tokens.size()); p < count; ++p)
    tokens.push_back(own_token(request, p));
  tokens.resize(static_cast<size_t>(count));
  chains.resize(std::min(chains.size(), tokens.size()));
}

void Contents::follow(const Told& told, const PoolState& pools, Step* step) {
  hear(told);
  confirm(step->in_flight);
  for (const PoolRequest& r : pools.requests) see(r);
  step->chains = {};
  last_ = {};
  const ForwardBatch batch = step->batch();
  if (!validate(batch).ok() || step->requests.size() != step->seq_lens.size()) return;
  last_.mode = step->mode;
  step->chains.prefix_indptr = {0};
  for (int64_t i = 0; i < batch.size(); ++i) add_chains(batch, i, step);
}

void Contents::hear(const Told& told) {
  for (const Told::Answer& answer : told.answers) {
    const auto row = std::ranges::find(last_.rows, answer.request, &Row::request);
    if (row != last_.rows.end()) store(answer, &*row);
  }
  in_flight_.push_back(std::exchange(last_, {}));
  for (const Told::Arrival& a : told.arrivals) {
    Text& t = texts_[a.request];
    t.tokens = a.prompt, t.encoder_len = a.encoder_len;
    t.prompt_len = static_cast<int32_t>(a.prompt.size());
  }
  for (const Told::Proposal& p : told.proposals) texts_[p.request].parents = p.parents;
}

/// Takes in the answer to a row of the last step.
void Contents::store(const Told::Answer& answer, Row* row) {
  Text& t = texts_[row->request];
  if (is_target_verify(last_.mode)) {
    const auto tree =
        ProposedTokens{row->request, t.stored, config_.draft}.tree(t.token(row->request, t.stored));
    t.keep(row->request, t.stored);
    for (const int32_t n : answer.accepted) t.tokens.push_back(tree[static_cast<size_t>(n)]);
    t.accepted = answer.accepted;
  } else if (is_draft_extend(last_.mode, DraftExtendV2::kIncluded)) {
    t.stored += static_cast<int32_t>(std::exchange(t.accepted, {}).size());
  } else if (last_.mode != ForwardMode::kDraftDecode && !answer.again) {
    t.stored += row->q_len;
  }
  row->stored = t.stored;
}

/// All results have come but those of the last so many steps; those of a request that was retracted
/// meanwhile are dropped.
void Contents::confirm(int32_t in_flight) {
  while (std::ssize(in_flight_) > std::clamp(in_flight, 0, config_.flight)) {
    for (const Row& row : in_flight_.front().rows) {
      Text& t = texts_[row.request];
      if (t.lives == row.lives) t.confirmed = row.stored;
    }
    in_flight_.pop_front();
  }
}

/// A request begins with what it shares, the first time and after a retraction; of its prompt at
/// least a token is computed, or nothing would be sampled.
void Contents::see(const PoolRequest& r) {
  const auto it = texts_.find(r.id);
  if (it == texts_.end() || it->second.lives == r.lives) return;
  Text& t = it->second;
  t.lives = r.lives;
  t.prompt_len = std::max(t.prompt_len, t.confirmed);
  t.stored = t.confirmed = std::min(r.shared_len, t.prompt_len - 1);
  t.accepted.clear();
}

/// The chains of a row.
void Contents::add_chains(const ForwardBatch& batch, int64_t i, Step* step) {
  const OwnerId id = step->requests[static_cast<size_t>(i)];
  Text& t = texts_[id];
  StepChains& c = step->chains;
  for (int32_t p = 1; p <= t.stored; ++p) c.prefix.push_back(t.chain(id, p));
  c.prefix_indptr.push_back(static_cast<int32_t>(c.prefix.size()));
  append_encoder(id, t.encoder_len, &c.encoder);
  last_.rows.push_back({id, t.lives, batch.q_len(i), t.stored});
  const Chain before = t.chain(id, t.stored);
  const ProposedTokens proposed{id, t.stored, config_.draft};
  if (step->mode == ForwardMode::kDraftDecode) {
    for (int32_t k = 0; k < config_.draft.topk; ++k)
      append_path(before, proposed.branch(k), &c.fresh);
  } else if (is_target_verify(step->mode) && std::ssize(t.parents) == batch.q_len(i)) {
    append_tree(before, proposed.tree(t.token(id, t.stored)), t.parents, &c.fresh);
  } else {
    std::vector<int32_t> tokens;
    for (int32_t p = t.stored; p < t.stored + batch.q_len(i); ++p) tokens.push_back(t.token(id, p));
    append_path(before, tokens, &c.fresh);
  }
}

/// The tokens that a row must be given.
std::vector<int32_t> Contents::expected_inputs(const ForwardBatch& batch, int64_t i) {
  const Row& row = last_.rows[static_cast<size_t>(i)];
  const Text& t = texts_[row.request];
  const ProposedTokens proposed{row.request, row.stored, config_.draft};
  if (is_target_verify(last_.mode)) return proposed.tree(t.token(row.request, row.stored));
  std::vector<int32_t> tokens;
  if (last_.mode == ForwardMode::kDraftDecode) {
    for (int32_t k = 0; k < config_.draft.topk; ++k)
      tokens.push_back(proposed.branch(k)[static_cast<size_t>(batch.spec.step)]);
    return tokens;
  }
  for (int32_t p = row.stored; p < row.stored + row.q_len; ++p)
    tokens.push_back(t.token(row.request, p));
  return tokens;
}

}  // namespace shadowgraph
