#include "check/worlds/recurrent_reference.h"

#include <cassert>

#include "attn/tensor_rows.h"

namespace shadowgraph {
namespace {

/// A request's part of a layer, in order: windows, decays, states.
class RecurrentAlone {
 public:
  RecurrentAlone(const RecurrentLayer& layer, const LayerInputs& inputs,
                 const RequestAlone& request, HostStates* pools, HostStates* drafts)
      : l_(layer), in_(inputs), r_(request), pools_(pools), drafts_(drafts) {
    offsets_[1] = static_cast<int32_t>(r_.tokens);
    initial_[0] = r_.has_prefix;
  }

  std::vector<float> run() {
    LinearAttention c;
    if (l_.has_conv()) {
      convolve();
      set_heads(&c);
    } else {
      c.q = part(in_.q), c.k = part(in_.k), c.v = part(in_.v);
    }
    set_decay(&c);
    std::vector<float> out(static_cast<size_t>(r_.tokens * l_.num_v_heads * l_.head_dim_v));
    c.out = TensorView(out.data(), DType::kF32, {r_.tokens, l_.num_v_heads, l_.head_dim_v});
    c.scale = l_.scale;
    c.rows = rows();
    const bool key_value = l_.family == RecurrentFamily::kLightning;
    const int64_t rows = key_value ? l_.head_dim_k : l_.head_dim_v;
    const int64_t columns = key_value ? l_.head_dim_v : l_.head_dim_k;
    c.order =
        key_value ? LinearAttention::StateOrder::kKeyValue : LinearAttention::StateOrder::kValueKey;
    const int64_t heads = l_.num_v_heads;
    const int64_t slots = std::ssize(pools_->states) / (heads * rows * columns);
    c.states = TensorView(pools_->states.data(), DType::kF32, {slots, heads, rows, columns});
    c.store = !r_.verify;
    if (r_.verify) {
      c.draft = draft();
      const int64_t places = std::ssize(drafts_->states) / (r_.tokens * heads * rows * columns);
      c.draft.states = TensorView(drafts_->states.data(), DType::kF32,
                                  {places, r_.tokens, heads, rows, columns});
    }
    [[maybe_unused]] const Status status = linear_attention(c);
    assert(status.ok());
    return out;
  }

 private:
  ConstTensorView part(const ConstTensorView& t) const { return rows_of(t, r_.first, r_.tokens); }

  StateRows rows() const { return {offsets_, {&r_.slot, 1}, initial_, PadRow::kSkip}; }

  DraftSteps draft() const {
    DraftSteps d;
    d.indices = {&r_.draft_row, 1};
    d.parents = r_.parents;
    return d;
  }

  void convolve() {
    const int64_t dim = l_.conv_dim(), history = l_.conv_width - 1;
    CausalConv1d c;
    c.x = part(in_.tensors.x);
    c.weight = in_.tensors.weight, c.bias = in_.tensors.conv_bias;
    c.activation = CausalConv1d::Activation::kSilu;
    c.rows = rows();
    const int64_t slots = std::ssize(pools_->conv) / (dim * history);
    c.states = TensorView(pools_->conv.data(), DType::kF32, {slots, dim, history});
    if (r_.verify) {
      c.draft = draft();
      const int64_t places = std::ssize(drafts_->conv) / (r_.tokens * dim * history);
      c.draft.states =
          TensorView(drafts_->conv.data(), DType::kF32, {places, r_.tokens, dim, history});
    }
    mixed_.resize(static_cast<size_t>(r_.tokens * dim));
    c.out = TensorView(mixed_.data(), DType::kF32, {r_.tokens, dim});
    [[maybe_unused]] const Status status = causal_conv1d(c);
    assert(status.ok());
  }

  /// Channels [from, from + heads * dim) of what the convolution gives.
  ConstTensorView channels(int64_t from, int64_t heads, int64_t dim) const {
    return ConstTensorView(mixed_.data() + from, DType::kF32, {r_.tokens, heads, dim},
                           {l_.conv_dim(), dim, 1});
  }

  void set_heads(LinearAttention* c) const {
    const int64_t k_dim = int64_t{l_.num_k_heads} * l_.head_dim_k;
    const bool mamba = l_.family == RecurrentFamily::kMamba2;
    const int64_t v_dim = int64_t{l_.num_v_heads} * l_.head_dim_v;
    // x | B | C, or q | k | v
    c->v = channels(mamba ? 0 : 2 * k_dim, l_.num_v_heads, l_.head_dim_v);
    c->k = channels(mamba ? v_dim : k_dim, l_.num_k_heads, l_.head_dim_k);
    c->q = channels(mamba ? v_dim + k_dim : 0, l_.num_k_heads, l_.head_dim_k);
  }

  void set_decay(LinearAttention* c) {
    const RecurrentTensors& t = in_.tensors;
    if (l_.family == RecurrentFamily::kLightning) {
      c->log_decay = t.log_decay;
      return;
    }
    const bool mamba = l_.family == RecurrentFamily::kMamba2;
    const bool channels = l_.family == RecurrentFamily::kKda;
    decay_.resize(static_cast<size_t>(r_.tokens * l_.num_v_heads * (channels ? l_.head_dim_k : 1)));
    beta_.resize(static_cast<size_t>(r_.tokens * l_.num_v_heads));
    DecayGate g;
    g.kind = mamba ? DecayGate::Kind::kStep : DecayGate::Kind::kSoftplus;
    g.x = part(t.gate), g.a_log = t.a_log, g.dt_bias = t.dt_bias;
    if (!mamba) g.b = part(t.b);
    g.log_decay = channels ? TensorView(decay_.data(), DType::kF32,
                                        {r_.tokens, l_.num_v_heads, l_.head_dim_k})
                           : TensorView(decay_.data(), DType::kF32, {r_.tokens, l_.num_v_heads});
    g.beta = TensorView(beta_.data(), DType::kF32, {r_.tokens, l_.num_v_heads});
    [[maybe_unused]] const Status status = decay_gate(g);
    assert(status.ok());
    c->log_decay = g.log_decay, c->beta = g.beta;
    if (mamba) {
      c->skip = t.skip, c->z = part(t.z);
    } else {
      c->rule = LinearAttention::Rule::kDelta, c->l2norm = true;
    }
  }

  const RecurrentLayer& l_;
  const LayerInputs& in_;
  const RequestAlone& r_;
  HostStates* pools_;
  HostStates* drafts_;
  int32_t offsets_[2] = {0, 0};
  uint8_t initial_[1] = {0};
  std::vector<float> mixed_, decay_, beta_;
};

}  // namespace

std::vector<float> run_alone(const RecurrentLayer& layer, const LayerInputs& inputs,
                             const RequestAlone& request, HostStates* pools, HostStates* drafts) {
  return RecurrentAlone(layer, inputs, request, pools, drafts).run();
}

}  // namespace shadowgraph
