// Scheduler: plays a history of requests, as an engine's scheduler might, and gives the batch of
// each step. Every decision is one of Choices: a history is its choices, and shrinks with them.
// Tested by tests/runtime/scheduler_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/choices.h"
#include "runtime/pool_state.h"
#include "runtime/radix_cache.h"
#include "runtime/req_to_token.h"
#include "runtime/state_slots.h"
#include "runtime/told.h"

namespace shadowgraph {

/// What a scheduler hands out slots and finds prefixes with.
struct SchedulerParts {
  explicit SchedulerParts(const RuntimeConfig& config);

  std::unique_ptr<SlotAllocator> slots;
  std::unique_ptr<RadixCache> cache;
  std::unique_ptr<ReqToTokenPool> rows;
  std::unique_ptr<StateSlots> states;
};

class Scheduler {
 public:
  /// Requires a config that validate() accepts.
  explicit Scheduler(const RuntimeConfig& config) : Scheduler(config, SchedulerParts(config)) {}
  Scheduler(const RuntimeConfig& config, SchedulerParts parts);

  /// Ends the last step, lets requests come, go, and give back what they need not have, and makes
  /// the next step. A step is idle where nothing runs.
  ///
  /// Prompts are extended in chunks, next to decodes or alone (then maybe layer by layer: split
  /// prefill), or arrive whole (prebuilt); then requests decode, or denoise blocks, or speculate:
  /// one draft decode a step but the last, target verify, draft extend (which follow each other
  /// with the same requests).
  ///
  /// With RuntimeConfig::flight, the step before still runs: how many tokens it has stored is
  /// known, what follows from its results (sharing, snapshots, ends, and slots that its rows may
  /// use) waits.
  Step next(Choices& choices);

  /// Arrivals, trees and answers that reached it since the step before the last.
  const Told& told() const { return told_; }

  /// How many choices had been made where each step, and each request, began.
  const std::vector<size_t>& parts() const { return parts_made_; }

  /// The pools that the last step was made from.
  PoolState state() const;
  const RuntimeConfig& config() const { return config_; }

 private:
  struct Request {
    PoolRequest pool;
    Tokens text;              // its prompt, and what was accepted; own tokens follow
    int32_t prompt_len = 0;   // tokens that are extended, not decoded
    int32_t end_len = 0;      // it ends with so many tokens
    int32_t tracked_len = 0;  // tokens that this step's snapshot is behind
    RadixCache::Node* locked = nullptr;
    std::vector<int32_t> accepted;  // of the verified tree, until the draft has caught up

    int32_t token(int32_t position) const;
    Tokens tokens(int32_t count) const;
    /// So many tokens are known: others are forgotten, or were sampled meanwhile.
    void keep_text(int32_t count) { text = tokens(count); }
  };
  using Requests = std::vector<Request*>;
  /// A step whose results are not processed yet.
  struct Flight {
    struct Row {
      OwnerId request = 0;
      int32_t lives = 0, kv_len = 0;
      int32_t track_slot = -1, tracked_len = 0;
    };
    std::vector<Row> rows;
    bool shares = false;  // what it stored can be the prefix cache's
    Slots freed;          // as soon as it has ended
  };
  /// How far a round of speculation has come: what is next, or that its last step was made.
  enum class Phase : uint8_t { kNone, kDraft, kVerify, kAccept, kCatchUp };

  // What happens between steps: scheduler.cc.
  void ask(Choices& choices);
  void advance();
  void process();
  void settle();
  bool has_room(int32_t kv_len) const;
  void churn(Choices& choices);
  void arrive(Choices& choices);
  bool admit();
  void finish(size_t i);
  void retract(size_t i);
  /// Gives back the row and all slots from column first on; shared ones are unlocked.
  void release(Request& r, int32_t first);
  /// Slots that no request has any more, and a step that still runs may use.
  void give_back(std::span<const int32_t> slots);
  void share_prefix(Request& r);
  void evict_window(Request& r);
  /// Slots for so many more tokens each; who cannot have them goes back to the queue, and out of
  /// the list.
  void grow(Requests& list, std::span<const int32_t> more);
  bool try_grow(const Requests& list, std::span<const int32_t> more);
  std::span<int32_t> text(const Request& r);
  size_t index_of(const Request* r) const;

  // Recurrent states: scheduler_states.cc.
  std::optional<int32_t> take_state();
  bool admit_state(Request& r);
  int32_t shared_state(Request& r, int32_t cached);
  void release_state(Request& r);
  void add_track(Step& step, Request& r, int32_t count, Choices& choices);
  void settle_track(const Flight::Row& row, const Request* r);
  void commit_states(const Requests& list);
  void add_trees(Step& step) const;

  // The steps: scheduler_steps.cc.
  Step plain_step(Choices& choices);
  Step extend_step(ForwardMode mode, Requests prompts, Requests decodes, Choices& choices);
  Step decode_step(Requests list);
  Step block_step(Requests list);
  void begin_round(Requests list, Choices& choices);
  Step round_step(Choices& choices);
  Step draft_step();
  Step verify_step();
  Step catch_up_step(Choices& choices);
  Step step_of(ForwardMode mode, const Requests& list) const;
  void add_tokens(Step& step, const Request& r, int32_t count);
  Requests in_step();

  RuntimeConfig config_;
  const SchedulerParts parts_;
  ReqToTokenPool& rows_;
  SlotAllocator& slots_;
  RadixCache& cache_;
  StateSlots& states_;
  std::vector<int32_t> state_map_;  // by row of req_to_token; as that, it keeps what it held
  std::vector<StateMove> moves_;    // since the last step
  std::deque<Request> waiting_;
  std::deque<Request> running_;
  std::deque<Flight> in_flight_;
  Told told_;
  std::vector<size_t> parts_made_;
  OwnerId next_id_ = 1;
  Step last_;
  Phase phase_ = Phase::kNone;
  int32_t next_draft_ = 0;
  std::vector<DraftTree> trees_;  // of the verify, one a request
};

}  // namespace shadowgraph
