// The members of each call by their shapes: what a call's refusals follow from. A letter stands for
// an axis that is as long as other members say, a dot for one that says it itself. Tested by
// tests/fuzz/refusals_test.cc.
#pragma once

#include "attn/index_page.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/recurrent.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

// V: read(name, view, shape), written(name, view, shape), plane(name, plane);
// list(name, list); offsets(name, list, law of an end behind what it counts); ids(name, list,
// limit, law, is -2 refused, too); lengths(name, list, most, law of more); scale(name, number);
// options(options).

template <class V>
void visit_mask(V& v, AttentionParams& p) {
  v.list("custom_mask", p.custom_mask.data);
  v.list("mask_indptr", p.custom_mask.mask_indptr);
  v.list("sinks", p.sinks);
  v.scale("sm_scale", p.sm_scale);
  AttentionTerms& t = p.terms;
  v.list("alibi_slopes", t.alibi_slopes), v.list("key_bias", t.key_bias);
  v.list("qq_bias", t.qq_bias), v.list("relative_bias", t.relative_bias);
  v.list("request_causal", t.request_causal), v.list("cache_leftpad", t.cache_leftpad);
  v.list("bidirectional_ranges", t.bidirectional_ranges);
  v.list("bidirectional_indptr", t.bidirectional_indptr);
  v.list("k_scales", t.k_scales), v.list("v_scales", t.v_scales);
  v.list("seqused_q", t.seqused_q), v.list("seqused_k", t.seqused_k);
  v.scale("q_scale", t.q_scale), v.scale("out_scale", t.out_scale);
}

template <class V>
void visit_members(V& v, PagedAttention& c) {
  PageTable& t = c.pages;
  v.read("q", c.q, ".hd");
  v.plane("k_cache", c.cache.k), v.plane("v_cache", c.cache.v);
  v.list("page_table", t.page_table), v.list("kv_indices", t.kv_indices);
  v.lengths("cache_seqlens", t.cache_seqlens, t.max_pages * c.cache.page_size, "len.capacity");
  v.offsets("kv_indptr", t.kv_indptr, "len.total");
  v.list("last_page_len", t.last_page_len);
  v.offsets("cu_seqlens_q", c.cu_seqlens_q, "len.total");
  v.list("plan", c.plan);
  visit_mask(v, c.params);
  v.scale("k_scale", c.cache.k_scale), v.scale("v_scale", c.cache.v_scale);
  v.written("out", c.out, "thd");
  v.written("lse", c.lse.tensor, "th");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, RaggedAttention& c) {
  v.read("q", c.q, ".hd"), v.read("k", c.k, ".hd"), v.read("v", c.v, "khd");
  v.offsets("cu_seqlens_q", c.cu_seqlens_q, "len.total");
  v.offsets("cu_seqlens_k", c.cu_seqlens_k, "len.total");
  visit_mask(v, c.params);
  v.scale("k_scale", c.k_scale), v.scale("v_scale", c.v_scale);
  v.written("out", c.out, "thd");
  v.written("lse", c.lse.tensor, "th");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, StoreKv& c) {
  v.read("k", c.k, "thd"), v.read("v", c.v, "the");
  v.ids("out_cache_loc", c.out_cache_loc, c.cache.num_slots(), "slot.range", false);
  v.plane("k_cache", c.cache.k), v.plane("v_cache", c.cache.v);
  v.scale("k_scale", c.cache.k_scale), v.scale("v_scale", c.cache.v_scale);
  v.options(c.options);
}

template <class V>
void visit_members(V& v, CopyKv& c) {
  v.plane("source k_cache", c.source.k), v.plane("source v_cache", c.source.v);
  v.plane("target k_cache", c.target.k), v.plane("target v_cache", c.target.v);
  v.ids("source_pages", c.source_pages, c.source.num_pages, "table.page_id", true);
  v.ids("target_pages", c.target_pages, c.target.num_pages, "table.page_id", true);
  v.scale("k_scale", c.target.k_scale), v.scale("v_scale", c.target.v_scale);
  v.options(c.options);
}

template <class V, LseBase Base>
void visit_members(V& v, MergeStates<Base>& c) {
  v.read("v", c.v, "...."), v.read("s", c.s, "rsh");
  v.written("out", c.out, "rhd"), v.written("lse", c.lse.tensor, "rh");
  v.options(c.options);
}

template <class V, LseBase Base>
void visit_members(V& v, MergeState<Base>& c) {
  v.read("v_a", c.v_a, "..."), v.read("s_a", c.s_a, "rh");
  v.read("v_b", c.v_b, "rhd"), v.read("s_b", c.s_b, "rh");
  v.written("out", c.out, "rhd"), v.written("lse", c.lse.tensor, "rh");
  v.options(c.options);
}

template <class V>
void visit_rows(V& v, StateRows& rows, const TensorView& states, DraftSteps& draft) {
  v.offsets("cu_seqlens_q", rows.cu_seqlens_q, "len.total");
  v.ids("state_indices", rows.state_indices, states.shape[0], "slot.range", true);
  v.list("has_initial_state", rows.has_initial_state);
  const int64_t places = draft.states.defined() ? draft.states.shape[0] : 0;
  v.ids("draft.indices", draft.indices, places, "slot.range", true);
  v.list("draft.parents", draft.parents);
}

template <class V>
void visit_members(V& v, LinearAttention& c) {
  v.read("q", c.q, "tgk"), v.read("k", c.k, "t.."), v.read("v", c.v, "...");
  constexpr const char* kDecays[] = {"", "h", "th", "thk"};
  v.read("log_decay", c.log_decay, kDecays[c.log_decay.rank]);
  v.read("beta", c.beta, "th"), v.read("skip", c.skip, "h"), v.read("z", c.z, "thv");
  v.scale("scale", c.scale);
  visit_rows(v, c.rows, c.states, c.draft);
  v.written("states", c.states, ".hvk"), v.written("draft.states", c.draft.states, "..hvk");
  v.written("chunk_states", c.chunk_states, "chvk"), v.written("out", c.out, "thv");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, CausalConv1d& c) {
  v.read("x", c.x, ".."), v.read("weight", c.weight, "d."), v.read("bias", c.bias, "d");
  visit_rows(v, c.rows, c.states, c.draft);
  v.written("states", c.states, ".dw"), v.written("draft.states", c.draft.states, "..dw");
  v.written("out", c.out, "td");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, DecayGate& c) {
  const bool channels = c.x.rank == 3;
  v.read("x", c.x, channels ? "..." : ".."), v.read("a_log", c.a_log, "h");
  v.read("dt_bias", c.dt_bias, channels ? "hc" : "h"), v.read("b", c.b, "th");
  if (c.kind == DecayGate::Kind::kLowerBound) v.scale("lower_bound", c.lower_bound);
  v.written("log_decay", c.log_decay, channels ? "thc" : "th"), v.written("beta", c.beta, "th");
}

template <class V>
void visit_keys(V& v, ChosenKeys& keys) {
  v.read("pool", keys.pool.data, keys.pool.layout == LatentLayout::kRows ? ".d" : ".b");
  v.ids("keys.indices", keys.indices, keys.pool.slots(), "list.slot", true);
  v.lengths("keys.lengths", keys.lengths, keys.width, "len.capacity");
  v.offsets("keys.indptr", keys.indptr, "len.total");
}

template <class V>
void visit_members(V& v, SparseAttention& c) {
  v.read("q", c.q, "...");
  visit_keys(v, c.keys);
  if (c.extra.defined()) visit_keys(v, c.extra);
  v.list("sinks", c.sinks);
  v.scale("sm_scale", c.sm_scale);
  v.written("out", c.out, "thv"), v.written("lse", c.lse.tensor, "th");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, PackLatents& c) {
  v.read("latents", c.latents, "td");
  v.ids("out_cache_loc", c.out_cache_loc, c.pool.slots(), "slot.range", false);
  v.written("pool", c.pool.data, c.pool.layout == LatentLayout::kRows ? ".." : ".b");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, ActQuant& c) {
  v.read("x", c.x, "..");
  v.written("y", c.y, "td"), v.written("scale", c.scale, "tg");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, StoreIndexKeys& c) {
  v.read("k", c.k, "td"), v.read("k_scale", c.k_scale, "t");
  v.ids("out_cache_loc", c.out_cache_loc, c.pages.shape[0] * kIndexPageTokens, "slot.range", false);
  v.written("pages", c.pages, ".b");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, GatherIndexKeys& c) {
  v.read("pages", c.pages, ".b"), v.read("page_table", c.page_table, "..");
  v.offsets("cu_seqlens_k", c.cu_seqlens_k);
  v.written("k", c.k, "kd"), v.written("k_scale", c.k_scale, "k");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, IndexerLogits& c) {
  v.read("q", c.q, "..d"), v.read("weights", c.weights, "th");
  v.read("pages", c.pages, ".b"), v.read("page_table", c.page_table, "..");
  v.read("k", c.k, ".d"), v.read("k_scale", c.k_scale, "k");
  if (c.is_paged()) v.ids("rows", c.rows, c.page_table.shape[0], "table.pool_row", true);
  v.lengths("ks", c.ks);
  v.lengths("ke", c.ke, c.logits.shape[1], "len.capacity");
  v.written("logits", c.logits, "t.");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, SelectIndices& c) {
  v.read("logits", c.logits, "..");
  v.lengths("ks", c.ks);
  v.lengths("ke", c.ke, c.logits.shape[1], "len.capacity");
  v.written("indices", c.indices, "t.");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, TransformIndices& c) {
  v.read("indices", c.indices, ".."), v.read("page_table_1", c.page_table_1, "..");
  if (c.page_table_1.defined())
    v.ids("rows", c.rows, c.page_table_1.shape[0], "table.pool_row", true);
  v.lengths("offsets", c.offsets);
  v.written("out", c.out, "tk");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, CompactIndices& c) {
  v.read("indices", c.indices, "..");
  v.offsets("kv_indptr", c.kv_indptr, "len.q_extent");
  v.list("kv_indices", c.kv_indices);
  v.options(c.options);
}

template <class V>
void visit_members(V& v, Compress& c) {
  v.read("kv_score", c.kv_score, ".."), v.read("ape", c.ape, "wd");
  v.offsets("cu_seqlens_q", c.cu_seqlens_q, "len.total");
  v.list("seq_lens", c.seq_lens), v.list("extra", c.extra);
  v.ids("indices", c.indices, c.state.shape[0], "slot.range", false);
  v.written("state", c.state, ".rc"), v.written("out", c.out, "td");
  v.options(c.options);
}

template <class V, class Norm>
void visit_norm(V& v, Norm& c) {
  v.read("weight", c.weight, "d"), v.read("freqs", c.freqs, "b.");
  v.scale("eps", c.eps);
  v.written("out", c.out, "bd");
  v.options(c.options);
}

template <class V>
void visit_members(V& v, PoolNormRope& c) {
  v.read("kv_score", c.kv_score, ".w."), v.read("ape", c.ape, "rc");
  visit_norm(v, c);
}

template <class V>
void visit_members(V& v, NormRope& c) {
  v.read("x", c.x, "..");
  visit_norm(v, c);
}

}  // namespace shadowgraph
