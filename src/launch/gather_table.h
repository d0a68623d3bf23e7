// A page table gathered on the device, at the beginning of a step. Facts: docs/metadata.md
// "FlashAttention", "Siblings". Tested by tests/launch/gather_table_test.cc.
#pragma once

#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// Column j of row i becomes translate(req_to_token[rho][offset + j * unit]) / unit, where rho =
/// req_pool_indices[i] and offset = offsets[i], for all j * unit < lens[i]; the other columns stay
/// what they were. All arrays are the device's, of equally many requests.
struct GatherTable {
  ConstTensorView req_to_token;  // int32 [rows, width], contiguous
  // int64 [slots], the slots of another pool (sliding window); undefined: none is translated
  ConstTensorView full_to_swa;
  std::span<const int32_t> req_pool_indices;
  std::span<const int32_t> lens;     // tokens
  std::span<const int32_t> offsets;  // tokens of the row before the first one; empty: 0
  TensorView page_table;             // int32 [requests, columns], contiguous
  int32_t unit = 1;                  // tokens that a column stands for
};
inline constexpr int32_t kNoPage = -1;  // of an index that leads nowhere
template <class V>
void visit_args(V& v, GatherTable& c) {
  v("req_to_token", c.req_to_token);
  v("full_to_swa", c.full_to_swa);
  v("req_pool_indices", c.req_pool_indices);
  v("lens", c.lens);
  v("offsets", c.offsets);
  v("page_table", c.page_table);
  v("unit", c.unit);
}

/// Reads everything when it runs. Where an index is outside its array the footprint holds the
/// access and the column becomes -1; a length of more columns than the row has goes on into the
/// next row, as it would on a GPU, and stops at the table's end.
KernelLaunch gather_table_launch(const GatherTable& call);

extern const Kernel kGatherTable;

}  // namespace shadowgraph
