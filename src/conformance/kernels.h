// The closed set of tiny kernels of the conformance programs: i is the global
// thread index.
#pragma once

#include <type_traits>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph::k {

// Arguments: fill(p, v, n), add(p, v, n), mul(y, x, m, n), copy(d, s, n), len(d, length, v),
// struct4(p, S4), count(c, go), append(log, v), spin(p, v, clocks), spinflag(flag, p, v, clocks),
// rmw(p, inc, clocks), sys(p, v), ptr(out, p), wild(p, offset), cold(p, v), cold2(p, v),
// whilestep(p, handle), setcond(handle, v). clocks and offset are int64, other scalars int32.
extern const Kernel fill, add, mul, copy, len, struct4, count, append, spin, spinflag, rmw, sys,
    ptr, wild, cold, cold2, whilestep, setcond;

struct S4 {
  int32_t v[4];
};
inline constexpr int64_t kSpinS = 20'000'000, kSpinT = 4'000'000'000;  // clocks: about 10 ms, 2 s

/// Kernel arguments from values: pointers are device addresses.
template <class... Values>
KernelArgs args(const Values&... values) {
  KernelArgs result;
  const auto append_one = [&result](const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_pointer_v<Value>) {
      result.pointer(value);
    } else if constexpr (std::is_same_v<Value, ConditionalHandle>) {
      result.conditional(value.value);
    } else {
      result.scalar(value);
    }
  };
  (append_one(values), ...);
  return result;
}

}  // namespace shadowgraph::k
