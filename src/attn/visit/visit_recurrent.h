// The arguments of the recurrent calls, as visit_attention.h has those of attention.
#pragma once

#include "attn/visit/visit_attention.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

template <class V>
void visit_args(V& v, StateRows& r) {
  v("cu_seqlens_q", r.cu_seqlens_q);
  v("state_indices", r.state_indices);
  v("has_initial_state", r.has_initial_state);
  v("pad", r.pad);
}

/// Its lists; the states are visited beside the call's other tensors.
template <class V>
void visit_args(V& v, DraftSteps& d) {
  v("indices", d.indices);
  v("parents", d.parents);
  v("of_padding", d.of_padding);
}

template <class V>
void visit_args(V& v, LinearAttention& c) {
  v("q", c.q);
  v("k", c.k);
  v("v", c.v);
  v("log_decay", c.log_decay);
  v("beta", c.beta);
  v("skip", c.skip);
  v("z", c.z);
  v("states", c.states);
  v("draft.states", c.draft.states);
  v("chunk_states", c.chunk_states);
  v("out", c.out);
  v("rows", c.rows);
  v("draft", c.draft);
  v("rule", c.rule);
  v("form", c.form);
  v("order", c.order);
  v("scale", c.scale);
  v("l2norm", c.l2norm);
  v("store", c.store);
  v("chunk_size", c.chunk_size);
  v("chunk_grid", c.chunk_grid);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, CausalConv1d& c) {
  v("x", c.x);
  v("weight", c.weight);
  v("bias", c.bias);
  v("states", c.states);
  v("draft.states", c.draft.states);
  v("out", c.out);
  v("rows", c.rows);
  v("draft", c.draft);
  v("activation", c.activation);
  v("options", c.options);
}

template <class V>
void visit_args(V& v, DecayGate& g) {
  v("x", g.x);
  v("a_log", g.a_log);
  v("dt_bias", g.dt_bias);
  v("b", g.b);
  v("log_decay", g.log_decay);
  v("beta", g.beta);
  v("kind", g.kind);
  v("lower_bound", g.lower_bound);
}

}  // namespace shadowgraph
