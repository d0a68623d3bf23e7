// merge_state as a launch. Tested by tests/launch/merge_launch_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// merge_state of natural-log partial results, its memory being the device's, on what that memory
/// holds when it runs: v of a state without mass is not read. Where the call would be refused, out
/// and lse are filled with 0xff.
///
/// cu_seqlens_q, of the device: rows past its last entry are padding, neither read nor written.
/// Empty: there are none.
KernelLaunch merge_launch(const MergeState<LseBase::kNatural>& call,
                          std::span<const int32_t> cu_seqlens_q = {});
struct MergeStateCall : MergeState<LseBase::kNatural> {
  std::span<const int32_t> cu_seqlens_q;
};
template <class V>
void visit_args(V& v, MergeStateCall& c) {
  visit_args(v, static_cast<MergeState<LseBase::kNatural>&>(c));
  v("cu_seqlens_q", c.cu_seqlens_q);
}

extern const Kernel kMergeState;

}  // namespace shadowgraph
