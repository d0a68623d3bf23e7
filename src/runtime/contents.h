// Contents: the book of contents. It knows for each slot of each space (the full pool, the window
// pool, recurrent states) what the slot holds, and for each request its tokens, from events alone:
// what reached the scheduler, what its steps write, copy and move, and which pages changed hands.
// It judges what a scheduler believes of its requests, and never believes it. See
// docs/metadata.md "Contents". Tested by tests/runtime/contents_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/laws.h"
#include "runtime/pool_state.h"
#include "runtime/step.h"
#include "runtime/told.h"

namespace shadowgraph {

class Contents {
 public:
  explicit Contents(const RuntimeConfig& config);

  /// Takes in what the scheduler was told before this step, and who runs now; then says of the
  /// step's slots what they must hold and will hold: Step::chains.
  void follow(const Told& told, const PoolState& pools, Step* step);
  /// Everything wrong with a step's slots, and with what pools and prefix cache say of theirs:
  /// life.*. Then the step is played in the book. Requires what follow() was given last, and pools
  /// and a step that check_pool() and check_step() accept.
  Status judge(const PoolState& pools, const Step& step);

 private:
  /// The content of a slot, and who wrote it.
  struct Held {
    Chain chain = 0;  // 0: nothing
    OwnerId request = 0;
    int32_t position = 0;  // from -1 downwards: of the encoder
    bool operator==(const Held& o) const { return chain == o.chain; }
  };
  /// Part of a finding's Where.
  struct Place {
    const char* field;
    int64_t row;
    std::optional<int64_t> col = {};
  };
  struct Space {
    std::vector<Held> slots;
    std::vector<uint32_t> takes;  // by page, as last seen
    std::vector<bool> taken;
  };
  /// A request, as all that it was told and all that it stored make it.
  struct Text {
    std::vector<int32_t> tokens;  // prompt and accepted ones; its own follow
    std::vector<Chain> chains;    // of the first tokens, as far as somebody asked
    int32_t encoder_len = 0;
    int32_t lives = -1;  // as last seen running; -1: never
    int32_t stored = 0, confirmed = 0;
    int32_t prompt_len = 0;  // what its prompt is now: after a retraction all that was confirmed
    std::vector<int32_t> parents;   // of its tree
    std::vector<int32_t> accepted;  // until the draft has caught up

    int32_t token(OwnerId request, int32_t position) const;
    Chain chain(OwnerId request, int32_t tokens);  // of so many
    void keep(OwnerId request, int32_t count);
  };
  /// A row of a step.
  struct Row {
    OwnerId request = 0;
    int32_t lives = 0, q_len = 0, stored = 0;
  };
  struct Played {
    ForwardMode mode = ForwardMode::kIdle;
    std::vector<Row> rows;
    std::vector<int32_t> pages;  // that it may use
  };

  // The requests: contents.cc.
  void hear(const Told& told);
  void store(const Told::Answer& answer, Row* row);
  void confirm(int32_t in_flight);
  void see(const PoolRequest& r);
  void add_chains(const ForwardBatch& batch, int64_t row, Step* step);
  std::vector<int32_t> expected_inputs(const ForwardBatch& batch, int64_t row);

  // The laws: contents_judge.cc, contents_play.cc.
  void fail(LawId law, Where where, std::string expected, std::string got);
  void judge_pages(const PoolState& pools, const Step& step, bool window);
  void judge_locks(const PoolState& pools);
  void judge_lengths(const PoolState& pools, const Step& step);
  void judge_labels(const PoolState& pools);
  void judge_inputs(const Step& step);
  void judge_reads(const PoolState& pools, const Step& step);
  void judge_row(const PoolState& pools, const Step& step, size_t row);
  void judge_state(const Step& step, size_t row, const PoolRequest& r);
  void judge_accepted(const PoolState& pools, const PoolRequest& r);
  void judge_branches(const PoolState& pools, const Step& step, int64_t row);
  void expect(const Space& space, int64_t slot, const Held& want, const Place& place);
  void expect_key(const PoolState& pools, int64_t slot, const Held& want, const Place& place,
                  bool in_window);
  void copy(const PoolState& pools, const Step& step);
  void move_states(const Step& step);
  void write(const PoolState& pools, const Step& step);
  void write_slot(int64_t slot, const PoolState& pools, const Held& what, const Place& place);
  void judge_write(int64_t slot, const Place& place);
  void play_states(const Step& step);
  static bool has_chains(const Step& step);
  void find_final(const PoolState& pools);
  std::string name(const Held& held) const;
  std::string name(Chain chain);

  RuntimeConfig config_;
  Space full_, window_, states_;
  std::map<OwnerId, Text> texts_;
  Played last_;
  std::deque<Played> in_flight_;
  std::vector<Held> verified_;  // states behind each token of the last verify's trees
  std::vector<bool> final_;     // slots of the full pool that are stored for good
  bool row_failed_ = false;     // its first read that is wrong is told
  Status status_;
};

}  // namespace shadowgraph
