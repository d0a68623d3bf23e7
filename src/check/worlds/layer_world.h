// LayerWorld: what a layer is in a runner's world: its pools and inputs on the device, and a judge
// of what a step leaves. A family of layers adds one: its class, and its line in
// make_layer_world().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "check/runner_streams.h"
#include "core/choices.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Where a layer's buffers are bound. All outlive the LayerWorld.
struct LayerPlace {
  const Backend& backend;  // whose runs are judged
  const ModelConfig& model;
  const RunnerOptions& options;
  size_t kind = 0;   // index into ModelConfig::layers
  size_t steps = 1;  // a whole draft's steps; each has inputs and outputs of its own
  Arena scope;
  RunnerStreams& streams;
  Rng& rng;  // dense layers draw from it in turn

  /// The stream that another layer draws from in the history with that number.
  Rng rng_of(uint64_t history) const { return Rng::stream(options.seed + history, 1 + kind); }
};

/// One layer of one kind. A step runs twice: eagerly, and, from the same pools, as a replay. A
/// batch is views of the step; `step` is a step of a whole draft.
class LayerWorld {
 public:
  virtual ~LayerWorld() = default;

  /// Once, before all.
  virtual Status bind() = 0;
  /// What the host does to the pools before a step, and what is wrong with what that gives. The
  /// device idles.
  virtual Status move_states(const Step& /*step*/) { return {}; }
  /// The step runs elsewhere: what it would leave in the pools arrives.
  virtual void receive(const Step& step, const ForwardBatch& batch, bool first) = 0;
  /// Then new inputs and owners. life.read unless the pools hold what the step must see. first: of
  /// the history, which may begin in the middle: what was stored before it arrives.
  virtual Status begin_step(const Step& step, const ForwardBatch& batch, bool first) = 0;
  /// Outputs hold what no launch writes (kUnwritten).
  virtual void clear_outputs() = 0;
  /// The pools are again what begin_step left: the step runs another time.
  virtual void rewind() = 0;
  /// The history with that number begins: no request owns a state.
  virtual void begin_history(uint64_t number) = 0;
  /// A logit on the device for each query head, bound once; empty: the layer has no sinks.
  virtual std::span<const float> sinks() const { return {}; }
  /// What the layer is given and gives, over the first so many tokens: all but LayerIo::kind.
  virtual void describe(int64_t tokens, size_t step, LayerIo* io) const = 0;

  // These judge what a run has left. The bits of dense attention depend on how the backend cuts a
  // row's keys, so an oracle judges it, with bounds.
  /// num.* unless the outputs are right, of a run with metadata that is bound for these limits;
  /// check_stored, too.
  virtual Status judge_outputs(const ForwardBatch& /*batch*/, size_t /*step*/,
                               const Limits& /*limits*/) const {
    return {};
  }
  virtual void keep_outputs() {}
  /// num.bits unless the outputs are those that were kept.
  virtual Status same_outputs() const { return {}; }
  /// slot.write unless K and V of every new token that is stored here lie in its slot, with the
  /// bits that were given.
  virtual Status check_stored(const ForwardBatch& /*batch*/, size_t /*step*/) const { return {}; }
  // For other layers the judge computes each request by itself, from the inputs and pools of
  // begin_step.
  /// num.*, state.* unless outputs and pools, untouched slots too, have the bits that this gives.
  virtual Status judge_alone(const ForwardBatch& /*batch*/) { return {}; }
};

std::unique_ptr<LayerWorld> make_layer_world(const LayerPlace& place);

}  // namespace shadowgraph
