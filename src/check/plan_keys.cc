#include "check/plan_keys.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <variant>
#include <vector>

#include "core/laws.h"
#include "launch/attention_launch.h"
#include "launch/mla_parts_launch.h"
#include "launch/ragged_launch.h"
#include "launch/scheduled_launch.h"
#include "launch/tile_launch.h"
#include "launch/triton_launch.h"

namespace shadowgraph {
namespace {

template <class Fn>
void with_call(const KernelLaunch& l, Fn fn) {
  if (l.kernel == &kPagedAttention) fn(call_of<PagedAttention>(l).call);
  if (l.kernel == &kScheduledAttention) fn(call_of<ScheduledAttention>(l).call);
  if (l.kernel == &kMlaParts || l.kernel == &kMlaMerge) fn(call_of<MlaParts>(l).call);
  if (l.kernel == &kRaggedAttention) fn(call_of<RaggedAttention>(l).call);
  if (l.kernel == &kTiledAttention) fn(call_of<TiledAttention>(l).call);
  if (l.kernel == &kTritonExtend) fn(call_of<TritonExtend>(l).call);
  if (l.kernel == &kTritonDecodeStage1 || l.kernel == &kTritonDecodeStage2)
    fn(call_of<TritonDecode>(l).call);
}

std::string to_text(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

class PlanKeys {
 public:
  PlanKeys(const ModelConfig& model, std::span<const LayerIo> layers)
      : model_(model), layers_(layers), attended_(layers.size()), sinks_(layers.size()) {}

  template <class Call>
  void judge(const Call& c) {
    const size_t at = layer_of(c.q);
    if (at == layers_.size()) return;
    kind_ = layers_[at].kind;
    const AttentionParams &want = params(), &got = c.params;
    judged("plan.key");
    equal("num_qo_heads", want.num_qo_heads, got.num_qo_heads);
    equal("num_kv_heads", want.num_kv_heads, got.num_kv_heads);
    equal("head_dim_qk", want.head_dim_qk, got.head_dim_qk);
    equal("head_dim_vo", want.head_dim_vo, got.head_dim_vo);
    equal("sm_scale", want.sm_scale, got.sm_scale);
    equal("logits_soft_cap", want.logits_soft_cap, got.logits_soft_cap);
    // A list or a mask may say what the window hides.
    if (got.window_left >= 0) equal("window_left", want.window_left, got.window_left);
    attended_[at] = true;
    // One of the results that are merged has the sinks.
    if (!got.sinks.empty()) {
      sinks_[at] = true;
      if (got.sinks.data() != want.sinks.data()) fail("sinks", "the layer's own", "others");
    }
    if constexpr (requires { c.cache; }) {
      if (c.cache.k.data == nullptr) return;
      equal("k_scale", layers_[at].cache.k_scale, c.cache.k_scale);
      equal("v_scale", layers_[at].cache.v_scale, c.cache.v_scale);
    }
  }

  Status take() {
    for (size_t i = 0; i < layers_.size(); ++i) {
      kind_ = layers_[i].kind;
      if (attended_[i] && !sinks_[i] && !params().sinks.empty())
        fail("sinks", "the layer's own", "none");
    }
    return std::move(status_);
  }

 private:
  const AttentionParams& params() const { return model_.layers[static_cast<size_t>(kind_)].params; }
  /// Whose queries these are, all or some; layers_.size(): no layer's.
  size_t layer_of(const ConstTensorView& q) const {
    const auto has = [&](const LayerIo& io) {
      const ConstTensorView& all = io.q;
      if (!all.defined() || q.data < all.data) return false;
      const auto size = static_cast<int64_t>(size_of(all.dtype));
      return q.data < all.data + std::max<int64_t>(all.shape[0], 1) * all.stride[0] * size;
    };
    return static_cast<size_t>(std::ranges::find_if(layers_, has) - layers_.begin());
  }
  void equal(const char* member, double want, double got) {
    if (want != got) fail(member, to_text(want), to_text(got));
  }
  void fail(const char* member, std::string want, std::string got) {
    const std::string field = "layers[" + std::to_string(kind_) + "]." + member;
    const auto told = [&](const Finding& f) { return f.where.field == field; };
    if (std::ranges::any_of(status_.findings(), told)) return;
    status_.add(make_finding("plan.key", at(field), std::move(want), std::move(got)));
  }

  const ModelConfig& model_;
  const std::span<const LayerIo> layers_;
  std::vector<bool> attended_, sinks_;  // by layers_: some launch does, has its sinks
  int32_t kind_ = 0;
  Status status_;
};

}  // namespace

Status judge_plan_keys(const Graph& graph, const ModelConfig& model,
                       std::span<const LayerIo> layers) {
  PlanKeys keys(model, layers);
  for (const NodeParams& node : graph.nodes())
    if (const auto* launch = std::get_if<KernelLaunch>(&node))
      with_call(*launch, [&](const auto& call) { keys.judge(call); });
  return keys.take();
}

}  // namespace shadowgraph
