// A layer of dense attention in a runner's world: pools of K and V, or of latents, with owners slot
// by slot, and new inputs each step. Judged against the oracle on the canonical triple, a replay
// against the eager run. Only the canonical rows say who may read which slot. Tested by
// tests/check/runner_world_test.cc, runner_test.cc and runner_finds_test.cc.
#pragma once

#include <span>
#include <vector>

#include "check/bounds/compare.h"
#include "check/canonical.h"
#include "check/mistakes/step_scenes.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/slot_owners.h"

namespace shadowgraph {

class DenseWorld final : public LayerWorld {
 public:
  explicit DenseWorld(const LayerPlace& place);

  Status bind() override;
  void begin_step(const Step& step, const ForwardBatch& batch) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t /*number*/) override { owners_.forget_all(); }
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
  enum class Part : uint8_t { kQuery, kKey, kValue };

  Status bind_tensors(Arena scope, Tensors* to) const;
  /// A logit for each head.
  Status bind_sinks();
  /// The buffers that hold K and V.
  std::vector<const Buffer*> caches() const;
  std::vector<const Buffer*> outputs() const;
  /// The batch as that step of a draft has it.
  static ForwardBatch at_step(ForwardBatch batch, size_t step);

  /// Vectors of so many elements each; keys and values as the pools can hold them.
  std::vector<float> numbers(int64_t count, int64_t dim, Part part);
  /// As large as the keys' logits, and one in four -inf; beside selector data of no weight.
  std::vector<float> sink_logits();
  float scale_of(Part part) const;
  /// The values as the pools store them.
  std::vector<std::byte> stored(std::span<const float> values, Part part) const;
  void randomise(const Buffer& buffer, Part part);
  void own(const ForwardBatch& step, std::span<const OwnerId> owners);
  void set_owner(int32_t slot, OwnerId owner, bool alone);
  void write_slot(int32_t slot);
  void copy_slot(SlotCopy c, std::span<const int64_t> full_to_swa);

  Status check_stored(const CanonicalRows& rows, const Tensors& given) const;
  /// Whether the slot holds what the step gave as its row t of K and V.
  bool holds(int32_t slot, const Tensors& given, size_t t, float key_factor) const;

  const LayerPlace place_;
  const LayerKind& kind_;
  const bool swa_;
  const LayerValues values_;
  Arena scope_;
  HostCopies copies_;
  std::vector<Tensors> steps_;
  Buffer k_cache_, v_cache_;  // latent: all is in k_cache
  Buffer sinks_;              // [num_qo_heads]; no data: the layer has none
  SlotOwners owners_;
  StepScenes scenes_;         // for a diagnosis
  int64_t tokens_ = 0;        // tokens of the step's batch
  std::vector<int32_t> new_;  // slots that the step stores
  std::vector<int64_t>
      encoded_;                  // of these, a cross layer's: in the order of encoder_out_cache_loc
  std::vector<std::byte> kept_;  // outputs of the eager run
};

}  // namespace shadowgraph
