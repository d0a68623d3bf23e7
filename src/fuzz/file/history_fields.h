// The members of a case file, one list for its reader, its writer and its check. A visitor has
// operator()(name, member) for numbers, strings, lists of them, and structs that are listed here,
// and operator()(name, member, low, high) for numbers that have a range.
#pragma once

#include "attn/visit/visit_attention.h"
#include "fuzz/file/history_file.h"

namespace shadowgraph {

template <class V>
void visit_fields(V& v, RecurrentLayer& l) {
  v("family", l.family);
  v("num_k_heads", l.num_k_heads, 1, 64);
  v("num_v_heads", l.num_v_heads, 1, 64);
  v("head_dim_k", l.head_dim_k, 1, 256);
  v("head_dim_v", l.head_dim_v, 1, 256);
  v("conv_width", l.conv_width);
  v("chunk_size", l.chunk_size, 1, 4096);
  v("scale", l.scale);
}

template <class V>
void visit_fields(V& v, SparseLayer& l) {
  v("num_heads", l.num_heads, 1, 64);
  v("head_dim", l.head_dim, 1, kDsaCodes + kRopeDim);
  v("head_dim_v", l.head_dim_v);
  v("sm_scale", l.sm_scale);
  v("topk", l.topk, 1, 4096);
  v("index_heads", l.index_heads, 1, 64);
  v("latents", l.latents);
  v("latent_dtype", l.latent_dtype);
  v("ragged_prefill", l.ragged_prefill);
}

template <class V>
void visit_fields(V& v, V4Layer& l) {
  v("num_heads", l.num_heads, 1, 64);
  v("window", l.window, 1, 4096);
  v("ratio", l.ratio);
  v("index_topk", l.index_topk, 1, 1 << 20);
  v("head_dim", l.head_dim, 1, kV4Codes + kRopeDim);
  v("rope_dim", l.rope_dim);
  v("layout", l.layout);
  v("pools", l.pools);
  v("rows", l.rows);
  v("sm_scale", l.sm_scale);
  v("eps", l.eps);
}

/// A layer of this kind as a list of one; of another as an empty one.
template <class Math, class V>
void visit_math(V& v, const char* name, LayerKind& k) {
  std::vector<Math> one;
  if (const Math* math = std::get_if<Math>(&k.math)) one.push_back(*math);
  v(name, one);
  if (one.size() == 1) k.math = one[0];
}

template <class V>
void visit_fields(V& v, LayerKind& k) {
  v("params", k.params);
  v("cross", k.cross);
  v("local", k.local);
  v("mla", k.mla);
  v("dual_chunk", k.dual_chunk);
  visit_math<RecurrentLayer>(v, "recurrent", k);
  visit_math<SparseLayer>(v, "sparse", k);
  visit_math<V4Layer>(v, "v4", k);
}

template <class V>
void visit_fields(V& v, DualChunkConfig& c) {
  v("chunk_size", c.chunk_size);
  v("local_size", c.local_size);
  v("original_max_position", c.original_max_position);
}

template <class V>
void visit_fields(V& v, SplitConfig& s) {
  v("fixed_size", s.fixed_size);
  v("off", s.off);
  v("min_size", s.min_size);
  v("max_splits", s.max_splits);
  v("num_sms", s.num_sms);
  v("blocks_per_sm", s.blocks_per_sm);
}

template <class V>
void visit_fields(V& v, ModelConfig& m) {
  v("max_context_len", m.max_context_len, 1, 4096);
  v("page_size", m.page_size, 1, 256);
  v("max_encoder_len", m.max_encoder_len, 0, 4096);
  v("attention_chunk", m.attention_chunk, 0, 4096);
  v("dual_chunk", m.dual_chunk);
  v("swa_pool", m.swa_pool);
  v("dcp_rank", m.dcp_rank);
  v("dcp_size", m.dcp_size, 1, 16);
  v("topk", m.topk, 1, 16);
  v("num_steps", m.num_steps, 0, 16);
  v("num_draft_tokens", m.num_draft_tokens, 0, 64);
  v("layers", m.layers);
  v("seq_len_fill", m.seq_len_fill, 0, 64);
  v("two_chunk_below", m.two_chunk_below);
  v("in_graph_tables", m.in_graph_tables);
  v("prefix_chunk_tokens", m.prefix_chunk_tokens, 0, 1 << 20);
  v("track_states", m.track_states);
  v("ragged_prefill", m.ragged_prefill);
  v("split", m.split);
}

template <class V>
void visit_fields(V& v, LayerValues& l) {
  v("k_scale", l.k_scale);
  v("v_scale", l.v_scale);
  v("sinks", l.sinks);
}

template <class V>
void visit_fields(V& v, RunnerOptions& o) {
  v("seed", o.seed);
  v("data", o.data);
  v("kv_dtype", o.kv_dtype);
  v("values", o.values);
  v("slots", o.slots);
  v("swa_slots", o.swa_slots);
  v("state_slots", o.state_slots, 0, 1 << 12);
  v("draft_rows", o.draft_rows, 0, 1024);
  v("max_tokens", o.max_tokens, 1, 1 << 16);
  v("pool_rows", o.pool_rows, 0, 1024);
  v("pool_width", o.pool_width, 0, 8192);
  v("buckets", o.buckets);
  v("plans_ahead", o.plans_ahead);
  v("own_streams", o.own_streams);
  v("wide_pools", o.wide_pools);
  v("device_seed", o.device.seed);
  v("proves_footprints", o.device.proves_footprints);
}

template <class V>
void visit_fields(V& v, SlotCopy& c) {
  v("from", c.from);
  v("to", c.to);
}

template <class V>
void visit_fields(V& v, StateMove& m) {
  v("kind", m.kind);
  v("slot", m.slot);
  v("from", m.from);
  v("step", m.step);
  v("owner", m.owner);
}

template <class V>
void visit_fields(V& v, DraftShape& d) {
  v("topk", d.topk);
  v("num_steps", d.num_steps);
  v("num_draft_tokens", d.num_draft_tokens);
}

template <class V>
void visit_fields(V& v, StepChains& c) {
  v("prefix_indptr", c.prefix_indptr);
  v("prefix", c.prefix);
  v("fresh", c.fresh);
  v("encoder", c.encoder);
}

template <class V>
void visit_fields(V& v, Step& s) {
  v("mode", s.mode);
  v("seq_lens_kind", s.seq_lens_kind);
  v("requests", s.requests);
  v("req_pool_indices", s.req_pool_indices);
  v("seq_lens", s.seq_lens);
  v("extend_lens", s.extend_lens);
  v("orig_seq_lens", s.orig_seq_lens);
  v("encoder_lens", s.encoder_lens);
  v("out_cache_loc", s.out_cache_loc);
  v("positions", s.positions);
  v("encoder_out_cache_loc", s.encoder_out_cache_loc);
  v("full_to_swa", s.full_to_swa);
  v("item_delimiters", s.item_delimiters);
  v("item_indptr", s.item_indptr);
  v("req_to_token", s.req_to_token);
  v("width", s.width);
  v("draft", s.draft);
  v("draft_step", s.draft_step);
  v("custom_mask", s.custom_mask);
  v("copies", s.copies);
  v("state_slots", s.state_slots);
  v("track_slots", s.track_slots);
  v("track_lens", s.track_lens);
  v("retrieve_next_token", s.retrieve_next_token);
  v("retrieve_next_sibling", s.retrieve_next_sibling);
  v("state_moves", s.state_moves);
  v("input_ids", s.input_ids);
  v("chains", s.chains);
}

/// The members of the file itself, behind its head.
template <class V>
void visit_fields(V& v, HistoryCase& x) {
  v("plants", x.plants);
  v("choices", x.choices);
  v("model", x.history.model);
  v("runner", x.history.runner);
  v("steps", x.steps);
}

}  // namespace shadowgraph
