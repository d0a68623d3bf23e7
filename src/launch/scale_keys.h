// New keys times their request's factor, before they are stored, as a launch. Facts:
// docs/metadata.md "Dual chunks". Tested by tests/launch/scale_keys_test.cc.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// out = k * factor in f32; rows [cu_seqlens[i], cu_seqlens[i + 1]) are request i's.
struct ScaleKeys {
  ConstTensorView k;                    // [tokens, heads, head_dim], f32 | f16 | bf16
  std::span<const int32_t> cu_seqlens;  // [requests + 1] of the device
  std::span<const float> factors;       // [requests] of the device
  TensorView out;                       // f32, as k
};
template <class V>
void visit_args(V& v, ScaleKeys& c) {
  v("k", c.k);
  v("cu_seqlens", c.cu_seqlens);
  v("factors", c.factors);
  v("out", c.out);
}

/// Rows past the last offset are neither read nor written. Nothing is scaled where an offset is out
/// of order, or beyond the rows that there are: the footprint holds the access.
///
/// rows: which of the call's requests are which request of the step.
KernelLaunch scale_keys_launch(const ScaleKeys& call, const RequestRows& rows = {});

extern const Kernel kScaleKeys;

}  // namespace shadowgraph
