// Metadata of DeepSeek-V4 from what few numbers say of requests, at the beginning of a step: what
// a graph replays with raw metadata. The formulas are v4_tokens.h's. Facts: docs/metadata.md
// "DeepSeek-V4". Tested by tests/launch/v4_expand_test.cc.
#pragma once

#include <array>
#include <span>

#include "launch/launch_args.h"
#include "launch/v4_tokens.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Tokens cu_seqlens_q[i] to [i + 1] are request i's, behind its prefix; those behind its length,
/// and all of row 0 of req_to_token, are padding. All arrays are the device's.
struct ExpandV4 {
  V4TokenRules rules = {};
  ConstTensorView req_to_token;  // int32 [rows, width], contiguous
  ConstTensorView full_to_swa;   // int64 [slots]; undefined: the window has no pool of its own
  std::span<const int32_t> pool_rows, prefix_lens, kv_lens;  // [requests]
  std::span<const int32_t> cu_seqlens_q;                     // [requests + 1]
  std::span<const int64_t> out_cache_loc;                    // [tokens]
  std::array<std::byte*, V4Buffers::kFirstOwn> to = {};      // V4Buffers; null: not there
};
template <class V>
void visit_args(V& v, ExpandV4& c) {
  v("req_to_token", c.req_to_token);
  v("full_to_swa", c.full_to_swa);
  v("pool_rows", c.pool_rows);
  v("prefix_lens", c.prefix_lens);
  v("kv_lens", c.kv_lens);
  v("cu_seqlens_q", c.cu_seqlens_q);
  v("out_cache_loc", c.out_cache_loc);
  for (std::byte*& to : c.to) v("to", to);
  v("rules", c.rules);
}

/// Reads everything when it runs. Where an index is outside its array the footprint holds the
/// access and the entry is -1; a length of more entries than a row has goes on into the next row,
/// as it would on a GPU, and stops at the array's end.
KernelLaunch expand_v4_launch(const ExpandV4& call, const RequestRows& rows = {});

extern const Kernel kExpandV4;

}  // namespace shadowgraph
