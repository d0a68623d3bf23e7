#include "launch/ascend_launch.h"

#include <cassert>

#include "launch/launch_args.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t { kEnds, kIndptr, kCount };

InclusiveEnds ends_of(const LaunchFrame& f) {
  return InclusiveEnds(array_of<int32_t>(f, kEnds, f.scalar<int64_t>(kCount)));
}
std::span<int32_t> indptr_of(const LaunchFrame& f) {
  return {f.pointer<int32_t>(kIndptr), static_cast<size_t>(f.scalar<int64_t>(kCount) + 1)};
}

Progress body(LaunchFrame& f) {
  to_indptr(ends_of(f), indptr_of(f));
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  add_whole(spans, ends_of(f).ends);
  add_whole<int32_t>(spans, indptr_of(f), Access::kWrite);
}

}  // namespace

constinit const Kernel kIndptrOfEnds{
    .name = "indptr_of_ends", .body = body, .footprint = footprint};

KernelLaunch indptr_launch(InclusiveEnds ends, std::span<const int32_t> indptr) {
  assert(indptr.size() == ends.ends.size() + 1);
  KernelLaunch launch = launch_of(kIndptrOfEnds, 1);
  launch.args.pointer(ends.ends.data())
      .pointer(indptr.data())
      .scalar(static_cast<int64_t>(ends.ends.size()));
  return launch;
}

}  // namespace shadowgraph
