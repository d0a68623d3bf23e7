// The public calls: check, then run the kernel.
#include "shadowgraph/attention.h"

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "attn/validate.h"
#include "kernels/attend_blocks.h"
#include "kernels/copy_kv.h"
#include "kernels/isa/units.h"
#include "kernels/merge_states.h"
#include "kernels/store_kv.h"

namespace shadowgraph {
namespace {

Status check_isa(std::string_view name) {
  Status status;
  if (find_isa(name) != nullptr) return status;
  const char* wanted = name.empty() ? std::getenv("SHADOWGRAPH_ISA") : nullptr;
  status.add(unknown_isa(wanted != nullptr ? wanted : name));
  return status;
}

/// What validate() does not know: the instruction sets, and the header of a plan.
template <class Call>
Status check_engine(const Call& call) {
  return check_isa(call.options.isa);
}
Status check_engine(const PagedAttention& call) {
  Status status = check_isa(call.options.isa);
  status.add(check_plan_header(call));
  return status;
}

/// Validates, then runs. Scratch is taken before anything is written, so that a failure leaves the
/// outputs alone. written: memory that no member of the call names.
template <class Call, class Kernel, class... Written>
Status checked(const Call& call, const Kernel& kernel, Written... written) noexcept {
  try {
    Status status = validate(call, written...);
    status.add(check_engine(call));
    if constexpr (std::is_void_v<decltype(kernel())>) {
      if (status.ok()) kernel();
    } else {
      if (status.ok()) status = kernel();
    }
    return status;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than a vector can hold
  }
  return Status::out_of_memory();
}

}  // namespace

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
