// LayerWorld: what a layer that is not dense attention is in a runner's world: its pools and inputs
// on the device, and a judge that computes the same step beside the device. A family of layers adds
// one: its class, and its line in make_layer_world(). Dense layers are the RunnerWorld's own.
#pragma once

#include <cstdint>
#include <memory>

#include "check/runner.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Where a layer's buffers are bound. All outlive the LayerWorld.
struct LayerPlace {
  const ModelConfig& model;
  const RunnerOptions& options;
  size_t kind = 0;  // of ModelConfig::layers
  Arena scope;
  Stream& stream;
};

/// One layer of one kind. A step runs twice: eagerly, and, from the same pools, as a replay.
class LayerWorld {
 public:
  virtual ~LayerWorld() = default;

  /// Once, before all.
  virtual Status bind() = 0;
  /// What the host does to the pools before a step, and what is wrong with what that gives. The
  /// device idles.
  virtual Status move_states(const Step& step) = 0;
  /// The step runs elsewhere: its requests' states are other numbers from then on.
  virtual void receive(const ForwardBatch& batch) = 0;
  /// Then new inputs and owners, and for a prefix that nobody has computed some state. batch: views
  /// of step.
  virtual void begin_step(const Step& step, const ForwardBatch& batch) = 0;
  /// Outputs hold what no launch writes (kUnwritten).
  virtual void clear_outputs() = 0;
  /// The pools are again what begin_step left: the step runs another time.
  virtual void rewind() = 0;
  /// A history begins: no request owns a state.
  virtual void forget_requests() = 0;
  /// What the layer is given and gives, over the first so many tokens: all but LayerIo::kind.
  virtual void describe(int64_t tokens, LayerIo* io) const = 0;
  /// The step has run. Each request is computed alone, from the inputs and pools of begin_step:
  /// outputs and the pools, untouched slots too, have the bits that this gives. num.*, state.*.
  virtual Status judge(const ForwardBatch& batch) = 0;
};

/// nullptr: dense attention.
std::unique_ptr<LayerWorld> make_layer_world(const LayerPlace& place);

}  // namespace shadowgraph
