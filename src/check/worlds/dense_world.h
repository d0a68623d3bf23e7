// A dense layer in a runner's world: pools whose slots hold contents and have owners, and new
// inputs each step. Outputs are judged against the oracle on the keys that a step must see, which
// are made from their contents (dense_contents.h): what lies in a pool has no say. Tested by
// tests/check/runner_world_test.cc and tests/check/runner_finds_test.cc.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "check/canonical.h"
#include "check/mistakes/step_scenes.h"
#include "check/worlds/dense_contents.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/row_contents.h"
#include "check/worlds/slot_owners.h"

namespace shadowgraph {

class DenseWorld final : public LayerWorld {
 public:
  explicit DenseWorld(const LayerPlace& place);

  Status bind() override;
  void receive(const Step& step, const ForwardBatch& batch, bool first) override;
  Status begin_step(const Step& step, const ForwardBatch& batch, bool first) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t number) override;
  std::span<const float> sinks() const override;
  void describe(int64_t tokens, size_t step, LayerIo* io) const override;
  Status judge_outputs(const ForwardBatch& batch, size_t step, const Limits& limits) const override;
  void keep_outputs() override;
  Status same_outputs() const override;
  Status check_stored(const ForwardBatch& batch, size_t step) const override;

 private:
  struct Tensors {
    Buffer q, k, v, out, lse;  // latent: v is in k
  };
  /// A step, or one of a whole draft, by the numbers of contents.
  struct StepRows {
    CanonicalRows rows;
    RowContents contents;
    std::vector<std::vector<int32_t>> keys;  // as rows.keys: what each is, if all is right
    std::vector<int32_t> fresh;              // [tokens] what is stored; of a cross layer [encoded]
  };

  Status bind_tensors(Arena scope, Tensors* to) const;
  /// A logit for each head.
  Status bind_sinks();
  /// The buffers that hold K and V.
  std::vector<const Buffer*> caches() const;
  std::vector<const Buffer*> outputs() const;
  /// [pages, page_size, heads, head_dim]
  TensorView paged(const Buffer& cache) const;
  /// The batch as that step of a draft has it.
  static ForwardBatch at_step(ForwardBatch batch, size_t step);

  /// One for each query head: as large as the keys' logits, one in four -inf. Beside selector data
  /// none has any weight.
  std::vector<float> sink_logits();
  // Before a step runs: its rows, and the contents of their slots.
  void read_step(const Step& step, const ForwardBatch& batch);
  void name_new(StepRows* rows);
  void name_old(StepRows* rows);
  void adopt(const StepRows& rows, std::span<const OwnerId> owners);
  void make_copies(const Step& step);
  void arrive(const StepRows& rows);
  void give_queries(const Tensors& to);
  void give(const StepRows& rows, const Tensors& to);
  void own(const StepRows& rows, std::span<const OwnerId> owners);

  // One slot.
  void set_owner(int32_t slot, OwnerId owner, bool alone);
  void write_slot(int32_t slot, int32_t number);
  void poison_slot(int32_t slot);
  void poison_sink();
  void copy_slot(SlotCopy c, std::span<const int64_t> full_to_swa);
  bool is_evicted(int32_t slot) const { return slot < place_.model.page_size; }
  /// -1: nothing that anybody has stored.
  int32_t held(int32_t slot) const;
  /// Does the slot hold the bytes of that content?
  bool holds(int32_t slot, int32_t number) const;
  std::string told(int32_t slot) const;
  bool is_of_padding(const Tensors& given, std::span<const std::byte> key) const;

  // Judges.
  Status check_reads() const;
  Status check_stored(const StepRows& rows) const;
  Status check_still() const;
  Status check_sink() const;

  const LayerPlace place_;
  const LayerKind& kind_;
  const bool swa_;
  const LayerValues values_;
  Arena scope_;
  HostCopies copies_, moves_;  // of inputs, and of what pools hold
  std::vector<Tensors> steps_;
  Buffer k_cache_, v_cache_;  // [slots, heads, head_dim]; latent: all is in k_cache
  Buffer sinks_;              // [num_qo_heads]; no data: the layer has none
  bool has_sink_ = false;     // it was filled since it was bound
  mutable DenseContents contents_;
  std::unordered_map<int32_t, int32_t> held_;  // by slot, the number of its content
  SlotOwners owners_;
  StepScenes scenes_;                // for a diagnosis
  int64_t tokens_ = 0;               // tokens of the step's batch
  std::vector<StepRows> rows_;       // of each step of a draft
  std::unordered_set<int32_t> new_;  // slots that the step stores
  std::vector<int64_t> encoded_;     // of these, a cross layer's, as encoder_out_cache_loc
  std::vector<std::byte> kept_;      // outputs of the eager run
};

}  // namespace shadowgraph
