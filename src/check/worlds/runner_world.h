// What a runner's steps run in: a device, the pools, and one layer of each kind with its tensors.
// A whole draft has layers of each of its steps, with tensors of their own and the same pools.
// Who may read which slot follows from the canonical rows alone.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "check/canonical.h"
#include "check/runner.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/slot_owners.h"
#include "core/choices.h"

namespace shadowgraph {

class RunnerWorld {
 public:
  /// whole_draft: BackendInfo's.
  RunnerWorld(const ModelConfig& model, const RunnerOptions& options, bool whole_draft);

  Status ready() const { return ready_; }
  /// New inputs, moved KV, owners; keys of a prefix that nobody has stored yet, as an encoder's,
  /// are written, and all that a prebuilt step brings. Outputs are cleared.
  void begin_step(const Step& step);
  void clear_outputs();
  void forget_owners();
  /// The slots of the batch's new tokens hold NaN again, in every layer that stores.
  void forget_new_tokens(const ForwardBatch& batch);
  /// One layer of each kind, over the first so many tokens; of a whole draft step by step.
  std::vector<LayerIo> layers(int64_t tokens) const;
  /// The batch as each of those steps has it.
  std::vector<ForwardBatch> steps_of(const ForwardBatch& batch) const;
  /// Undefined where the model's tables are made by fill.
  ConstTensorView req_to_token() const { return on_device(req_to_token_); }
  ConstTensorView full_to_swa() const { return on_device(full_to_swa_); }

  /// Outputs of the batch's rows, for same_outputs.
  void keep_outputs();
  /// num.bits where an output differs from what was kept.
  Status same_outputs() const;
  /// K and V of every new token that is stored here lie in its slot, with the bits that were given.
  Status check_stored(const CanonicalRows& rows, const LayerIo& io) const;

  // Layers that are not dense attention.
  /// A step that runs elsewhere: what the host does to their pools before it, and what it leaves.
  Status pass(const Step& step);
  /// What was wrong with the states that the host moved before this step.
  Status take_moved() { return std::exchange(moved_, {}); }
  /// Their pools are what they were before the step.
  void rewind();
  /// Their outputs and pools, once the step has run.
  Status judge_others(const ForwardBatch& batch);

  const std::unique_ptr<SimDevice> device;
  Arena arena;
  Stream stream;

 private:
  struct Tensors {
    Buffer q, k, v, out, lse;  // latent: v is in k
  };
  struct Layer {
    std::vector<Tensors> steps;
    Buffer k_cache, v_cache;  // latent: all is in k_cache
    bool swa = false, latent = false;
  };
  /// What holds K and V.
  static std::vector<const Buffer*> caches(const Layer& layer);
  static ConstTensorView on_device(const Buffer& b) {
    return b.data == nullptr ? ConstTensorView{} : b.view();
  }
  Status bind(const RunnerOptions& options);
  bool is_dense(size_t kind) const { return is_dense_attention(model_.layers[kind]); }
  Status bind_other(size_t kind, const RunnerOptions& options);
  Status bind_tables(const RunnerOptions& options);
  Status bind_layer(size_t kind, const RunnerOptions& options, Layer* layer);
  Status bind_tensors(const LayerKind& kind, int64_t max_tokens, Arena scope, Tensors* to);
  LayerIo io(size_t step, size_t kind, int64_t tokens) const;
  std::vector<const Buffer*> outputs() const;
  enum class Part : uint8_t { kQuery, kKey, kValue };
  /// Vectors of so many elements each; keys and values as the pools can hold them.
  std::vector<float> numbers(int64_t count, int64_t dim, Part part);
  float scale_of(Part part) const;
  /// As the pools store them.
  std::vector<std::byte> stored(std::span<const float> values, Part part) const;
  void randomise(const Buffer& buffer, Part part);
  void forget_new_tokens_of(const ForwardBatch& step);
  void own(const ForwardBatch& step, size_t kind, std::span<const OwnerId> owners);
  void set_owner(const Layer& layer, int32_t slot, OwnerId owner, bool alone);
  void write_slot(const Layer& layer, int32_t slot);
  void copy_slot(const Layer& layer, SlotCopy c, std::span<const int64_t> full_to_swa);

  const ModelConfig model_;
  const RunnerOptions options_;
  const size_t steps_;  // 1, or those of a whole draft
  Rng rng_;
  const RunnerData data_;
  const DType kv_dtype_;
  const float k_scale_, v_scale_;
  std::vector<Layer> layers_;                        // by kind; of others than dense: empty
  std::vector<std::unique_ptr<LayerWorld>> others_;  // by kind; of dense: null
  std::vector<SlotOwners> owners_;                   // by layer kind
  Buffer req_to_token_, full_to_swa_;
  Status moved_;
  int64_t tokens_ = 0;           // of the step's batch
  std::vector<std::byte> kept_;  // outputs of the eager run
  HostCopies copies_;
  Status ready_;  // last: bind() fills what stands above
};

}  // namespace shadowgraph
