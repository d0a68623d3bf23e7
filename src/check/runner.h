// Runner: the one path. Every step of a history runs eagerly, with metadata bound for exactly that
// batch, and again as the replay of a graph that was captured on a dummy batch of a bucket. Both
// are held against the oracle on the canonical triple, against each other bit for bit (where a
// backend cuts keys by what the batch is, on exact data alone), and every recording against the one
// that the graph kept. See docs/architecture.md, "One path". Tested by tests/check/runner_test.cc
// and runner_finds_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "check/tap.h"
#include "runtime/step.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// Modes whose step has one shape a bucket: a graph runs them.
constexpr bool is_captured(ForwardMode m) {
  return is_decode_or_idle(m) || is_target_verify(m) ||
         is_draft_extend(m, DraftExtendV2::kIncluded) || m == ForwardMode::kDllmExtend;
}

/// What q, K and V are.
enum class RunnerData : uint8_t {
  kRandom,
  kUniform,  // q = 0: every weight is 1
  // Among the keys that a row sees, one has a logit so far above the others that their weights are
  // 0. So out is that key's V, to the bit, however the keys are cut. Use it with kSelectorScale
  kSelector,
  // All logits of a row are one number, far from 0, each row's its own: every weight is 1
  kShifted,
};

/// Another simulated device, a twin of a GPU say (twin_device.h).
using MakeDevice = std::function<std::unique_ptr<SimDevice>(const SimOptions&)>;

/// Half of ln 2: a logit in base 2 is half of q.k, so that of a selector's none is rounded.
inline constexpr float kSelectorScale = 0.34657359f;

/// Numbers of a layer's tensors that its LayerKind does not say. Each scale is chosen so that
/// stored element * scale gives back the value, to the bit: a power of two for fp8, and 1 for other
/// types.
struct LayerValues {
  float k_scale = 1, v_scale = 1;  // of its pool; latents have only k_scale
  bool sinks = false;              // of dense attention: each head has one
};

struct RunnerOptions {
  uint64_t seed = 1;  // of q, K and V
  RunnerData data = RunnerData::kRandom;
  DType kv_dtype = DType::kF32;     // of the pools
  std::vector<LayerValues> values;  // by ModelConfig::layers; behind its end: the defaults
  // Slots of the pools (with several ranks, of this rank's pools), the sink's page included; whole
  // pages
  int64_t slots = 0, swa_slots = 0;
  // Recurrent layers: slots of their pools, slot 0 included, and rows for what a verify leaves
  int64_t state_slots = 0, draft_rows = 0;
  int64_t max_tokens = 0;  // query tokens of a step, padding included
  // Size of req_to_token on the device, for ModelConfig::in_graph_tables; 0: it is not there
  int64_t pool_rows = 0, pool_width = 0;
  std::vector<int32_t> buckets;  // rows; empty: eagerly only
  // Before a replay its buffers are filled, and uploaded, for a step that never comes: an engine
  // that plans ahead
  bool plans_ahead = false;
  // Uploads and what is done to the pools have streams of their own, beside the forward's, and wait
  // for it and it for them by events alone: an engine that prepares a batch while the last one runs
  bool own_streams = false;
  // Slots of dense pools lie so far apart that most begin beyond 2^31 elements, in memory that is
  // reserved, and backed where it is touched
  bool wide_pools = false;
  SimOptions device = {};
  // Makes the device that the history runs on, instead of a SimDevice or a tap's device; the device
  // lives no longer than the runner
  MakeDevice make_device;
  // Told of the layers over the step's own tokens each time that their launches have run
  std::function<void(std::span<const LayerIo> layers)> outputs;
  Tap* tap = nullptr;  // a planted fault, for this run only
  // Findings of wrong outputs say which known mistakes would give them (diagnose.h)
  bool diagnose = false;
  // Reports only wrong outputs. Other findings are dropped, and the history goes on as long as its
  // steps can run
  bool outputs_alone = false;
  // Every slot of the pools holds numbers of its own, so that a wrong read shows its slot
  bool full_pools = false;

  LayerValues values_of(size_t layer) const {
    return layer < values.size() ? values[layer] : LayerValues{};
  }
};

/// How often each kind of work ran.
struct RunnerCounts {
  int64_t steps = 0, captures = 0, replays = 0, rows = 0;
  // "sinks merged", "sinks whole": eager steps of layers that have sinks, and whether results of
  // some row were merged
  std::map<std::string, int64_t> parameters;
  // Steps that the backend does not serve (two halves of one request), or does not run by
  // themselves (all steps of a whole draft except the first)
  int64_t refused = 0;
};

class Runner {
 public:
  /// Lives as long as the backend.
  Runner(const Backend& backend, const ModelConfig& model, const RunnerOptions& options);
  ~Runner();

  /// Why nothing can run.
  Status ready() const;
  /// Findings say the mode and the phase they were seen in. A prebuilt step is no backend's: its
  /// tokens have KV from then on.
  Status step(const Step& step);
  /// A step of another model, or one that the backend does not run: what becomes of recurrent
  /// states happens all the same.
  Status pass(const Step& step);
  /// No slot is anybody's any more: another history begins, in the same memory and graphs. What it
  /// draws for q, K, V and states depends on the seed and on its number alone.
  void begin_history(uint64_t number);
  const RunnerCounts& counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shadowgraph
