#include "launch/recurrent_layer_launch.h"

#include "launch/recurrent_launch.h"
#include "launch/state_launch.h"

namespace shadowgraph {
namespace {

/// Heads that lie side by side in the channels of conv_out, from this one on.
ConstTensorView heads_of(const TensorView& conv_out, int64_t first, int64_t heads, int64_t dim) {
  const int64_t tokens = conv_out.shape[0], stride = conv_out.stride[0];
  return ConstTensorView(conv_out.at(0, first), conv_out.dtype, {tokens, heads, dim},
                         {stride, dim, 1});
}

}  // namespace

CausalConv1d conv_of(const RecurrentCall& call) {
  CausalConv1d c;
  c.x = call.tensors.x, c.weight = call.tensors.weight, c.bias = call.tensors.conv_bias;
  c.activation = CausalConv1d::Activation::kSilu;
  c.rows = call.rows;
  // An engine convolves in place: padding keeps its input. Here it gets zeros, and nobody minds
  c.rows.pad = PadRow::kZeroOut;
  c.states = call.tensors.conv_states;
  if (call.verify) c.draft.states = call.draft_conv_states;
  c.draft.parents = call.parents;
  c.out = call.conv_out;
  return c;
}

DecayGate gate_of(const RecurrentCall& call) {
  DecayGate g;
  g.kind = call.layer.family == RecurrentFamily::kMamba2 ? DecayGate::Kind::kStep
                                                         : DecayGate::Kind::kSoftplus;
  g.x = call.tensors.gate, g.a_log = call.tensors.a_log, g.dt_bias = call.tensors.dt_bias;
  if (g.kind != DecayGate::Kind::kStep) g.b = call.tensors.b;
  g.log_decay = call.log_decay, g.beta = call.beta;
  return g;
}

LinearAttention linear_of(const RecurrentCall& call) {
  const RecurrentLayer& l = call.layer;
  const int64_t k_dim = int64_t{l.num_k_heads} * l.head_dim_k;
  const int64_t v_dim = int64_t{l.num_v_heads} * l.head_dim_v;
  const auto keys = [&](int64_t first) {
    return heads_of(call.conv_out, first, l.num_k_heads, l.head_dim_k);
  };
  LinearAttention c;
  c.log_decay = call.log_decay, c.beta = call.beta;
  switch (l.family) {
    case RecurrentFamily::kMamba2:
      c.v = heads_of(call.conv_out, 0, l.num_v_heads, l.head_dim_v);
      c.k = keys(v_dim), c.q = keys(v_dim + k_dim);
      c.skip = call.tensors.skip, c.z = call.tensors.z;
      break;
    case RecurrentFamily::kGdn:
    case RecurrentFamily::kKda:
      c.rule = LinearAttention::Rule::kDelta;
      c.q = keys(0), c.k = keys(k_dim);
      c.v = heads_of(call.conv_out, 2 * k_dim, l.num_v_heads, l.head_dim_v);
      c.l2norm = true;
      break;
    case RecurrentFamily::kLightning:
      c.q = call.q, c.k = call.k, c.v = call.v;
      c.log_decay = call.tensors.log_decay;
      c.order = LinearAttention::StateOrder::kKeyValue;
      break;
  }
  c.scale = l.scale;
  c.rows = call.rows;
  if (l.reads_fresh_slots()) c.rows.has_initial_state = {};
  c.states = call.tensors.states;
  c.store = !call.verify;
  if (call.verify) c.draft.states = call.draft_states;
  c.draft.parents = call.parents;
  c.draft.of_padding = call.keeps_padding;
  c.chunk_states = call.chunk_states;
  c.chunk_size = l.chunk_size, c.chunk_grid = call.chunk_grid;
  c.out = call.out;
  return c;
}

void launch_conv(Stream& stream, const RecurrentCall& call) {
  if (call.layer.has_conv()) stream.launch(conv_launch(conv_of(call), call.requests));
}

void launch_gate_of(Stream& stream, const RecurrentCall& call) {
  if (call.log_decay.defined()) stream.launch(gate_launch(gate_of(call)));
}

void launch_tracks(Stream& stream, const RecurrentCall& call, const StateTracks& tracks) {
  const RecurrentTensors& t = call.tensors;
  if (call.layer.has_conv())
    stream.launch(
        track_windows_launch({t.x, t.conv_states, tracks.windows, tracks.slots}, call.requests));
  stream.launch(
      copy_states_launch({t.states, t.states, tracks.final_from, tracks.slots}, call.requests));
  stream.launch(copy_states_launch({call.chunk_states, t.states, tracks.chunk_from, tracks.slots},
                                   call.requests));
}

}  // namespace shadowgraph
