// A workspace that a kernel counts in: TRTLLM's. The blocks that share the keys of a row count
// themselves there, and the last of them merges what they have. Facts: docs/metadata.md "Siblings".
// Tested by tests/launch/counters_launch_test.cc.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// The end of an attention call, where rows are merged.
struct CountedRows {
  std::span<int32_t> counters;            // [rows]
  std::span<const int32_t> cu_seqlens_q;  // [rows + 1]
  TensorView out;
  NaturalLse lse;
};
template <class V>
void visit_args(V& v, CountedRows& c) {
  v("counters", c.counters);
  v("cu_seqlens_q", c.cu_seqlens_q);
  v("out", c.out);
  v("lse", c.lse.tensor);
}

/// A row whose counter is not 0 has no last block: its queries are filled with 0xff. All counters
/// are 0 when it ends. It reads no partial results, as the call before has each row whole.
KernelLaunch counted_rows_launch(const CountedRows& call, const RequestRows& rows = {});

extern const Kernel kCountedRows;

}  // namespace shadowgraph
