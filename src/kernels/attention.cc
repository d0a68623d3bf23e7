// The public calls: check, then run the kernel that the form of the batch picks.
#include "shadowgraph/attention.h"

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "attn/validate.h"
#include "core/laws.h"
#include "kernels/decode_paged.h"
#include "kernels/isa/units.h"
#include "kernels/merge_states.h"
#include "kernels/prefill.h"
#include "kernels/store_kv.h"

namespace shadowgraph {
namespace {

Finding unknown_isa(std::string_view name) {
  std::string names;
  for (std::string_view isa : available_isas())
    names += (names.empty() ? "" : " | ") + std::string(isa);
  const char* wanted = name.empty() ? std::getenv("SHADOWGRAPH_ISA") : nullptr;
  return make_finding("input.isa", at("isa"), names,
                      wanted != nullptr ? wanted : std::string(name));
}

/// Validates, then runs. Scratch is taken before anything is written, so that a failure leaves the
/// outputs alone.
template <class Call, class Kernel>
Status checked(const Call& call, const Kernel& kernel) noexcept {
  try {
    Status status = validate(call);
    if (find_isa(call.options.isa) == nullptr) status.add(unknown_isa(call.options.isa));
    if (status.ok()) kernel();
    return status;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than a vector can hold
  }
  return Status::out_of_memory();
}

}  // namespace

Status attention_with_kvcache(const PagedAttention& call) noexcept {
  return checked(call,
                 [&] { call.cu_seqlens_q.empty() ? decode_paged(call) : prefill_paged(call); });
}

Status attention_varlen(const RaggedAttention& call) noexcept {
  return checked(call, [&] { prefill_ragged(call); });
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

}  // namespace shadowgraph
