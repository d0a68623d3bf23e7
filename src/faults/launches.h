// What faults do with a step's launches: the call that one was made of, changed.
#pragma once

#include <utility>

#include "check/tap.h"
#include "launch/attention_launch.h"
#include "launch/merge_launch.h"
#include "launch/mla_parts_launch.h"
#include "launch/ragged_launch.h"
#include "launch/recurrent_launch.h"
#include "launch/scheduled_launch.h"
#include "launch/tile_launch.h"
#include "launch/triton_launch.h"

namespace shadowgraph {

/// Functions as one, by what they are called with.
template <class... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <class... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

/// Becomes the launch of its call after fn(call), if that says that it changed it.
template <class Call, class Launch, class Fn>
bool change(KernelLaunch* launch, CallOf<Call> of, Launch make, Fn& fn) {
  if (!fn(of.call)) return false;
  *launch = make(of.call, of.rows);
  return true;
}

/// fn(call) -> bool of whatever launch of attention this is; false: of none. A decode of Triton's
/// is its first stage.
template <class Fn>
bool change_attention(KernelLaunch* l, Fn fn) {
  if (l->kernel == &kPagedAttention)
    return change(l, call_of<PagedAttention>(*l), attention_launch, fn);
  if (l->kernel == &kScheduledAttention)
    return change(l, call_of<ScheduledAttention>(*l), scheduled_launch, fn);
  if (l->kernel == &kMlaParts) return change(l, call_of<MlaParts>(*l), mla_parts_launch, fn);
  if (l->kernel == &kRaggedAttention)
    return change(l, call_of<RaggedAttention>(*l), ragged_launch, fn);
  if (l->kernel == &kTiledAttention) return change(l, call_of<TiledAttention>(*l), tile_launch, fn);
  if (l->kernel == &kTritonExtend)
    return change(l, call_of<TritonExtend>(*l), triton_extend_launch, fn);
  if (l->kernel == &kTritonDecodeStage1)
    return change(l, call_of<TritonDecode>(*l), triton_decode_stage1_launch, fn);
  return false;
}

/// The same of what merges partial results: Triton's second stage too.
template <class Fn>
bool change_merge(KernelLaunch* l, Fn fn) {
  if (l->kernel == &kTritonDecodeStage2)
    return change(l, call_of<TritonDecode>(*l), triton_decode_stage2_launch, fn);
  if (l->kernel == &kMlaMerge) return change(l, call_of<MlaParts>(*l), mla_merge_launch, fn);
  if (l->kernel == &kMergeState) {
    MergeStateCall of = call_of<MergeStateCall>(*l).call;
    if (!fn(static_cast<MergeState<LseBase::kNatural>&>(of))) return false;
    *l = merge_launch(of, of.cu_seqlens_q);
    return true;
  }
  const auto alone = [&](auto call, auto make) {
    if (!fn(call)) return false;
    *l = make(call);
    return true;
  };
  if (l->kernel == &kMergeTiles) return alone(call_of<MergeTiles>(*l).call, merge_tiles_launch);
  if (l->kernel == &kMergePair) return alone(call_of<MergePair>(*l).call, merge_pair_launch);
  return false;
}

/// Is it one that change_attention or change_merge knows?
inline bool is_attention(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  return change_attention(&copy, [](auto&) { return true; });
}
inline bool is_merge(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  return change_merge(&copy, [](auto&) { return true; });
}

}  // namespace shadowgraph
