#include "launch/merge_launch.h"

#include "attn/validate/validate.h"
#include "kernels/dense/merge_states.h"
#include "launch/attention_args.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

struct MergeLaunch : CheckedLaunch<MergeStateCall> {
  static MergeStateCall without_padding(MergeStateCall c) {
    for (ConstTensorView* t : {&c.v_a, &c.s_a, &c.v_b, &c.s_b}) drop_padding(c.cu_seqlens_q, t);
    for (TensorView* t : {&c.out, &c.lse.tensor}) drop_padding(c.cu_seqlens_q, t);
    return c;
  }
  static Status run(const MergeStateCall& c) { return merge_state(c); }
  static std::array<TensorView, 2> outputs(const MergeStateCall& c) {
    return {c.out, c.lse.tensor};
  }
  static Footprint footprint(const MergeStateCall& c) {
    Footprint spans = merge_states_footprint(StateViews<LseBase::kNatural>::of(c));
    add_whole(&spans, c.cu_seqlens_q);
    return spans;
  }
  static Footprint refused(const MergeStateCall& c) {
    Footprint spans;
    add_whole(&spans, c.cu_seqlens_q);
    return spans;
  }
};

}  // namespace

constinit const Kernel kMergeState = checked_kernel<MergeLaunch>("merge_state");

KernelLaunch merge_launch(const MergeState<LseBase::kNatural>& call,
                          std::span<const int32_t> cu_seqlens_q) {
  // Its rows are tokens, not requests.
  return launch_of(kMergeState, MergeStateCall{call, cu_seqlens_q}, {.a_request = 0},
                   call.out.shape[0]);
}

}  // namespace shadowgraph
