// A launch whose body is one public call on what memory holds when it runs.
#pragma once

#include <array>
#include <string_view>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// What is told of the call, as static members of a struct derived from this one. It has besides
///
///   Status run(call)            the call itself
///   Footprint footprint(call)   what it reads and writes
///   Footprint refused(call)     where it is refused: what a GPU would have read and written,
///                               outputs aside
template <class CallType>
struct CheckedLaunch {
  using Call = CallType;
  /// The call that runs: a graph's tensors are as long as its bucket.
  static Call without_padding(const Call& call) { return call; }
  static bool is_sound(const Call& call) { return validate(call).ok(); }
  /// Filled with 0xff where the call is refused.
  static std::array<TensorView, 0> outputs(const Call& /*call*/) { return {}; }
};

template <class Of>
void run_checked(const typename Of::Call& given) {
  const auto call = Of::without_padding(given);
  if (Of::run(call).ok()) return;
  for (const TensorView& t : Of::outputs(call)) poison(t);
}

template <class Of>
void note_checked(const typename Of::Call& given, Footprint* spans) {
  const auto call = Of::without_padding(given);
  const bool sound = Of::is_sound(call);
  *spans = sound ? Of::footprint(call) : Of::refused(call);
  if (sound) return;
  for (const TensorView& t : Of::outputs(call)) add_written(spans, t);
}

template <class Of>
constexpr Kernel checked_kernel(std::string_view name) {
  return launch_kernel<typename Of::Call, run_checked<Of>, note_checked<Of>>(name);
}

}  // namespace shadowgraph
