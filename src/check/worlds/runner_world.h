// The world that a runner's steps run in: a device, the tables of the pools, and a LayerWorld for
// each kind of layer. A whole draft has layers of each of its steps, with tensors of their own and
// the same pools.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "check/runner_streams.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "core/choices.h"

namespace shadowgraph {

class RunnerWorld {
 public:
  /// backend: whose runs are judged.
  RunnerWorld(const Backend& backend, const ModelConfig& model, const RunnerOptions& options);

  Status ready() const { return ready_; }
  /// The model, with what its parameters have on the device.
  const ModelConfig& model() const { return model_; }
  /// New inputs, moved KV and states, owners, and all that a prebuilt step brings. What a history
  /// had stored before its first step is written. Outputs are cleared.
  void begin_step(const Step& step);
  /// A step that runs elsewhere: what the host does to the pools before it, and what it leaves.
  Status pass(const Step& step);
  /// Findings of what the pools held when the step began, and of states that were moved before it.
  Status take_begun() { return std::exchange(begun_, {}); }
  /// Outputs and pools are what they were before the step.
  void rewind();
  void begin_history(uint64_t number);
  /// One layer of each kind, over the first so many tokens; of a whole draft step by step.
  std::vector<LayerIo> layers(int64_t tokens) const;
  /// Undefined where the model's tables are made by fill.
  ConstTensorView req_to_token() const { return on_device(req_to_token_); }
  ConstTensorView full_to_swa() const { return on_device(full_to_swa_); }

  // Findings of all layers (LayerWorld); check_stored has only those of the first that has any.
  Status judge_outputs(const ForwardBatch& batch, const Limits& limits) const;
  void keep_outputs();
  Status same_outputs() const;
  Status check_stored(const ForwardBatch& batch) const;
  Status judge_alone(const ForwardBatch& batch);

  const std::unique_ptr<SimDevice> device;
  Arena arena;
  RunnerStreams streams;

 private:
  static ConstTensorView on_device(const Buffer& b) {
    return b.data == nullptr ? ConstTensorView{} : b.view();
  }
  Status bind(const Backend& backend);
  bool moves_pools(const Step& step) const;
  Status bind_tables();

  ModelConfig model_;
  const RunnerOptions options_;
  const size_t steps_;  // 1, or those of a whole draft
  Rng rng_;
  std::vector<std::unique_ptr<LayerWorld>> layers_;  // by kind
  Buffer req_to_token_, full_to_swa_;
  Status begun_;
  bool first_ = true;  // no step of the history has begun
  bool ran_ = false;   // some step has, of any
  HostCopies copies_;
  Status ready_;  // last: bind() fills what stands above
};

}  // namespace shadowgraph
