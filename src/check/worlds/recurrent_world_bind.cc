// The buffers of a recurrent layer's world.
#include <algorithm>
#include <cmath>

#include "check/worlds/recurrent_world.h"

namespace shadowgraph {
namespace {

using Shape = std::vector<int64_t>;

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

RecurrentWorld::RecurrentWorld(const LayerPlace& place, const RecurrentLayer& layer)
    : place_(place),
      layer_(layer),
      scope_(place.scope),
      rng_(place.rng_of(0)),
      copies_(place.streams.forward()),
      moves_(place.streams.pools()),
      book_(layer_, inputs_, whole_, place.options.data, place.rng_of(0).next()) {}

Status RecurrentWorld::bind() {
  Status status = bind_pools();
  if (status.ok()) status = bind_inputs();
  if (!status.ok()) return status;
  make_weights();
  // Padding's rows are whatever an older step has left.
  for (const Buffer* b : inputs_.bound()) copies_.copy(b->data, numbers(*b));
  for (int32_t slot = 0; slot < std::ssize(defined_); ++slot) retire(slot);
  place_.streams.settle();
  return status;
}

Status RecurrentWorld::bind_pools() {
  const RunnerOptions& o = place_.options;
  const int64_t heads = layer_.num_v_heads, dim_k = layer_.head_dim_k, dim_v = layer_.head_dim_v;
  const bool key_value = layer_.family == RecurrentFamily::kLightning;
  const Shape state = key_value ? Shape{heads, dim_k, dim_v} : Shape{heads, dim_v, dim_k};
  draft_steps_ = std::max(1, place_.model.num_draft_tokens);
  const int64_t rows = place_.model.num_draft_tokens > 0 ? o.draft_rows : 0;
  std::vector<BufferSpec> specs = {
      f32_vectors("states", joined({o.state_slots}, state)),
      f32_vectors("draft_states", joined({rows, draft_steps_}, state))};
  if (layer_.has_conv()) {
    const Shape window = {layer_.conv_dim(), layer_.conv_width - 1};
    specs.push_back(f32_vectors("conv_states", joined({o.state_slots}, window)));
    specs.push_back(f32_vectors("draft_conv_states", joined({rows, draft_steps_}, window)));
  }
  specs.push_back({.name = "moved", .shape = {2}, .lifetime = Lifetime::kPersistent});
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  if (!status.ok()) return status;
  pools_.states = bound[0], drafts_.states = bound[1];
  if (layer_.has_conv()) pools_.conv = bound[2], drafts_.conv = bound[3];
  list_ = bound.back();
  defined_.resize(static_cast<size_t>(o.state_slots));
  owners_.resize(defined_.size());
  whole_.states = pools_.states.view(), whole_.draft_states = drafts_.states.view();
  if (layer_.has_conv())
    whole_.conv_states = pools_.conv.view(), whole_.draft_conv_states = drafts_.conv.view();
  return status;
}

Status RecurrentWorld::bind_inputs() {
  const int64_t tokens = place_.options.max_tokens;
  const int64_t heads = layer_.num_v_heads, dim_k = layer_.head_dim_k, dim_v = layer_.head_dim_v;
  std::vector<BufferSpec> specs;
  std::vector<Buffer*> to;
  const auto add = [&](Buffer* b, BufferSpec spec) {
    specs.push_back(std::move(spec));
    to.push_back(b);
  };
  add(&out_, f32_vectors("out", {tokens, heads, dim_v}, Lifetime::kOutput));
  const bool lightning = layer_.family == RecurrentFamily::kLightning;
  if (layer_.has_conv()) {
    add(&inputs_.x, f32_vectors("x", {tokens, layer_.conv_dim()}));
    add(&weight_, f32_vectors("weight", {layer_.conv_dim(), layer_.conv_width}));
    add(&conv_bias_, f32_vectors("conv_bias", {layer_.conv_dim()}));
  } else {
    for (Buffer* b : {&inputs_.q, &inputs_.k})
      add(b, f32_vectors(b == &inputs_.q ? "q" : "k", {tokens, layer_.num_k_heads, dim_k}));
    add(&inputs_.v, f32_vectors("v", {tokens, heads, dim_v}));
  }
  if (lightning) {
    add(&log_decay_, f32_vectors("log_decay", {heads}));
  } else {
    const bool channels = layer_.family == RecurrentFamily::kKda;
    add(&inputs_.gate,
        f32_vectors("gate", channels ? Shape{tokens, heads, dim_k} : Shape{tokens, heads}));
    add(&a_log_, f32_vectors("a_log", {heads}));
    add(&dt_bias_, f32_vectors("dt_bias", channels ? Shape{heads, dim_k} : Shape{heads}));
  }
  if (layer_.family == RecurrentFamily::kMamba2) {
    add(&skip_, f32_vectors("D", {heads}));
    add(&inputs_.z, f32_vectors("z", {tokens, heads, dim_v}));
  } else if (!lightning) {
    add(&inputs_.b, f32_vectors("b", {tokens, heads}));
  }
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  for (size_t i = 0; i < bound.size(); ++i) *to[i] = std::move(bound[i]);
  return status;
}

/// Decays strictly between 0 and 1, Lightning's by its slopes.
void RecurrentWorld::make_weights() {
  const auto view = [](const Buffer& b) {
    return b.data == nullptr ? ConstTensorView{} : ConstTensorView(b.view());
  };
  for (const Buffer* b : {&weight_, &conv_bias_, &a_log_, &dt_bias_, &skip_}) {
    if (b->data == nullptr) continue;
    std::vector<float> values = numbers(*b);
    // Mamba2's is no logarithm, but the negative number itself.
    if (b == &a_log_ && layer_.family == RecurrentFamily::kMamba2)
      for (float& v : values) v = -0.125f - std::fabs(v);
    copies_.copy(b->data, values);
  }
  if (log_decay_.data != nullptr) {
    std::vector<float> slopes(static_cast<size_t>(layer_.num_v_heads));
    (void)lightning_slopes(0, 1, slopes);
    for (float& s : slopes) s = -s;
    copies_.copy(log_decay_.data, slopes);
  }
  whole_.x = view(inputs_.x), whole_.weight = view(weight_), whole_.conv_bias = view(conv_bias_);
  whole_.gate = view(inputs_.gate), whole_.a_log = view(a_log_), whole_.dt_bias = view(dt_bias_);
  whole_.b = view(inputs_.b), whole_.skip = view(skip_), whole_.z = view(inputs_.z);
  whole_.log_decay = view(log_decay_);
}

}  // namespace shadowgraph
