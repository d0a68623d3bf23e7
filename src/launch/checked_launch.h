// A launch whose body is one public call on what memory holds when it runs. What is told of the
// call, Of, has as static members
//
//   of(launch)     CallOf<Call>, as it was given to the launch
//   run(call)      the call itself
//   lose(call)     what is left where it is refused
//   footprint(call), refused(call)   what it reads and writes, and what a GPU would have
//                                    where it is refused
#pragma once

#include <string_view>

#include "launch/launch_args.h"
#include "shadowgraph/kernel.h"

namespace shadowgraph {

template <class Of>
Progress checked_body(LaunchFrame& f) {
  const auto call = Of::of(f.launch).call;
  if (!Of::run(call).ok()) Of::lose(call);
  return Progress::kDone;
}

template <class Of>
void checked_footprint(const LaunchFrame& f, Footprint* spans) {
  const auto [call, rows] = Of::of(f.launch);
  *spans = validate(call).ok() ? Of::footprint(call) : Of::refused(call);
  name_requests(rows, spans);
}

template <class Of>
constexpr Kernel checked_kernel(std::string_view name) {
  return {.name = name, .body = checked_body<Of>, .footprint = checked_footprint<Of>};
}

}  // namespace shadowgraph
