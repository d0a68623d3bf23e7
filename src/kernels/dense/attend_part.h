// A part of one request's attention: some of its queries against some of its keys, with where both
// stand said by number. What plans that cut keys (FlashInfer's work list, Triton's splits) are made
// of; parts over disjoint keys are merged by their LSE. Tested by
// tests/kernels/attend_part_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// The keys: slots of a cache, or rows of ragged K and V.
struct PartKeys {
  // Seen in pages of one token (slot_view); num_pages 0: ragged
  KvCache cache;
  std::span<const int32_t> slots;  // [keys]
  ConstTensorView k, v;            // ragged: [keys, num_kv_heads, head_dim]
  float k_scale = 1, v_scale = 1;  // of ragged ones

  bool ragged() const { return cache.num_pages == 0; }
  int64_t size() const { return ragged() ? k.shape[0] : static_cast<int64_t>(slots.size()); }
};

struct AttentionPart {
  ConstTensorView q;  // [tokens, num_qo_heads, head_dim_qk]
  PartKeys keys;
  // Query i stands at q_position + i and key j at key_position + j, in one count, below 2^62:
  // causal and window are judged by these
  int64_t q_position = 0, key_position = 0;
  // Only query heads head_begin <= g < head_end of each KV head's group; 0, 0: all
  int32_t head_begin = 0, head_end = 0;
  // [tokens, keys], 0 or 1, an AND with causal and window; empty: none. Row-major, rows mask_stride
  // apart
  std::span<const uint8_t> mask;
  int64_t mask_stride = 0;
  AttentionParams params;  // without a custom mask of its own
  TensorView out;  // [tokens, num_qo_heads, head_dim_vo]; of the other heads nothing is written
  NaturalLse lse;  // [tokens, num_qo_heads], optional
  CallOptions options;
};

/// Every violation at once, as validate() of a call.
Status validate(const AttentionPart& part);

/// Checks the part, then computes it. A row's bits are a function of its query and the keys of the
/// part that it sees, with their places among these; never of the other queries or heads, nor of
/// positions that shift both. Not ok: nothing is written, unless memory ran out between two heads.
Status attend_part(const AttentionPart& part) noexcept;

/// Appends what it reads and writes on the device: q, keys, slots, sinks, out and lse; requires a
/// part that validate() accepts. Reads of slots carry `row`. The mask is the caller's to add.
void add_part_footprint(const AttentionPart& part, int32_t row, Footprint* spans);

}  // namespace shadowgraph
