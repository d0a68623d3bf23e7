// Rows of a matrix by a list, one after the other, as a launch: packed latents of a prefill whose
// kernel reads them so. Facts: docs/metadata.md "DSA" (page_table_1_flattened). Tested by
// tests/launch/sparse_launch_test.cc.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Row t of out is row indices[t] of rows, bit for bit. [cu_seqlens[i], cu_seqlens[i + 1]) are
/// request i's.
struct GatherRows {
  ConstTensorView rows;                 // [any, width], a row contiguous
  std::span<const int32_t> indices;     // of the device
  std::span<const int32_t> cu_seqlens;  // [requests + 1] of the device
  TensorView out;                       // [>= the last offset, width] of the same type
};
template <class V>
void visit_args(V& v, GatherRows& c) {
  v("rows", c.rows);
  v("indices", c.indices);
  v("cu_seqlens", c.cu_seqlens);
  v("out", c.out);
}

/// Reads the lists when it runs; entries and rows past the last offset are neither read nor
/// written. Nothing is gathered where an offset is out of order, or beyond the entries or rows that
/// there are, or an entry names no row: the footprint holds the access.
KernelLaunch gather_rows_launch(const GatherRows& call, const RequestRows& rows = {});

extern const Kernel kGatherRows;

}  // namespace shadowgraph
