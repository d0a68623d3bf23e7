// The laws of a book of contents: life.*.
#include <algorithm>
#include <map>
#include <utility>

#include "core/laws.h"
#include "runtime/contents.h"

namespace shadowgraph {

void Contents::fail(LawId law, Where where, std::string expected, std::string got) {
  status_.add(make_finding(law, std::move(where), std::move(expected), std::move(got)));
}

std::string Contents::name(const Held& held) const {
  if (held.chain == 0) return "nothing";
  if (held.chain == kNoTokens) return "the state behind no token";
  const bool encoder = held.position < 0;
  const int32_t position = encoder ? -1 - held.position : held.position;
  return (encoder ? "encoder token " : "token ") + std::to_string(position) + " of request " +
         std::to_string(held.request);
}

/// The token of whose text this is the chain.
std::string Contents::name(Chain chain) {
  for (auto& [id, t] : texts_) {
    t.chain(id, static_cast<int32_t>(t.tokens.size()));
    const auto it = std::ranges::find(t.chains, chain);
    if (it != t.chains.end())
      return name(Held{chain, id, static_cast<int32_t>(it - t.chains.begin())});
  }
  return chain == kNoTokens ? name(Held{chain}) : "a token of no request";
}

Status Contents::judge(const PoolState& pools, const Step& step) {
  status_ = {};
  judge_pages(pools, step, false);
  if (!pools.full_to_swa.empty()) judge_pages(pools, step, true);
  judge_locks(pools);
  judge_lengths(pools, step);
  if (!status_.ok()) return std::move(status_);  // what is read follows from all of these
  judge_labels(pools);
  find_final(pools);
  copy(pools, step);
  move_states(step);
  judge_reads(pools, step);
  judge_inputs(step);
  write(pools, step);
  play_states(step);
  return std::move(status_);
}

/// Pages that changed hands since the last step.
void Contents::judge_pages(const PoolState& pools, const Step& step, bool window) {
  Space& space = window ? window_ : full_;
  const std::vector<uint32_t>& takes = window ? pools.swa_takes : pools.takes;
  const std::vector<uint32_t>& frees = window ? pools.swa_frees : pools.frees;
  const std::vector<bool>& taken = window ? pools.swa_taken : pools.taken;
  const char* field = window ? "swa_pages" : "pages";
  const auto page_size = static_cast<size_t>(config_.page_size);
  space.takes.resize(takes.size()), space.taken.resize(takes.size());
  judged("life.free_once", std::ssize(takes));
  judged("life.hold", std::ssize(takes));
  for (size_t page = 1; page < takes.size(); ++page) {
    const Where where = at(field, static_cast<int64_t>(page));
    if (frees[page] > takes[page])
      fail("life.free_once", where, "given back once for each time that it is handed out",
           "given back " + std::to_string(frees[page]) + " times, handed out " +
               std::to_string(takes[page]));
    if (takes[page] > frees[page] + 1)
      fail("life.hold", where, "given back before it is handed out again",
           "handed out " + std::to_string(takes[page]) + " times, given back " +
               std::to_string(frees[page]));
    const bool given_back = space.taken[page] && (!taken[page] || takes[page] != space.takes[page]);
    for (size_t n = 0; !window && given_back && n < in_flight_.size(); ++n) {
      if (std::ranges::binary_search(in_flight_[n].pages, static_cast<int32_t>(page)))
        fail("life.hold", where, "kept until the step that may use it has ended",
             "free, and a step in flight uses it");
    }
    if (takes[page] == space.takes[page]) continue;
    for (size_t slot = page * page_size; slot < (page + 1) * page_size; ++slot)
      space.slots[slot] = {};
  }
  space.takes = takes, space.taken = taken;
  const int64_t late = step.in_flight;
  if (!window && (late < 0 || late > config_.flight))
    fail("life.hold", at("in_flight"), "0.." + std::to_string(config_.flight) + " steps",
         std::to_string(late));
}

/// Cached slots are locked for the requests that use them, and no others are.
void Contents::judge_locks(const PoolState& pools) {
  if (!config_.radix) return;
  std::map<int32_t, int32_t> users;  // of each slot that is shared
  for (const PoolRequest& r : pools.requests) {
    const auto shared = pools.text(r).first(static_cast<size_t>(r.shared_len));
    for (const int32_t slot : shared) ++users[slot];
  }
  judged("life.lock", std::ssize(pools.cached));
  int32_t wrong = 0;  // the slots of a node have its locks: they are one finding
  for (const CachedSlot& c : pools.cached) {
    const auto it = users.find(c.slot);
    const int32_t want = it == users.end() ? 0 : it->second;
    if (c.locks != want && std::exchange(wrong, c.locks - want) != c.locks - want)
      fail("life.lock", at("cached", c.slot),
           std::to_string(want) + " locks, one of each request that shares it",
           std::to_string(c.locks));
  }
}

void Contents::judge_lengths(const PoolState& pools, const Step& step) {
  for (const PoolRequest& r : pools.requests) {
    judged("life.length", 2);
    const auto it = texts_.find(r.id);
    if (it == texts_.end() || it->second.lives < 0) {
      fail("life.length", at("requests", r.id), "a request that has arrived", "none");
      continue;
    }
    const Text& t = it->second;
    const auto check = [&](const char* field, int64_t want, int64_t got, const char* what) {
      if (want != got)
        fail("life.length", at(field, r.id), std::to_string(want) + what, std::to_string(got));
    };
    check("kv_len", t.stored, r.kv_len, " tokens, as its steps have stored");
    check("confirmed_len", t.confirmed, r.confirmed_len,
          " tokens, as the results that have come say");
    if (is_draft_extend(step.mode, DraftExtendV2::kIncluded))
      check("accepted_len", std::ssize(t.accepted), r.accepted_len, " tokens, as were accepted");
    check("encoder_len", t.encoder_len, r.encoder_len, " tokens, as it came with");
  }
}

/// The slots of the prefix cache hold what it says.
void Contents::judge_labels(const PoolState& pools) {
  const auto check = [&](const char* field, const CachedSlot& c, const Space& space) {
    const Held& held = space.slots[static_cast<size_t>(c.slot)];
    if (held.chain != c.chain)
      fail("life.label", at(field, c.slot), name(c.chain) + ", as the cache says", name(held));
  };
  judged("life.label", std::ssize(pools.cached) + std::ssize(pools.snapshots));
  for (const CachedSlot& c : pools.cached) check("cached", c, full_);
  for (const CachedSlot& c : pools.snapshots) check("snapshots", c, states_);
}

void Contents::judge_inputs(const Step& step) {
  const ForwardBatch batch = step.batch();
  size_t first = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const std::vector<int32_t> want = expected_inputs(batch, i);
    judged("life.input", std::ssize(want));
    for (size_t t = 0; t < want.size(); ++t) {
      const size_t n = first + t;
      if (n < step.input_ids.size() && step.input_ids[n] == want[t]) continue;
      fail("life.input", at("input_ids", i, static_cast<int64_t>(t)),
           std::to_string(want[t]) + ", the token that request " +
               std::to_string(step.requests[static_cast<size_t>(i)]) + " has there",
           n < step.input_ids.size() ? std::to_string(step.input_ids[n]) : "none");
    }
    first += want.size();
  }
}

/// A row's first slot that holds something else says what is wrong with the row.
void Contents::expect(const Space& space, int64_t slot, const Held& want, const Place& place) {
  const Held& held = space.slots[static_cast<size_t>(slot)];
  if (held.chain != want.chain && !std::exchange(row_failed_, true))
    fail("life.read", at(place.field, place.row, place.col), name(want),
         name(held) + " in slot " + std::to_string(slot) +
             (&space == &window_ ? " of the window pool" : ""));
}

/// In the full pool, and if it may be seen there in the window pool.
void Contents::expect_key(const PoolState& pools, int64_t slot, const Held& want,
                          const Place& place, bool in_window) {
  expect(full_, slot, want, place);
  if (in_window && !pools.full_to_swa.empty())
    expect(window_, pools.full_to_swa[static_cast<size_t>(slot)], want, place);
}

void Contents::judge_reads(const PoolState& pools, const Step& step) {
  for (size_t row = 0; row < step.requests.size(); ++row) judge_row(pools, step, row);
}

void Contents::judge_row(const PoolState& pools, const Step& step, size_t row) {
  const PoolRequest& r = *pools.find(step.requests[row]);
  const std::span<const Chain> prefix = step.chains.prefix_of(row);
  const auto text = pools.text(r);
  const auto seen = static_cast<size_t>(std::max(0, r.kv_len - config_.window_left));
  row_failed_ = false;
  judged("life.read", std::ssize(prefix));
  for (size_t p = 0; p < prefix.size(); ++p) {
    expect_key(pools, text[p], {prefix[p], r.id, static_cast<int32_t>(p)},
               {"text", r.id, static_cast<int64_t>(p)}, p >= seen);
  }
  judge_accepted(pools, r);
  if (step.mode == ForwardMode::kDraftDecode)
    judge_branches(pools, step, static_cast<int64_t>(row));
  judge_state(step, row, r);
  if (r.encoder_len == 0 || !step.encoder_out_cache_loc.empty()) return;
  std::vector<Chain> encoder;
  append_encoder(r.id, r.encoder_len, &encoder);
  for (size_t p = 0; p < encoder.size(); ++p)
    expect(full_, pools.row(r)[p], {encoder[p], r.id, -1 - static_cast<int32_t>(p)},
           {"encoder", r.id, static_cast<int64_t>(p)});
}

/// Accepted tokens of a verify lie at their positions as soon as the draft catches up: the draft
/// stores in a pool of its own.
void Contents::judge_accepted(const PoolState& pools, const PoolRequest& r) {
  Text& t = texts_[r.id];
  const auto text = pools.text(r);
  for (int32_t p = t.stored; p < t.stored + std::ssize(t.accepted); ++p)
    expect_key(pools, text[static_cast<size_t>(p)], {t.chain(r.id, p + 1), r.id, p},
               {"text", r.id, p}, true);
}

/// A branch reads its tokens of the steps before; in pages of its own, the prefix's tail, too.
void Contents::judge_branches(const PoolState& pools, const Step& step, int64_t row) {
  if (!has_chains(step)) return;
  const ForwardBatch one = step.batch().slice(row, 1);
  const auto steps = static_cast<size_t>(step.draft.num_steps);
  const auto topk = static_cast<size_t>(step.draft.topk);
  const size_t first = static_cast<size_t>(row) * topk * steps;
  const Row& of = last_.rows[static_cast<size_t>(row)];
  const std::span<const Chain> prefix = step.chains.prefix_of(static_cast<size_t>(row));
  const bool paged = config_.page_size > 1 && topk > 1;
  for (size_t k = 0; k < topk; ++k) {
    const int64_t slot = one.out_cache_loc[k * steps];
    const int32_t tail = paged ? of.stored % config_.page_size : 0;
    const Place place{"branch", row, static_cast<int64_t>(k)};
    for (int32_t t = 1; t <= tail; ++t)
      expect_key(pools, slot - t,
                 {prefix[static_cast<size_t>(of.stored - t)], of.request, of.stored - t}, place,
                 false);
    for (int32_t j = 0; j < step.draft_step; ++j) {
      const size_t n = k * steps + static_cast<size_t>(j);
      expect_key(pools, one.out_cache_loc[n],
                 {step.chains.fresh[first + n], of.request, of.stored + j}, place, true);
    }
  }
}

/// The state that a row goes on from is behind exactly the tokens that are stored; behind a verify,
/// those that were accepted, too.
void Contents::judge_state(const Step& step, size_t row, const PoolRequest& r) {
  if (config_.state_slots == 0 || step.mode == ForwardMode::kDraftDecode) return;
  Text& t = texts_[r.id];
  judged("life.read");
  const int32_t tokens = t.stored + static_cast<int32_t>(t.accepted.size());
  expect(states_, r.state_slot, {t.chain(r.id, tokens), r.id, tokens - 1},
         {"state", static_cast<int64_t>(row)});
}

}  // namespace shadowgraph
