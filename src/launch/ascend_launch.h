// Offsets from ends, on the device: NPU kernels take where each request's queries end, the
// attention call where each begins. Facts: docs/metadata.md "Ascend". Tested by
// tests/launch/ascend_launch_test.cc.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/attention/conventions.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

struct IndptrOfEnds {
  std::span<const int32_t> ends;
  std::span<int32_t> indptr;
};
template <class V>
void visit_args(V& v, IndptrOfEnds& c) {
  v("ends", c.ends);
  v("indptr", c.indptr);
}
/// to_indptr over the device's memory [n], into indptr [n + 1], by what the ends are when it runs.
KernelLaunch indptr_launch(InclusiveEnds ends, std::span<const int32_t> indptr);

extern const Kernel kIndptrOfEnds;

}  // namespace shadowgraph
