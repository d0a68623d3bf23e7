// A recurrent layer in a runner's world: pools of states with owners, what a verify leaves, and the
// host that commits, copies and reuses slots between steps. A step starts from the states behind
// its requests' tokens (recurrent_contents.h), and is judged against each request computed alone
// from there (recurrent_reference.h). Tested by tests/check/recurrent_world_test.cc.
#pragma once

#include <string>
#include <vector>

#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/recurrent_contents.h"
#include "check/worlds/recurrent_reference.h"
#include "core/choices.h"

namespace shadowgraph {

class RecurrentWorld final : public LayerWorld {
 public:
  RecurrentWorld(const LayerPlace& place, const RecurrentLayer& layer);

  Status bind() override;
  Status move_states(const Step& step) override;
  void receive(const Step& step, const ForwardBatch& batch, bool first) override;
  Status begin_step(const Step& step, const ForwardBatch& batch, bool first) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t number) override;
  void describe(int64_t tokens, size_t step, LayerIo* io) const override;
  Status judge_alone(const ForwardBatch& batch) override;

 private:
  /// Whose snapshots only the prefix cache has: no request.
  static constexpr OwnerId kCache = UINT32_MAX;
  struct Pools {
    Buffer conv, states;  // conv: none where there is no convolution
  };

  Status bind_pools();
  Status bind_inputs();
  void make_weights();
  std::vector<const Buffer*> pools(const Pools& p) const;
  std::vector<float> numbers(const Buffer& b) {
    return layer_numbers(b.numel(), place_.options.data, rng_);
  }
  HostStates contents(const Pools& p) const;

  // Slots of both pools.
  /// -1: the batch names none, which other laws say.
  int32_t slot_of_request(const ForwardBatch& batch, int64_t i) const;
  void own(int32_t slot, OwnerId owner);
  void begin_slot(int32_t slot, OwnerId owner);
  void copy_place(const Pools& from, int64_t place, int32_t slot);
  void copy_known(const HostStates& from, int64_t place, int32_t slot);
  bool is_sound(const StateMove& m) const;
  void move(const StateMove& m);
  void retire(int32_t slot);
  /// A slot, or a place of drafts, as a pool of one.
  HostStates one_of(const HostStates& states, const Pools& of, int64_t place) const;
  void set_one(const HostStates& one, const Pools& of, int64_t place, HostStates* states) const;
  /// On the device, and a slot is defined from then on.
  void write(const HostStates& one, const Pools& to, int64_t place);
  void write_slot(int32_t slot, std::span<const TokenContent> tokens);
  /// All tokens of a request, the step's last.
  std::span<const TokenContent> tokens_of(int64_t request) const {
    return contents_.keys[static_cast<size_t>(request)];
  }
  /// Tokens that its snapshot is behind; 0: it has none.
  int64_t tracked(const ForwardBatch& batch, int64_t request) const;
  std::vector<int32_t> parents_of(const ForwardBatch& batch, int64_t request) const;
  /// The tokens on the path of a verified one.
  std::vector<TokenContent> path_to(const ForwardBatch& batch, int64_t request,
                                    int32_t token) const;
  Status check_reads(const ForwardBatch& batch);

  /// first: its rows of the inputs.
  void run_request(const ForwardBatch& batch, int64_t i, int64_t first, HostStates* pools,
                   HostStates* drafts, Status* status);
  void track(const ForwardBatch& batch, int64_t i, RequestAlone request, const HostStates& start,
             HostStates* pools);
  void note(const ForwardBatch& batch, int64_t i);
  /// moved: between steps, of which slots that nobody has computed say nothing; else by one.
  Status compare_pools(const HostStates& want, bool moved) const;
  Status compare_drafts(const HostStates& want, int64_t row) const;

  const LayerPlace place_;
  const RecurrentLayer layer_;
  Arena scope_;
  Rng rng_;
  HostCopies copies_, moves_;  // of inputs, and of what pools hold
  RecurrentTensors whole_;     // over all tokens
  RecurrentInputs inputs_;
  Buffer weight_, conv_bias_, a_log_, dt_bias_, skip_, log_decay_;
  Buffer out_, list_;
  Pools pools_, drafts_;
  mutable TensorsOfTokens<RecurrentTensors> described_;
  int64_t draft_steps_ = 1;
  // What slots hold, as far as that is known, and whether it is
  HostStates known_, known_drafts_;
  std::vector<uint8_t> defined_;
  std::vector<OwnerId> owners_;  // 0: nobody has begun it
  HostStates before_;            // the step
  HostStates right_;             // before it, if all is right
  RowContents contents_;         // of the step
  StateBook book_;
  std::vector<uint8_t> defined_before_;
};

}  // namespace shadowgraph
