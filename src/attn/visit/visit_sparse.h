// The arguments of the calls over chosen keys, latents and their indexer, as visit_attention.h has
// those of attention.
#pragma once

#include "attn/visit/visit_attention.h"
#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

template <class V, class Byte>
void visit_args(V& v, BasicLatentPool<Byte>& p) {
  v("data", p.data);
  v("layout", p.layout);
  v("page_size", p.page_size);
}

/// Its lists; the pool is visited beside the call's other tensors.
template <class V>
void visit_args(V& v, ChosenKeys& k) {
  v("indices", k.indices);
  v("lengths", k.lengths);
  v("indptr", k.indptr);
  v("width", k.width);
}

template <class V>
void visit_args(V& v, SparseAttention& c) {
  v("q", c.q);
  v("keys.pool", c.keys.pool);
  v("extra.pool", c.extra.pool);
  v("out", c.out);
  v("lse", c.lse.tensor);
  v("keys", c.keys);
  v("extra", c.extra);
  v("sinks", c.sinks);
  v("head_dim_v", c.head_dim_v);
  v("sm_scale", c.sm_scale);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, PackLatents& c) {
  v("latents", c.latents);
  v("pool", c.pool);
  v("out_cache_loc", c.out_cache_loc);
  v("options", c.options);
  v("first_slot", c.first_slot);
}

template <class V>
void visit_args(V& v, ActQuant& c) {
  v("x", c.x);
  v("ue8m0", c.ue8m0);
  v("y", c.y);
  v("scale", c.scale);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, StoreIndexKeys& c) {
  v("k", c.k);
  v("k_scale", c.k_scale);
  v("out_cache_loc", c.out_cache_loc);
  v("pages", c.pages);
  v("options", c.options);
  v("first_slot", c.first_slot);
}

template <class V>
void visit_args(V& v, GatherIndexKeys& c) {
  v("pages", c.pages);
  v("page_table", c.page_table);
  v("cu_seqlens_k", c.cu_seqlens_k);
  v("k", c.k);
  v("k_scale", c.k_scale);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, IndexerLogits& c) {
  v("q", c.q);
  v("weights", c.weights);
  v("pages", c.pages);
  v("page_table", c.page_table);
  v("k", c.k);
  v("k_scale", c.k_scale);
  v("rows", c.rows);
  v("ks", c.ks);
  v("ke", c.ke);
  v("logits", c.logits);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, SelectIndices& c) {
  v("logits", c.logits);
  v("ks", c.ks);
  v("ke", c.ke);
  v("indices", c.indices);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, Compress& c) {
  v("kv_score", c.kv_score);
  v("ape", c.ape);
  v("cu_seqlens_q", c.cu_seqlens_q);
  v("seq_lens", c.seq_lens);
  v("indices", c.indices);
  v("extra", c.extra);
  v("state", c.state);
  v("out", c.out);
  v("shape.ratio", c.shape.ratio);
  v("options", c.options);
  v("first_page", c.first_page);
}

template <class V>
void visit_args(V& v, PoolNormRope& c) {
  v("kv_score", c.kv_score);
  v("ape", c.ape);
  v("weight", c.weight);
  v("freqs", c.freqs);
  v("out", c.out);
  v("shape.ratio", c.shape.ratio);
  v("eps", c.eps);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, NormRope& c) {
  v("x", c.x);
  v("weight", c.weight);
  v("freqs", c.freqs);
  v("out", c.out);
  v("eps", c.eps);
  v("options", c.options);
}

}  // namespace shadowgraph
