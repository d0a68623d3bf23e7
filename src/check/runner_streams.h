// RunnerStreams: the streams that a runner's work is on. It is one, or with
// RunnerOptions::own_streams three, which only events order: what a forward launches, uploads of
// its metadata, and what is done to the pools. Tested by tests/fuzz/own_streams_test.cc.
#pragma once

#include <memory>
#include <utility>

#include "check/runner.h"
#include "check/tap.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

class RunnerStreams {
 public:
  /// device: lives longer.
  RunnerStreams(SimDevice& device, const RunnerOptions& options);

  /// Launches, and inputs and outputs of layers.
  Stream& forward() { return forward_; }
  Stream& uploads() { return uploads_ ? *uploads_ : forward_; }
  /// Moves of slots and states, tables of the pools.
  Stream& pools() { return pools_ ? *pools_ : forward_; }

  /// An engine's wait. A tap may leave it out.
  void wait(StreamWait wait);
  /// A judge's: all work is done. With own streams no order follows from it.
  void settle();
  /// graph.device_error, of all streams since the last call.
  Status take_status();

 private:
  SimDevice& device_;
  Tap* const tap_;
  Stream forward_;
  std::unique_ptr<Stream> uploads_, pools_;
  Status status_;
};

}  // namespace shadowgraph
