// The public calls: check, then run the kernel.
#include "shadowgraph/attention/attention.h"

#include "attn/validate/validate.h"
#include "kernels/cache/copy_kv.h"
#include "kernels/cache/store_kv.h"
#include "kernels/checked_call.h"
#include "kernels/dense/attend_blocks.h"
#include "kernels/dense/merge_states.h"

namespace shadowgraph {

/// And the header of a plan.
template <>
Status check_engine(const PagedAttention& call) {
  Status status = check_isa(call.options.isa);
  status.add(check_plan_header(call));
  return status;
}

Status attention_with_kvcache(const PagedAttention& call) noexcept {
  return checked(call,
                 [&] { return attend_blocks(make_problem(call), call_shape(call), call.plan); });
}

Status attention_varlen(const RaggedAttention& call) noexcept {
  return checked(call, [&] { return attend_blocks(make_problem(call), call_shape(call), {}); });
}

int64_t attention_plan_size(const PagedAttention& call) noexcept {
  return call_shape(call).plan_size();
}

Status plan_attention(const PagedAttention& call, std::span<int32_t> plan) noexcept {
  PagedAttention planless = call;
  planless.plan = {};
  return checked(
      planless, [&] { return write_plan(make_problem(call), call_shape(call), plan); }, plan);
}

int64_t attention_scratch_size(const PagedAttention& call) noexcept {
  return scratch_size(call_shape(call));
}
int64_t attention_scratch_size(const RaggedAttention& call) noexcept {
  return scratch_size(call_shape(call));
}

Status merge_states(const MergeStates<LseBase::kNatural>& call) noexcept {
  return checked(call, [&] { merge_states_kernel(StateViews<LseBase::kNatural>::of(call)); });
}
Status merge_states(const MergeStates<LseBase::kLog2>& call) noexcept {
  return checked(call, [&] { merge_states_kernel(StateViews<LseBase::kLog2>::of(call)); });
}
Status merge_state(const MergeState<LseBase::kNatural>& call) noexcept {
  return checked(call, [&] { merge_states_kernel(StateViews<LseBase::kNatural>::of(call)); });
}
Status merge_state(const MergeState<LseBase::kLog2>& call) noexcept {
  return checked(call, [&] { merge_states_kernel(StateViews<LseBase::kLog2>::of(call)); });
}

Status store_kv(const StoreKv& call) noexcept {
  return checked(call, [&] { store_kv_kernel(call); });
}

Status copy_kv(const CopyKv& call) noexcept {
  return checked(call, [&] { copy_kv_kernel(call); });
}

}  // namespace shadowgraph
