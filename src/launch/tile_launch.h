// Attention by a plan that lies on the device: FlashInfer's run. A plan cuts each request's packed
// rows (token * group + head of the group) into tiles and its keys into chunks; a work item is one
// tile against one chunk. Where keys are cut, every item leaves a partial result, and a second
// launch merges those of each token. Facts: docs/metadata.md "FlashInfer". Tested by
// tests/launch/tile_launch_test.cc and tile_merge_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "launch/partial_rows.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// The work list, by what FlashInfer calls its arrays; all int32 but the last.
struct TilePlan {
  std::span<const int32_t> request_indices;  // [items]
  std::span<const int32_t> qo_tile_indices;  // [items]; empty: one tile a request (decode)
  std::span<const int32_t> kv_tile_indices;  // [items]
  // [batch + 1] first partial row of each request: token q, chunk c of n is row
  // o_indptr[request] + q * n + c, n = ceil(max(kv_len, 1) / kv_chunk_size)
  std::span<const int32_t> o_indptr;
  std::span<const int32_t> merge_indptr;      // [tokens + 1] partial rows of each query token
  std::span<const int32_t> kv_chunk_size;     // [1] keys
  std::span<const uint8_t> block_valid_mask;  // [items] 0: nothing to do (a grid's padding)
  int32_t cta_tile_q = 0;                     // packed rows of a tile; baked
  bool split_kv = false;  // items leave partial results; baked. Else they write out itself
};
/// Without merge_indptr, which is the merge's.
template <class V>
void visit_args(V& v, TilePlan& p) {
  v("request_indices", p.request_indices);
  v("qo_tile_indices", p.qo_tile_indices);
  v("kv_tile_indices", p.kv_tile_indices);
  v("o_indptr", p.o_indptr);
  v("kv_chunk_size", p.kv_chunk_size);
  v("block_valid_mask", p.block_valid_mask);
  v("cta_tile_q", p.cta_tile_q);
  v("split_kv", p.split_kv);
}

/// Multi-item scoring: a query of request i at key a >= prefix_lens[i] sees of the keys from there
/// on only those k for which a < k + p, p = token_pos[i, a - prefix_lens[i]], and at most
/// max_item_lens[i]. All int32.
struct TileItems {
  std::span<const int32_t> prefix_lens;    // [batch]; empty: no items
  std::span<const int32_t> token_pos;      // [batch, row] 0 of a delimiter, which sees no item
  std::span<const int32_t> max_item_lens;  // [batch]
};
template <class V>
void visit_args(V& v, TileItems& i) {
  v("prefix_lens", i.prefix_lens);
  v("token_pos", i.token_pos);
  v("max_item_lens", i.max_item_lens);
}

struct TiledAttention {
  ConstTensorView q;                    // [tokens, num_qo_heads, head_dim_qk]
  std::span<const int32_t> qo_indptr;   // [batch + 1]; empty: one query a request
  std::span<const int32_t> kv_indptr;   // [batch + 1] keys
  std::span<const int32_t> kv_indices;  // slots; empty with ragged keys
  KvCache cache;                        // slot_view, or none
  ConstTensorView k, v;                 // ragged keys [kv_indptr.back(), kv heads, head_dim]
  // Packed bits (CustomMask::kPacked), a segment a request, beginning at byte mask_indptr[i]; takes
  // the place of causal, while the window holds beside it. Empty: none
  std::span<const uint8_t> packed_mask;
  std::span<const int32_t> mask_indptr;  // [batch + 1] bytes
  TileItems items;                       // an AND with causal; without packed_mask
  AttentionParams params;                // window and causal are aligned to the end of the keys
  TilePlan plan;
  TensorView out;  // split_kv: partial rows [rows, num_qo_heads, head_dim_vo], else [tokens, ...]
  AnyLse lse;      // the same rows
};
template <class V>
void visit_args(V& v, TiledAttention& c) {
  v("q", c.q);
  v("qo_indptr", c.qo_indptr);
  v("kv_indptr", c.kv_indptr);
  v("kv_indices", c.kv_indices);
  v("cache", c.cache);
  v("k", c.k);
  v("v", c.v);
  v("packed_mask", c.packed_mask);
  v("mask_indptr", c.mask_indptr);
  v("items", c.items);
  v("params", c.params);
  v("plan", c.plan);
  v("out", c.out);
  v("lse", c.lse);
}

/// What the launch runs on is what memory holds when it runs: a stale or short plan leaves rows
/// unwritten, computes some twice or reads beyond a list; the footprint says what it read and
/// wrote. Rows of q and
/// out past qo_indptr's last entry are padding. Where an item cannot be computed those of its rows
/// that exist are filled with 0xff. What a plan does not need is not read: kv_tile_indices,
/// o_indptr and kv_chunk_size where keys are not cut. Items run one after the other.
KernelLaunch tile_launch(const TiledAttention& call, const RequestRows& rows = {});

/// Partial rows merge_indptr[t] to merge_indptr[t + 1] become row t, in their order; of no row out
/// 0 and LSE -inf. The two LSEs may have different bases.
struct MergeTiles {
  ConstTensorView v;                      // [rows, num_heads, head_dim] f32
  AnyLse s;                               // [rows, num_heads]
  std::span<const int32_t> merge_indptr;  // [tokens + 1]
  TensorView out;                         // [tokens, num_heads, head_dim]
  AnyLse lse;                             // optional
  // [batch + 1]: its last entry is how many rows are no padding; empty: all
  std::span<const int32_t> qo_indptr;
};
template <class V>
void visit_args(V& v, MergeTiles& c) {
  v("v", c.v);
  v("s", c.s);
  v("merge_indptr", c.merge_indptr);
  v("out", c.out);
  v("lse", c.lse);
  v("qo_indptr", c.qo_indptr);
}
KernelLaunch merge_tiles_launch(const MergeTiles& call);

/// Two partial results of every token, in any bases: the ragged and the paged part of a prefill.
struct MergePair {
  ConstTensorView v_a, v_b;
  AnyLse s_a, s_b;
  TensorView out;
  AnyLse lse;
  std::span<const int32_t> qo_indptr;
};
template <class V>
void visit_args(V& v, MergePair& c) {
  v("v_a", c.v_a);
  v("s_a", c.s_a);
  v("v_b", c.v_b);
  v("s_b", c.s_b);
  v("out", c.out);
  v("lse", c.lse);
  v("qo_indptr", c.qo_indptr);
}
KernelLaunch merge_pair_launch(const MergePair& call);

extern const Kernel kTiledAttention, kMergeTiles, kMergePair;

}  // namespace shadowgraph
