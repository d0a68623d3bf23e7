// The arguments of the attention calls, one list for whoever writes, reads or checks them:
// launches, files, findings. visit_args(v, call) calls v(name, member) for each member of a call,
// in the order in which its launch has the addresses (launch/launch_args.h). A member is a number,
// an address, a view, a span, or a struct that has a visit_args of its own.
#pragma once

#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// The numbers of the parameters, which case files keep as well.
template <class V>
void visit_fields(V& v, AttentionParams& p) {
  v("num_qo_heads", p.num_qo_heads);
  v("num_kv_heads", p.num_kv_heads);
  v("head_dim_qk", p.head_dim_qk);
  v("head_dim_vo", p.head_dim_vo);
  v("sm_scale", p.sm_scale);
  v("causal", p.causal);
  v("window_left", p.window_left);
  v("window_right", p.window_right);
  v("logits_soft_cap", p.logits_soft_cap);
}

template <class V>
void visit_args(V& v, CustomMask& m) {
  v("kind", m.kind);
  v("data", m.data);
  v("mask_indptr", m.mask_indptr);
  v("heads", m.heads);
}

template <class V>
void visit_fields(V& v, AttentionTerms& t) {
  v("alibi", t.alibi);
  v("temperature_len", t.temperature_len);
  v("attention_chunk", t.attention_chunk);
  v("chunk_lookback", t.chunk_lookback);
  v("q_scale", t.q_scale);
  v("out_scale", t.out_scale);
}

template <class V>
void visit_lists(V& v, AttentionTerms& t) {
  v("alibi_slopes", t.alibi_slopes);
  v("key_bias", t.key_bias);
  v("qq_bias", t.qq_bias);
  v("relative_bias", t.relative_bias);
  v("request_causal", t.request_causal);
  v("cache_leftpad", t.cache_leftpad);
  v("bidirectional_ranges", t.bidirectional_ranges);
  v("bidirectional_indptr", t.bidirectional_indptr);
  v("k_scales", t.k_scales);
  v("v_scales", t.v_scales);
  v("seqused_q", t.seqused_q);
  v("seqused_k", t.seqused_k);
}

/// Most launches have none, and as many arguments less; numbers and sizes tell, which a launch
/// keeps.
template <class V>
void visit_args(V& v, AttentionTerms& t) {
  visit_fields(v, t);
  if (t.any()) visit_lists(v, t);
}

template <class V>
void visit_args(V& v, AttentionParams& p) {
  v("sinks", p.sinks);
  v("custom_mask", p.custom_mask);
  visit_fields(v, p);
  v("terms", p.terms);
}

/// Not `isa` and `scratch`: they are the host's.
template <class V>
void visit_args(V& v, CallOptions& o) {
  v("arith", o.arith);
  v("num_threads", o.num_threads);
  v("lse_sink", o.lse_sink);
}

/// What a plane says of its memory; the cache has the addresses.
template <class V>
void visit_args(V& v, KvPlane& p) {
  v("dtype", p.dtype);
  v("order", p.order);
  v("head_dim", p.head_dim);
  v("page_stride", p.page_stride);
  v("token_stride", p.token_stride);
  v("head_stride", p.head_stride);
  v("scale_page_stride", p.scale_page_stride);
  v("scale_token_stride", p.scale_token_stride);
  v("scale_head_stride", p.scale_head_stride);
}

template <class V>
void visit_args(V& v, KvCache& c) {
  v("k.data", c.k.data);
  v("v.data", c.v.data);
  v("k.scales", c.k.scales);
  v("v.scales", c.v.scales);
  v("k", c.k);
  v("v", c.v);
  v("num_pages", c.num_pages);
  v("page_size", c.page_size);
  v("num_kv_heads", c.num_kv_heads);
  v("k_scale", c.k_scale);
  v("v_scale", c.v_scale);
  v("well_formed", c.well_formed);
}

/// Both forms have the same number of addresses.
template <class V>
void visit_args(V& v, PageTable& t) {
  v("form", t.form);
  if (t.form == PageTable::Form::kDense) {
    v("page_table", t.page_table);
    v("cache_seqlens", t.cache_seqlens);
  } else {
    v("kv_indices", t.kv_indices);
    v("last_page_len", t.last_page_len);
  }
  v("kv_indptr", t.kv_indptr);
  v("max_pages", t.max_pages);
}

template <class V>
void visit_args(V& v, PagedAttention& c) {
  v("q", c.q);
  v("cache", c.cache);
  v("pages", c.pages);
  v("cu_seqlens_q", c.cu_seqlens_q);
  v("params", c.params);
  v("out", c.out);
  v("lse", c.lse.tensor);
  v("plan", c.plan);
  v("options", c.options);
  v("max_seqlen_q", c.max_seqlen_q);
}

template <class V>
void visit_args(V& v, RaggedAttention& c) {
  v("q", c.q);
  v("k", c.k);
  v("v", c.v);
  v("cu_seqlens_q", c.cu_seqlens_q);
  v("cu_seqlens_k", c.cu_seqlens_k);
  v("params", c.params);
  v("out", c.out);
  v("lse", c.lse.tensor);
  v("k_scale", c.k_scale);
  v("v_scale", c.v_scale);
  v("options", c.options);
  v("max_seqlen_q", c.max_seqlen_q);
}

template <class V, LseBase Base>
void visit_args(V& v, MergeState<Base>& c) {
  v("v_a", c.v_a);
  v("s_a", c.s_a);
  v("v_b", c.v_b);
  v("s_b", c.s_b);
  v("out", c.out);
  v("lse", c.lse.tensor);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, StoreKv& c) {
  v("k", c.k);
  v("v", c.v);
  v("out_cache_loc", c.out_cache_loc);
  v("cache", c.cache);
  v("options", c.options);
  v("first_slot", c.first_slot);
}

template <class V>
void visit_args(V& v, CopyKv& c) {
  v("source", c.source);
  v("target", c.target);
  v("source_pages", c.source_pages);
  v("target_pages", c.target_pages);
  v("whole_pool", c.whole_pool);
  v("options", c.options);
}

}  // namespace shadowgraph
