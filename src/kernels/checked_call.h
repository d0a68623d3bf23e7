// What every public call does before its kernel: look at all of the input, and take no exception
// out.
#pragma once

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "core/laws.h"
#include "kernels/isa/units.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

inline Status check_isa(std::string_view name) {
  Status status;
  if (find_isa(name) != nullptr) return status;
  const char* wanted = name.empty() ? std::getenv("SHADOWGRAPH_ISA") : nullptr;
  status.add(unknown_isa(wanted != nullptr ? wanted : name));
  return status;
}

/// What validate() does not know.
template <class Call>
Status check_engine(const Call& call) {
  return check_isa(call.options.isa);
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

}  // namespace shadowgraph
