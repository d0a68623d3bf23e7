// Attention by a schedule that lies on the device: FlashMLA's decode. The schedule shares the keys
// of all rows out among the parts of the machine, in blocks of 64. A row that one part has whole is
// written directly; of another each part leaves a partial result, and a second launch merges those.
// Facts: docs/metadata.md "Siblings". Tested by tests/launch/mla_parts_launch_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// A part of the machine reads from key begin_key of begin_row to end_key of end_row, whole rows
/// between; without work it has end_row < begin_row, or no row at all. begin_split: how many splits
/// of begin_row come before.
enum MlaPart : uint8_t { kBeginRow, kBeginKey, kEndRow, kEndKey, kBeginSplit, kMlaPartInts = 8 };
inline constexpr int32_t kMlaBlockKeys = 64;  // edge: keys

/// A dense table of pages of 64 keys, no plan and no mask. A row has cache_seqlens keys and a
/// window of max_seqlen_q queries at their end; its own queries, by cu_seqlens_q (none: one a row),
/// are the first of these.
struct MlaParts : PagedAttention {
  std::span<const int32_t> tile_metadata = {};  // [parts, kMlaPartInts]: MlaPart
  std::span<const int32_t> num_splits = {};     // [rows + 1] splits of the rows before
  // Partial results, f32: query j of split s of row i has place (num_splits[i] + s) * max_seqlen_q
  // + j
  TensorView partial_out = {};  // [places, num_qo_heads, head_dim_vo]
  NaturalLse partial_lse = {};  // [places, num_qo_heads]
};
template <class V>
void visit_args(V& v, MlaParts& c) {
  visit_args(v, static_cast<PagedAttention&>(c));
  v("tile_metadata", c.tile_metadata);
  v("num_splits", c.num_splits);
  v("partial_out", c.partial_out);
  v("partial_lse", c.partial_lse.tensor);
}

/// Parts run one after the other. A part whose keys are all that a row has writes out and lse, any
/// other a partial result. What a part cannot compute, as the schedule or the table names what is
/// not there, is filled with 0xff.
KernelLaunch mla_parts_launch(const MlaParts& call, const RequestRows& rows = {});
/// Merges the splits of each row that has not just one. A row whose splits have no place is filled
/// with 0xff. Sinks count in out's denominator alone.
KernelLaunch mla_merge_launch(const MlaParts& call, const RequestRows& rows = {});

extern const Kernel kMlaParts, kMlaMerge;

}  // namespace shadowgraph
