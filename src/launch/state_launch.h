// States that move between slots: what is accepted of a verify, snapshots of a prefill, shared
// prefixes. Tested by tests/launch/state_launch_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Row i: the state at place sources[i] of `from` becomes that of slot targets[i]; -1 in either:
/// nothing is read or written. Views [places, ...], a place contiguous, of one dtype and size.
/// Where a row's places are none, its copy is not made, and the footprint says where it would have
/// been.
struct CopyStates {
  ConstTensorView from;
  TensorView to;
  std::span<const int32_t> sources, targets;
};
template <class V>
void visit_args(V& v, CopyStates& c) {
  v("from", c.from);
  v("to", c.to);
  v("sources", c.sources);
  v("targets", c.targets);
}
KernelLaunch copy_states_launch(const CopyStates& call, const RequestRows& rows = {});

/// Row i: the inputs at tokens[i] become the window of slot targets[i]; -1: none.
struct TrackWindows {
  ConstTensorView x;                // [tokens, dim]
  TensorView states;                // [slots, dim, width - 1]
  std::span<const int32_t> tokens;  // [rows, width - 1]
  std::span<const int32_t> targets;
};
template <class V>
void visit_args(V& v, TrackWindows& c) {
  v("x", c.x);
  v("states", c.states);
  v("tokens", c.tokens);
  v("targets", c.targets);
}
KernelLaunch track_windows_launch(const TrackWindows& call, const RequestRows& rows = {});

extern const Kernel kCopyStates, kTrackWindows;

}  // namespace shadowgraph
