#include "runtime/pool_state.h"

#include <algorithm>
#include <bit>

#include "attn/page_table.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

class ConfigCheck {
 public:
  explicit ConfigCheck(const RuntimeConfig& config) : c_(config) {}

  Status run() {
    judged("pool.shape");
    sizes();
    features();
    states();
    if (status_.ok()) room();
    return std::move(status_);
  }

 private:
  void fail(const char* field, std::string expected, int64_t got) {
    status_.add(make_finding("pool.shape", at(field), std::move(expected), std::to_string(got)));
  }
  void at_least(const char* field, int64_t least, int64_t got) {
    if (got < least) fail(field, ">= " + std::to_string(least), got);
  }

  void sizes() {
    if (c_.page_size < 1 || !std::has_single_bit(static_cast<uint32_t>(c_.page_size)))
      fail("page_size", "a power of two", c_.page_size);
    at_least("max_requests", 1, c_.max_requests);
    const int32_t most = std::max(1, c_.max_requests);
    if (c_.least_requests < 1 || c_.least_requests > most)
      fail("least_requests", "1.." + std::to_string(most), c_.least_requests);
    at_least("max_context_len", 2, c_.max_context_len);
    at_least("max_chunk", 1, c_.max_chunk);
    at_least("max_encoder_len", 0, c_.max_encoder_len);
    at_least("swa_pages", 0, c_.swa_pages);
    if (c_.flight < 0 || c_.flight > 1) fail("flight", "0 or 1", c_.flight);
    if (c_.dllm_block < 0 || c_.dllm_block >= c_.max_context_len)
      fail("dllm_block", "0, or shorter than the context", c_.dllm_block);
    const DraftShape& d = c_.draft;
    at_least("draft.topk", 1, d.topk);
    at_least("draft.num_steps", 0, d.num_steps);
    if (d.num_steps > 0 && (d.num_draft_tokens < 1 || d.num_draft_tokens > d.max_tokens()))
      fail("draft.num_draft_tokens", "1.." + std::to_string(d.max_tokens()), d.num_draft_tokens);
  }

  void features() {
    if (c_.swa_pages > 0) at_least("window_left", 0, c_.window_left);
    if (c_.radix && (c_.swa_pages > 0 || c_.max_encoder_len > 0))
      fail("radix", "one pool, no encoder", 1);
    if (c_.prebuilt && c_.max_encoder_len > 0) fail("prebuilt", "no encoder", 1);
    if (c_.draft.num_steps > 0 && (c_.dllm_block > 0 || c_.max_encoder_len > 0))
      fail("draft.num_steps", "0 with blocks or an encoder", c_.draft.num_steps);
  }

  /// Every request has a state, and of prefixes that are shared there are snapshots.
  void states() {
    if (c_.state_slots == 0) return;
    at_least("state_slots", int64_t{c_.max_requests} + (c_.radix ? 2 : 0), c_.state_slots);
    at_least("state_chunk", 1, c_.state_chunk);
    if (c_.prebuilt || c_.dllm_block > 0 || c_.max_encoder_len > 0)
      fail("state_slots", "0 with prebuilt KV, blocks or an encoder", c_.state_slots);
  }

  void room() {
    if (c_.reserve >= 0) at_least("reserve", draft_reserve(c_.draft, c_.page_size), c_.reserve);
    at_least("num_pages", pages_for(c_.width(), c_.page_size), c_.num_pages);
    if (c_.swa_pages > 0) at_least("swa_pages", c_.least_swa_pages(), c_.swa_pages);
  }

  const RuntimeConfig& c_;
  Status status_;
};

}  // namespace

int32_t RuntimeConfig::encoder_columns() const {
  return static_cast<int32_t>(pages_for(max_encoder_len, page_size)) * page_size;
}

int32_t RuntimeConfig::least_swa_pages() const {
  const int32_t step = std::max({max_chunk, dllm_block, draft_reserve(draft, page_size)});
  const int32_t columns = encoder_columns() + window_left + step;
  const auto window = static_cast<int32_t>(pages_for(columns, page_size)) + 2;
  return prebuilt ? std::max(window, static_cast<int32_t>(pages_for(max_context_len, page_size)))
                  : window;
}

int32_t RuntimeConfig::width() const {
  return encoder_columns() + max_context_len +
         (reserve >= 0 ? reserve : draft_reserve(draft, page_size));
}

Status validate(const RuntimeConfig& config) { return ConfigCheck(config).run(); }

const PoolRequest* PoolState::find(OwnerId id) const {
  const auto it = std::ranges::find(requests, id, &PoolRequest::id);
  return it == requests.end() ? nullptr : &*it;
}

Owners owners_of(const PoolState& state) {
  Owners owners;
  const auto page_size = static_cast<size_t>(state.config.page_size);
  owners.pages.resize(state.taken.size());
  owners.swa_pages.resize(state.swa_taken.size());
  owners.rows.resize(
      state.width == 0 ? 0 : state.req_to_token.size() / static_cast<size_t>(state.width));
  const auto own = [](std::vector<OwnerId>& page, OwnerId id) {
    if (page.empty() || page.back() != id) page.push_back(id);
  };
  for (const PoolRequest& r : state.requests) {
    owners.rows[static_cast<size_t>(r.row)] = r.id;
    for (const int32_t s : state.slots(r)) {
      const auto slot = static_cast<size_t>(s);
      own(owners.pages[slot / page_size], r.id);
      const int64_t swa = state.full_to_swa.empty() ? 0 : state.full_to_swa[slot];
      if (swa > 0) own(owners.swa_pages[static_cast<size_t>(swa) / page_size], r.id);
    }
  }
  return owners;
}

}  // namespace shadowgraph
