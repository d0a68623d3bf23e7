// Latents of a pool, gathered one after the other, as a launch. Facts: docs/metadata.md "Prefix in
// chunks". Tested by tests/launch/gather_latents_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Row t of out is the latent in slots[t], in f32: as it is stored, times its token's scale where
/// it has one. Rows [cu_seqlens[i], cu_seqlens[i + 1]) are request i's.
struct GatherLatents {
  KvCache cache;                        // of latents
  std::span<const int64_t> slots;       // of the device
  std::span<const int32_t> cu_seqlens;  // [requests + 1] of the device
  TensorView out;                       // f32 [tokens, 1, head_dim_qk], last dim contiguous
};
template <class V>
void visit_args(V& v, GatherLatents& c) {
  v("cache", c.cache);
  v("slots", c.slots);
  v("cu_seqlens", c.cu_seqlens);
  v("out", c.out);
}

/// Reads the slots when it runs; slots and rows past the last offset are neither read nor written.
/// Nothing is gathered where an offset is out of order, or beyond the slots or rows that there are,
/// or a slot is not in the pool: the footprint holds the access.
///
/// rows: which of the call's requests are which request of the step.
KernelLaunch gather_latents_launch(const GatherLatents& call, const RequestRows& rows = {});

extern const Kernel kGatherLatents;

}  // namespace shadowgraph
