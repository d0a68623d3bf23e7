// What the runtime holds, as plain data: how it is configured, who has which slots, and whether
// that may be (docs/metadata.md "Pools"). Tested by tests/runtime/check_pool_test.cc
// and after every step of tests/runtime/scheduler_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/draft_tree.h"
#include "runtime/radix_cache.h"
#include "runtime/step.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

struct RuntimeConfig {
  int32_t max_requests = 4;      // at a time
  int32_t max_context_len = 32;  // tokens of a request, drafts aside
  int32_t page_size = 1;         // a power of two
  int32_t num_pages = 64;        // page 0 aside
  int32_t swa_pages = 0;         // of the sliding-window layers' pool, page 0 aside; 0: one pool
  int32_t window_left = -1;      // of those layers
  int32_t max_encoder_len = 0;   // 0: no encoder
  int32_t dllm_block = 0;        // tokens; 0: no diffusion model
  int32_t max_chunk = 8;         // tokens that one extend adds to a request
  int32_t least_requests = 1;    // that run, and that a step has, as long as pools have room
  bool crowded = false;          // nearly every request comes as soon as there is room
  bool radix = false;            // share prefixes; of one pool, without encoders
  // Prompts are extended elsewhere, and all of their KV arrives at once; without encoders
  bool prebuilt = false;
  DraftShape draft;  // num_steps 0: no speculation
  // Recurrent states, slot 0 aside; 0: no layer has any. As many as requests, and with radix two
  // more: prefixes are shared by snapshots
  int32_t state_slots = 0;
  int32_t state_chunk = 8;  // tokens of a prefill between two of which a snapshot can be taken
  // Steps that may still run when the next one is made: 0, or 1 where the host works ahead
  int32_t flight = 0;
  // Columns of a row beyond the longest context; -1: what the draft needs (draft_reserve)
  int32_t reserve = -1;

  /// A chunk has room for any prompt: prompts are extended at once, and are long.
  bool whole_prompts() const { return max_chunk >= max_context_len; }
  /// Columns of a row that are the encoder's at most: whole pages, so that text begins a page.
  int32_t encoder_columns() const;
  /// Pages of a window pool in which one request can always go on.
  int32_t least_swa_pages() const;
  /// Columns of a row: the encoder, the longest context, and what speculation reserves.
  int32_t width() const;
};

/// pool.shape: sizes that are sizes, features that go together, pools that hold one request.
Status validate(const RuntimeConfig& config);

/// A running request. Columns are counted past the encoder.
struct PoolRequest {
  OwnerId id = 0;
  int32_t lives = 0;           // how often it was retracted
  int32_t row = 0;             // of req_to_token
  int32_t encoder_len = 0;     // columns before the text, whole pages
  int32_t kv_len = 0;          // tokens stored before this step
  int32_t confirmed_len = 0;   // of them, tokens of steps whose results are processed
  int32_t slots_len = 0;       // columns that have slots
  int32_t shared_len = 0;      // of them, the first ones: the prefix cache's
  int32_t evicted_len = 0;     // of them, the first ones: not in the window pool any more
  int32_t accepted_len = 0;    // of the last verify, until the draft has caught up
  int32_t last_accepted = -1;  // the draft token that they end with
  int32_t state_slot = 0;      // 0: none
  int32_t track_slot = -1;     // where this step's snapshot goes
};

struct PoolState {
  RuntimeConfig config;
  std::vector<int32_t> req_to_token;  // rows of width columns
  int64_t width = 0;
  std::vector<int64_t> full_to_swa;  // empty: one pool
  // By page, page 0 first: whether it is allocated, how many times it was, and how many times it
  // was given back
  std::vector<bool> taken, swa_taken;
  std::vector<uint32_t> takes, swa_takes, frees, swa_frees;
  std::vector<PoolRequest> requests;
  std::vector<CachedSlot> cached;    // the prefix cache's
  Slots freed;                       // nobody's any more, as soon as the steps in flight have ended
  std::vector<int32_t> state_slots;  // by row of req_to_token
  std::vector<CachedSlot> snapshots;  // of states, the prefix cache's
  Slots tracks;                       // where snapshots of steps in flight go
  // Rows of req_to_token and slots of states that nobody has
  std::vector<int32_t> free_rows, free_states;

  std::span<const int32_t> row(const PoolRequest& r) const {
    return TokenTable{req_to_token, width}.row(r.row);
  }
  /// Its columns that have slots, the encoder's first.
  std::span<const int32_t> slots(const PoolRequest& r) const {
    return row(r).first(static_cast<size_t>(r.encoder_len) + static_cast<size_t>(r.slots_len));
  }
  /// The slots of the request's text.
  std::span<const int32_t> text(const PoolRequest& r) const {
    return row(r).subspan(static_cast<size_t>(r.encoder_len));
  }
  /// nullptr if it does not run.
  const PoolRequest* find(OwnerId id) const;
};

/// Everything wrong with the pools: pool.*.
Status check_pool(const PoolState& state);
/// Everything wrong with a step's batch, given the pools that it was made from: what
/// validate(batch) says, and step.*.
Status check_step(const Step& step, const PoolState& state);

/// Requests that may use each page (of both pools) and each row of req_to_token. No request: a page
/// is the prefix cache's alone, or free.
struct Owners {
  std::vector<std::vector<OwnerId>> pages, swa_pages;
  std::vector<OwnerId> rows;  // 0: no request's
};
Owners owners_of(const PoolState& state);

}  // namespace shadowgraph
