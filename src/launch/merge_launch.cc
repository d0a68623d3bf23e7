#include "launch/merge_launch.h"

#include "attn/validate.h"
#include "kernels/merge_states.h"
#include "launch/launch_scalars.h"

namespace shadowgraph {

namespace {

using Call = MergeState<LseBase::kNatural>;

enum Arg : uint8_t { kVA, kSA, kVB, kSB, kOut, kLse, kCuSeqlensQ, kScalars };

/// The call without padding.
Call call_of(const LaunchFrame& f) {
  auto [c, cu_seqlens_q] = merge_call(f.launch);
  for (ConstTensorView* t : {&c.v_a, &c.s_a, &c.v_b, &c.s_b}) drop_padding(cu_seqlens_q, t);
  for (TensorView* t : {&c.out, &c.lse.tensor}) drop_padding(cu_seqlens_q, t);
  return c;
}

Progress body(LaunchFrame& f) {
  const Call call = call_of(f);
  if (!merge_state(call).ok()) {
    poison(call.out);
    poison(call.lse.tensor);
  }
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const Call call = call_of(f);
  if (validate(call).ok()) {
    *spans = merge_states_footprint(StateViews<LseBase::kNatural>::of(call));
    // Its rows are tokens, not requests.
    for (AccessSpan& span : *spans) span.row = -1;
  } else {
    add_written(spans, call.out);
    add_written(spans, call.lse.tensor);
  }
  add_whole(spans, merge_call(f.launch).cu_seqlens_q);
}

}  // namespace

constinit const Kernel kMergeState{.name = "merge_state", .body = body, .footprint = footprint};

MergeCall merge_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<MergeScalars>(kScalars);
  Call c;
  c.v_a = view_of(f.pointer<void>(kVA), s.v_a);
  c.s_a = view_of(f.pointer<void>(kSA), s.s_a);
  c.v_b = view_of(f.pointer<void>(kVB), s.v_b);
  c.s_b = view_of(f.pointer<void>(kSB), s.s_b);
  c.out = view_of(f.pointer<void>(kOut), s.out);
  c.lse = NaturalLse(view_of(f.pointer<void>(kLse), s.lse));
  c.options.num_threads = static_cast<int>(s.num_threads);
  return {c, array_of<int32_t>(f, kCuSeqlensQ, s.num_offsets_q)};
}

KernelLaunch merge_launch(const MergeState<LseBase::kNatural>& c,
                          std::span<const int32_t> cu_seqlens_q) {
  MergeScalars s{};
  s.v_a = scalars_of(c.v_a);
  s.s_a = scalars_of(c.s_a);
  s.v_b = scalars_of(c.v_b);
  s.s_b = scalars_of(c.s_b);
  s.out = scalars_of(c.out);
  s.lse = scalars_of(c.lse.tensor);
  s.num_offsets_q = static_cast<int64_t>(cu_seqlens_q.size());
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kMergeState, c.out.shape[0]);
  launch.args.pointer(c.v_a.data)
      .pointer(c.s_a.data)
      .pointer(c.v_b.data)
      .pointer(c.s_b.data)
      .pointer(c.out.data)
      .pointer(c.lse.tensor.data)
      .pointer(cu_seqlens_q.data())
      .scalar(s);
  return launch;
}

}  // namespace shadowgraph
