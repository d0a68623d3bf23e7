// Tap: where a planted fault stands on the path of a history. What passes here is all that a
// scheduler, a backend and a device tell each other, and the parts that can be another's: so an
// engine's fault is planted from outside, and no scheduler, backend or kernel knows of it. See
// docs/architecture.md, "Faults from outside". Tested by tests/faults/replay_taps_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/pool_state.h"
#include "runtime/scheduler.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// What a step launches, in order. apart: on a stream of its own, beside what follows it.
struct TappedLaunch {
  KernelLaunch launch;
  bool apart = false;
};

/// A key tells the graphs of a backend apart.
struct GraphKey {
  ForwardMode mode;
  int32_t step, rows, q_len;
  bool operator==(const GraphKey&) const = default;
  bool operator<(const GraphKey& o) const {
    return std::tie(mode, step, rows, q_len) < std::tie(o.mode, o.step, o.rows, o.q_len);
  }
};

/// A wait of one stream for what another holds, with RunnerOptions::own_streams.
enum class StreamWait : uint8_t {
  kUploadsOnForward,  // they write buffers that the forward before reads
  kForwardOnUploads,
  kPoolsOnForward,  // moves of slots and states, tables of the pools
  kForwardOnPools,
};

/// A tap lives for one run. It may remember what it saw, except a Meta or Arena, whose device ends
/// first. By default it changes nothing.
class Tap {
 public:
  virtual ~Tap() = default;

  // Data.

  /// What the scheduler is configured with.
  virtual void runtime(RuntimeConfig& /*config*/) {}
  /// A step as the scheduler hands it over.
  virtual void step(Step& /*step*/, const PoolState& /*pools*/) {}
  /// What a backend is told of it, just before fill. Views that are changed stay alive with the
  /// tap.
  virtual void batch(ForwardBatch& /*batch*/) {}
  /// What metadata is bound for, and filled and planned with; launches have the model's own layers
  /// all the same.
  virtual void limits(Limits& /*limits*/) {}
  /// What bind made; capturing: for a graph.
  virtual void bound(Meta& /*meta*/, bool /*capturing*/) {}
  /// A capture keeps its graph's metadata under this key, and a replay looks it up.
  virtual void metadata_key(GraphKey& /*key*/, bool /*capturing*/) {}
  /// After fill, before its upload. batch and meta are the whole step's: of a composed backend the
  /// children hold some rows each, and Backend::for_each_part says which.
  virtual Status filled(const ForwardBatch& /*batch*/, Meta& /*meta*/) { return {}; }
  /// What the launches are recorded from: a capture, or the recording of a step.
  virtual void baked(Meta& /*meta*/, bool /*capturing*/) {}

  /// false: this wait is left out.
  virtual bool waits(StreamWait /*wait*/) { return true; }

  // Launches.

  /// Changed, dropped, repeated, in another order, apart. Scalars and addresses of a launch are
  /// data; what a kernel does with them is a substitute's (KernelLaunch::kernel).
  virtual void launches(std::vector<TappedLaunch>& /*all*/, const Meta& /*meta*/,
                        bool /*capturing*/) {}

  /// They have run.
  virtual void ran(const Meta& /*meta*/) {}

  // Substitutes, in the place of the clean one.

  virtual const Backend& backend(const Backend& clean) { return clean; }
  /// nullptr: the clean one stays.
  virtual std::unique_ptr<SimDevice> device(const SimOptions& /*options*/) { return nullptr; }
  virtual void parts(const RuntimeConfig& /*config*/, SchedulerParts& /*parts*/) {}

  /// How often it changed something.
  virtual int64_t acted() const { return acted_; }
  /// What it could not change since the last call: it asked for something that its backend has not
  /// bound (fault.plant).
  virtual Status take_refused() { return {}; }
  /// It changed something.
  void act(int64_t times = 1) { acted_ += times; }

 private:
  int64_t acted_ = 0;
};

/// Makes the tap of one run; empty: nothing is planted.
using MakeTap = std::function<std::unique_ptr<Tap>()>;
template <class T>
MakeTap tap_of() {
  return [] { return std::make_unique<T>(); };
}

/// What launches are recorded from, where a tap stands: meta with the layers of the model.
Meta with_layers(Meta meta, const ModelConfig& model);

/// What backend.forward launches, recorded as the tap lets it pass; tap: or nullptr.
Status record_step(Stream& stream, const Backend& backend, const Meta& meta, const StepIo& io,
                   Tap* tap, bool capturing, Graph* graph);

}  // namespace shadowgraph
