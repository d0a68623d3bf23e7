#include "launch/ascend_launch.h"

#include <cassert>

namespace shadowgraph {
namespace {

void make_indptr(const IndptrOfEnds& c) { to_indptr(InclusiveEnds(c.ends), c.indptr); }

void note_indptr(const IndptrOfEnds& c, Footprint* spans) {
  add_whole(spans, c.ends);
  add_whole<int32_t>(spans, c.indptr, Access::kWrite);
}

}  // namespace

constinit const Kernel kIndptrOfEnds =
    launch_kernel<IndptrOfEnds, make_indptr, note_indptr>("indptr_of_ends");

KernelLaunch indptr_launch(InclusiveEnds ends, std::span<const int32_t> indptr) {
  assert(indptr.size() == ends.ends.size() + 1);
  auto* const to = const_cast<int32_t*>(indptr.data());
  return launch_of(kIndptrOfEnds, IndptrOfEnds{ends.ends, {to, indptr.size()}}, {}, 1);
}

}  // namespace shadowgraph
