// Triton's attention kernels, as SGLang launches them: decode in two stages with as many splits as
// num_kv_splits says for each row, and extend over a cached prefix and the step's own dense K and
// V. Slots are int64. Facts: docs/metadata.md "Triton". Tested by
// tests/launch/triton_launch_test.cc and triton_extend_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Keys of a split: per = ceil(ceil(kv_len / splits) / 32) * 32; split s has [s per, (s + 1) per).
constexpr int64_t triton_split_keys(int64_t kv_len, int64_t splits) {
  return ((kv_len + splits - 1) / splits + 31) / 32 * 32;  // edge: keys
}

/// One query a row, no mask: the list is what it sees. Stage 1 leaves partial results, stage 2
/// merges those of splits that have keys and adds the sink once, to out's denominator alone. The
/// grid has max_kv_splits: of a row that asks for more the keys of the others are left out. Where a
/// row, or a split of it, cannot be computed it is filled with 0xff.
struct TritonDecode {
  ConstTensorView q;                       // [rows, num_qo_heads, head_dim_qk]
  KvCache cache;                           // slot_view
  std::span<const int32_t> kv_indptr;      // [rows + 1]
  std::span<const int64_t> kv_indices;     // slots
  std::span<const int32_t> num_kv_splits;  // [rows] 1 to max_kv_splits
  AttentionParams params;                  // causal and window are not asked
  // f32 [rows, num_qo_heads, max_kv_splits, head_dim_vo], a row's in one piece, and its LSE
  TensorView attn_logits;
  NaturalLse attn_lse;  // f32 [rows, num_qo_heads, max_kv_splits]
  TensorView out;       // [rows, num_qo_heads, head_dim_vo]
  NaturalLse lse;       // [rows, num_qo_heads], optional
};
template <class V>
void visit_args(V& v, TritonDecode& c) {
  v("q", c.q);
  v("cache", c.cache);
  v("kv_indptr", c.kv_indptr);
  v("kv_indices", c.kv_indices);
  v("num_kv_splits", c.num_kv_splits);
  v("params", c.params);
  v("attn_logits", c.attn_logits);
  v("attn_lse", c.attn_lse.tensor);
  v("out", c.out);
  v("lse", c.lse.tensor);
}
KernelLaunch triton_decode_stage1_launch(const TritonDecode& call, const RequestRows& rows = {});
KernelLaunch triton_decode_stage2_launch(const TritonDecode& call, const RequestRows& rows = {});

/// Query m of request i stands behind its prefix, at kv_len_i + m, where kv_len_i is the length of
/// its list; own key n at kv_len_i + n. A list that begins in the prefix keeps that: differences
/// are all that is judged. Prefix and own keys are computed apart and merged; a sink is counted in
/// out's denominator alone. A request that cannot be computed has its rows filled with 0xff.
struct TritonExtend {
  ConstTensorView q, k, v;              // [tokens, heads, dim]: the step's own
  KvCache cache;                        // slot_view, of the prefix
  std::span<const int32_t> qo_indptr;   // [batch + 1]
  std::span<const int32_t> kv_indptr;   // [batch + 1]
  std::span<const int64_t> kv_indices;  // slots of the prefix
  // Bytes, 0 or 1: of query m and column c of request i at mask_indptr[i] + m (kv_len_i + q_len_i +
  // offset_i) + offset_i + c. Takes the place of causal among the own keys; the prefix's columns
  // are not read: all see it. Empty: none
  std::span<const uint8_t> custom_mask;
  std::span<const int64_t> mask_indptr;        // [batch + 1]
  std::span<const int32_t> window_kv_offsets;  // [batch]; empty: 0
  // [tokens] of a tree: query m and own key n stand at kv_len_i + depth, and not + m and + n, for
  // the window. Only beside a mask; empty: none
  std::span<const int32_t> depths;
  AttentionParams params;
  // Queries of a request from this one on are not computed, as of any grid; 0: all are
  int32_t max_extend_len = 0;
  TensorView out;
  NaturalLse lse;
};
template <class V>
void visit_args(V& v, TritonExtend& c) {
  v("q", c.q);
  v("k", c.k);
  v("v", c.v);
  v("cache", c.cache);
  v("qo_indptr", c.qo_indptr);
  v("kv_indptr", c.kv_indptr);
  v("kv_indices", c.kv_indices);
  v("custom_mask", c.custom_mask);
  v("mask_indptr", c.mask_indptr);
  v("window_kv_offsets", c.window_kv_offsets);
  v("depths", c.depths);
  v("params", c.params);
  v("out", c.out);
  v("lse", c.lse.tensor);
  v("max_extend_len", c.max_extend_len);
}
KernelLaunch triton_extend_launch(const TritonExtend& call, const RequestRows& rows = {});

extern const Kernel kTritonDecodeStage1, kTritonDecodeStage2, kTritonExtend;

}  // namespace shadowgraph
