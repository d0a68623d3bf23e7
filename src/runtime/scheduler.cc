#include "runtime/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace shadowgraph {
namespace {

int32_t whole_pages(int32_t tokens, int32_t page_size) { return tokens - tokens % page_size; }

}  // namespace

SchedulerParts::SchedulerParts(const RuntimeConfig& config)
    : slots(std::make_unique<SlotAllocator>(config.num_pages, config.swa_pages, config.page_size)),
      cache(std::make_unique<RadixCache>(config.page_size)),
      rows(std::make_unique<ReqToTokenPool>(config.max_requests, config.width())),
      states(std::make_unique<StateSlots>(config.state_slots)) {}

Scheduler::Scheduler(const RuntimeConfig& config, SchedulerParts parts)
    : config_(config),
      parts_(std::move(parts)),
      rows_(*parts_.rows),
      slots_(*parts_.slots),
      cache_(*parts_.cache),
      states_(*parts_.states),
      state_map_(config.state_slots > 0 ? static_cast<size_t>(config.max_requests) + 1 : 0) {
  assert(validate(config).ok());
}

Step Scheduler::next(Choices& choices) {
  told_ = {};
  parts_made_.push_back(choices.made().size());
  ask(choices);
  advance();
  settle();
  if (phase_ == Phase::kNone) {
    churn(choices);
    last_ = plain_step(choices);
  } else {
    last_ = round_step(choices);
  }
  const TokenTable table = rows_.table();
  last_.req_to_token.assign(table.slots.begin(), table.slots.end());
  last_.width = table.width;
  last_.full_to_swa.assign(slots_.full_to_swa().begin(), slots_.full_to_swa().end());
  last_.state_slots = state_map_;
  last_.state_moves = std::exchange(moves_, {});
  last_.in_flight = static_cast<int32_t>(in_flight_.size());
  return last_;
}

PoolState Scheduler::state() const {
  PoolState s;
  s.config = config_;
  const TokenTable table = rows_.table();
  s.req_to_token.assign(table.slots.begin(), table.slots.end());
  s.width = table.width;
  s.full_to_swa.assign(slots_.full_to_swa().begin(), slots_.full_to_swa().end());
  const auto pages = [](const PageAllocator& pool, auto& taken, auto& takes, auto& frees) {
    taken = pool.taken(), takes = pool.takes(), frees = pool.frees();
  };
  pages(slots_.full(), s.taken, s.takes, s.frees);
  if (slots_.swa() != nullptr) pages(*slots_.swa(), s.swa_taken, s.swa_takes, s.swa_frees);
  for (const Request& r : running_) {
    s.requests.push_back(r.pool);
    s.requests.back().accepted_len = static_cast<int32_t>(r.accepted.size());
    if (!r.accepted.empty()) s.requests.back().last_accepted = r.accepted.back();
  }
  s.cached = cache_.contents();
  for (const Flight& flight : in_flight_) {
    s.freed.insert(s.freed.end(), flight.freed.begin(), flight.freed.end());
    for (const Flight::Row& row : flight.rows)
      if (row.track_slot >= 0) s.tracks.push_back(row.track_slot);
  }
  s.state_slots = state_map_;
  s.snapshots = states_.snapshots();
  s.free_rows = rows_.unused(), s.free_states = states_.unused();
  return s;
}

std::span<int32_t> Scheduler::text(const Request& r) {
  return rows_.row(r.pool.row).subspan(static_cast<size_t>(r.pool.encoder_len));
}

size_t Scheduler::index_of(const Request* r) const {
  size_t i = 0;
  while (&running_[i] != r) ++i;
  return i;
}

int32_t Scheduler::Request::token(int32_t position) const {
  return position < std::ssize(text) ? text[static_cast<size_t>(position)]
                                     : own_token(pool.id, position);
}

Tokens Scheduler::Request::tokens(int32_t count) const {
  Tokens all;
  for (int32_t p = 0; p < count; ++p) all.push_back(token(p));
  return all;
}

Scheduler::Requests Scheduler::in_step() {
  Requests list;
  for (const OwnerId id : last_.requests) {
    for (Request& r : running_) {
      if (r.pool.id == id) list.push_back(&r);
    }
  }
  return list;
}

/// Draws the results of the last step: what is accepted, and whether blocks are final.
void Scheduler::ask(Choices& choices) {
  const Requests list = in_step();
  for (size_t i = 0; i < list.size(); ++i) {
    Told::Answer& answer = told_.answers.emplace_back();
    answer.request = list[i]->pool.id;
    const int32_t room = config_.max_context_len - list[i]->pool.kv_len;
    if (last_.mode == ForwardMode::kTargetVerify) answer.accepted = trees_[i].accept(room, choices);
    if (last_.mode == ForwardMode::kDllmExtend) answer.again = choices.below(2) != 0;
  }
}

/// Counts the tokens of the last step as stored, for every step behind it.
void Scheduler::advance() {
  const Requests list = in_step();
  const ForwardBatch batch = last_.batch();
  Flight flight{.rows = {}, .shares = phase_ == Phase::kNone, .freed = {}};
  for (size_t i = 0; i < list.size(); ++i) {
    Request& r = *list[i];
    const Told::Answer& answer = told_.answers[i];
    if (last_.mode == ForwardMode::kTargetVerify) {
      r.accepted = answer.accepted;
      const ProposedTokens proposed{r.pool.id, r.pool.kv_len, config_.draft};
      const Tokens tree = proposed.tree(r.token(r.pool.kv_len));
      r.keep_text(r.pool.kv_len);
      for (const int32_t t : r.accepted) r.text.push_back(tree[static_cast<size_t>(t)]);
    } else if (phase_ == Phase::kCatchUp) {
      r.pool.kv_len += static_cast<int32_t>(std::exchange(r.accepted, {}).size());
    } else if (last_.mode != ForwardMode::kDraftDecode && !answer.again) {
      r.pool.kv_len += batch.q_len(static_cast<int64_t>(i));
    }
    flight.rows.push_back({r.pool.id, r.pool.lives, r.pool.kv_len,
                           std::exchange(r.pool.track_slot, -1), r.tracked_len});
  }
  if (phase_ == Phase::kCatchUp) phase_ = Phase::kNone;
  in_flight_.push_back(std::move(flight));
}

/// The results of the first step in flight have come. Those of a request that was retracted
/// meanwhile are dropped.
void Scheduler::process() {
  const Flight done = std::move(in_flight_.front());
  in_flight_.pop_front();
  for (const Flight::Row& row : done.rows) {
    const auto it = std::ranges::find_if(running_, [&](const Request& r) {
      return r.pool.id == row.request && r.pool.lives == row.lives;
    });
    Request* r = it == running_.end() ? nullptr : &*it;
    settle_track(row, r);
    if (r == nullptr) continue;
    r->pool.confirmed_len = row.kv_len;
    if (config_.radix && done.shares && row.kv_len <= r->prompt_len) share_prefix(*r);
  }
  slots_.free(done.freed);
}

/// Results that are late enough are processed; requests that have ended go.
void Scheduler::settle() {
  while (std::ssize(in_flight_) > config_.flight) process();
  if (phase_ != Phase::kNone) return;
  for (size_t i = running_.size(); i-- > 0;) {
    const Request& r = running_[i];
    if (r.pool.confirmed_len >= r.end_len || !has_room(r.pool.confirmed_len)) finish(i);
  }
}

/// Whether a request of so many tokens can have more.
bool Scheduler::has_room(int32_t kv_len) const {
  return kv_len + std::max(1, config_.dllm_block) <= config_.max_context_len;
}

void Scheduler::churn(Choices& choices) {
  if (running_.size() > 1 && choices.one_in(8))
    retract(choices.below(static_cast<uint32_t>(running_.size())));
  if (config_.radix && choices.one_in(8))
    give_back(cache_.evict(choices.between(1, 2 * config_.page_size)));
  for (Request& r : running_) {
    if (config_.swa_pages > 0 && choices.below(3) == 0) evict_window(r);
  }
  const size_t most = config_.crowded ? static_cast<size_t>(config_.max_requests) : 2;
  const auto comes = [&] { return config_.crowded ? choices.below(16) != 0 : choices.one_in(2); };
  const auto least = static_cast<size_t>(config_.least_requests);
  for (bool must = running_.size() < least; waiting_.size() < most && (must || comes());) {
    arrive(choices);
    const bool too_few = running_.size() + waiting_.size() < least;
    if (must && !too_few && !config_.crowded) break;
    must = too_few;
  }
  // Most are admitted at once: then prompts that have begun run next to new ones.
  const auto goes = [&] { return config_.crowded ? comes() : choices.below(4) != 3; };
  while (!waiting_.empty() && (running_.size() < least || goes()) && admit()) continue;
}

void Scheduler::arrive(Choices& choices) {
  parts_made_.push_back(choices.made().size());
  Request r;
  r.pool.id = next_id_++;
  const int32_t block = std::max(1, config_.dllm_block);
  // Some prompts are short, so that what follows them comes early.
  const int32_t longest = config_.max_context_len - block;
  const int32_t most = choices.one_in(3) ? std::min(longest, config_.max_chunk) : longest;
  r.prompt_len = choices.between(config_.whole_prompts() ? (most + 1) / 2 : 1, most);
  r.end_len = r.prompt_len + choices.between(1, config_.max_context_len - r.prompt_len);
  if (config_.radix) {
    const int32_t family = choices.between(0, 2), shared = choices.between(0, r.prompt_len);
    for (int32_t p = 0; p < shared; ++p) r.text.push_back(family_token(family, p));
  }
  r.keep_text(r.prompt_len);
  if (config_.max_encoder_len > 0) {
    const int32_t pages = config_.max_encoder_len / config_.page_size;
    r.pool.encoder_len = choices.between(0, pages) * config_.page_size;
  }
  told_.arrivals.push_back({r.pool.id, r.pool.encoder_len, r.text});
  waiting_.push_back(std::move(r));
}

/// The first in the queue, with what the cache has of its prompt; its last token is always new.
bool Scheduler::admit() {
  Request& r = waiting_.front();
  const std::optional<Slots> encoder = slots_.alloc(r.pool.encoder_len);
  const std::optional<int32_t> row = encoder ? rows_.alloc() : std::nullopt;
  if (!row) {
    if (encoder) slots_.free(*encoder);
    return false;
  }
  r.pool.row = *row;
  std::ranges::copy(*encoder, rows_.row(*row).begin());
  if (config_.state_slots > 0 && !admit_state(r)) {
    rows_.free(*row);
    slots_.free(*encoder);
    return false;
  }
  if (config_.radix) {
    RadixCache::Match match = cache_.match_prefix(r.tokens(r.prompt_len - 1));
    if (config_.state_slots > 0) {
      const int32_t shared = shared_state(r, static_cast<int32_t>(match.slots.size()));
      match = cache_.match_prefix(r.tokens(shared));
    }
    std::ranges::copy(match.slots, text(r).begin());
    const auto cached = static_cast<int32_t>(match.slots.size());
    r.pool.kv_len = r.pool.confirmed_len = r.pool.slots_len = r.pool.shared_len = cached;
    r.locked = match.node;
    cache_.lock(r.locked);
  }
  running_.push_back(std::move(r));
  waiting_.pop_front();
  return true;
}

void Scheduler::release(Request& r, int32_t first) {
  const std::span<int32_t> row = rows_.row(r.pool.row);
  give_back(row.first(static_cast<size_t>(r.pool.encoder_len)));
  give_back(
      text(r).subspan(static_cast<size_t>(first), static_cast<size_t>(r.pool.slots_len - first)));
  rows_.free(r.pool.row);
  release_state(r);
  if (config_.radix) cache_.unlock(r.locked);
}

void Scheduler::give_back(std::span<const int32_t> slots) {
  if (in_flight_.empty()) return slots_.free(slots);
  Slots& freed = in_flight_.back().freed;
  freed.insert(freed.end(), slots.begin(), slots.end());
}

/// Its whole pages stay in the cache.
void Scheduler::finish(size_t i) {
  Request& r = running_[i];
  if (config_.radix) {
    share_prefix(r);
    release(r, r.pool.shared_len);
  } else {
    release(r, 0);
  }
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
}

/// Back to the queue, as a prompt of all the tokens that are known by now.
void Scheduler::retract(size_t i) {
  Request r = std::move(running_[i]);
  release(r, r.pool.shared_len);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  r.prompt_len = std::max(r.prompt_len, r.pool.confirmed_len);
  r.pool = {.id = r.pool.id, .lives = r.pool.lives + 1, .encoder_len = r.pool.encoder_len};
  r.locked = nullptr;
  waiting_.push_front(std::move(r));
}

/// Puts the whole pages of what is stored into the cache; where it has them already, its slots
/// replace the request's.
void Scheduler::share_prefix(Request& r) {
  const int32_t whole = whole_pages(r.pool.confirmed_len, config_.page_size);
  const Tokens key = r.tokens(whole);
  const auto row = text(r).first(static_cast<size_t>(whole));
  const int32_t known = cache_.insert(key, row);
  give_back(row.subspan(static_cast<size_t>(r.pool.shared_len),
                        static_cast<size_t>(std::max(known - r.pool.shared_len, 0))));
  const RadixCache::Match match = cache_.match_prefix(key);
  std::ranges::copy(match.slots, row.begin());
  cache_.lock(match.node);
  cache_.unlock(r.locked);
  r.locked = match.node;
  r.pool.shared_len = whole;
}

/// Gives back the window slots that no query can see, of the next step and of one in flight.
void Scheduler::evict_window(Request& r) {
  const int32_t end =
      whole_pages(std::max(0, r.pool.confirmed_len - config_.window_left), config_.page_size);
  if (end <= r.pool.evicted_len) return;
  slots_.free_swa(text(r).subspan(static_cast<size_t>(r.pool.evicted_len),
                                  static_cast<size_t>(end - r.pool.evicted_len)));
  r.pool.evicted_len = end;
}

bool Scheduler::try_grow(const Requests& list, std::span<const int32_t> more) {
  std::vector<Growth> growth;
  for (size_t i = 0; i < list.size(); ++i) {
    const PoolRequest& p = list[i]->pool;
    const int32_t last =
        p.slots_len == 0 ? -1 : text(*list[i])[static_cast<size_t>(p.slots_len - 1)];
    growth.push_back({p.slots_len, std::max(p.slots_len, p.kv_len + more[i]), last});
  }
  const int64_t missing = slots_.full().pages_to_grow(growth) - slots_.full().free_pages();
  if (missing > 0) give_back(cache_.evict(static_cast<int32_t>(missing) * config_.page_size));
  const std::optional<Slots> slots = slots_.alloc_extend(growth);
  if (!slots) return false;
  auto slot = slots->begin();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto count = growth[i].kv_len - growth[i].prefix_len;
    std::copy_n(slot, count, text(*list[i]).begin() + growth[i].prefix_len);
    slot += count;
    list[i]->pool.slots_len = growth[i].kv_len;
  }
  return true;
}

void Scheduler::grow(Requests& list, std::span<const int32_t> more) {
  std::vector<OwnerId> ids;
  for (const Request* r : list) ids.push_back(r->pool.id);
  while (!try_grow(list, more.first(list.size()))) {
    if (!in_flight_.empty()) {  // what it may use can be freed then
      while (!in_flight_.empty()) process();
      continue;
    }
    if (config_.swa_pages > 0) {
      for (Request& r : running_) evict_window(r);
      if (try_grow(list, more.first(list.size()))) return;
    }
    // Somebody outside of the step goes first; a deque's elements move, so the list is found anew.
    size_t victim = running_.size();
    for (size_t i = running_.size(); i-- > 0 && victim == running_.size();) {
      if (std::ranges::find(ids, running_[i].pool.id) == ids.end()) victim = i;
    }
    if (victim == running_.size()) {
      assert(ids.size() > 1);  // the pools hold one request
      victim = index_of(list.back());
      ids.pop_back();
    }
    retract(victim);
    list.clear();
    for (const OwnerId id : ids) {
      const auto it =
          std::ranges::find_if(running_, [&](const Request& r) { return r.pool.id == id; });
      list.push_back(&*it);
    }
  }
}

}  // namespace shadowgraph
