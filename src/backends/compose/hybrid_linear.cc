#include "backends/compose/hybrid_linear.h"

#include <algorithm>
#include <utility>

#include "attn/tree_mask.h"
#include "backends/compose/children.h"
#include "backends/fill/rows.h"
#include "backends/paged/paged_backend.h"

namespace shadowgraph {
namespace {

/// What one child is bound for: its own layers, and in the place of each of the other's one of
/// them, so that LayerIo::kind means the same to all.
Limits limits_of(const Limits& limits, bool dense) {
  Limits own = limits;
  const auto is_own = [&](const LayerKind& kind) { return is_dense_attention(kind) == dense; };
  const auto first = std::ranges::find_if(limits.model.layers, is_own);
  if (first == limits.model.layers.end()) return own;
  for (LayerKind& kind : own.model.layers)
    if (!is_own(kind)) kind = *first;
  if (dense) own.model.track_states = false;
  if (!dense) own.model.in_graph_tables = own.model.ragged_prefill = false;
  return own;
}

bool has_layers(const ModelConfig& model, bool dense) {
  return std::ranges::any_of(
      model.layers, [&](const LayerKind& kind) { return is_dense_attention(kind) == dense; });
}

}  // namespace

HybridLinear::HybridLinear(const Backend& full, const Backend& linear)
    : full_(full), linear_(linear) {
  const BackendInfo &f = full.info(), &l = linear.info();
  name_ = std::string(f.name) + "_" + std::string(l.name);
  for (const ForwardMode mode : l.modes)
    if (contains(f.modes, mode)) modes_.push_back(mode);
  for (const ForwardMode mode : f.batch_splits)
    if (contains(l.modes, mode)) splits_.push_back(mode);
  info_ = {.name = name_,
           .about = "layers of full attention beside recurrent ones",
           .modes = modes_,
           .page_sizes = f.page_sizes,
           .tree = f.tree && l.tree,
           .window_with_encoder = f.window_with_encoder,
           .in_graph_tables = f.in_graph_tables,
           .ragged_prefill = f.ragged_prefill,
           .batch_splits = splits_,
           .fixed_splits = f.fixed_splits,
           .plan_keys = f.plan_keys,
           .sinks = f.sinks,
           .lse_sink = f.lse_sink,
           .ragged_graphs = f.ragged_graphs,
           .engine = f.engine == l.engine ? f.engine : &kSglang,
           .recurrent = l.recurrent,
           .track_states = l.track_states};
}

Status HybridLinear::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(info_, limits);
  if (!has_layers(limits.model, true)) refuse(&status, "layers", "some of full attention", 0);
  if (!has_layers(limits.model, false)) refuse(&status, "layers", "some recurrent ones", 0);
  if (!status.ok()) return status;
  ChildBinder binder(*this, arena, limits);
  binder.bind(full_, "full", limits_of(limits, true));
  binder.bind(linear_, "linear", limits_of(limits, false));
  return binder.finish(meta);
}

Status HybridLinear::fill(const ForwardBatch& batch, Meta& meta) const {
  return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
    return b.fill(of, to);
  });
}

Status HybridLinear::for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const {
  Status status = fits(batch, meta.limits);
  // What the other could refuse, before the first is filled.
  if (status.ok() && is_verify_tree(meta.limits)) status = check_trees(batch);
  if (status.ok()) status = fn(linear_, batch, meta.children[1]);
  return status.ok() ? fn(full_, batch, meta.children[0]) : status;
}

void HybridLinear::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  std::vector<LayerIo> full, linear;
  for (const LayerIo& io : step.layers) {
    const LayerKind& kind = meta.limits.model.layers[static_cast<size_t>(io.kind)];
    (is_dense_attention(kind) ? full : linear).push_back(io);
  }
  StepIo part = step;
  part.layers = full;
  full_.forward(stream, meta.children[0], part);
  part.layers = linear;
  linear_.forward(stream, meta.children[1], part);
}

std::vector<int32_t> HybridLinear::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                                const LayerKind& kind) const {
  return full_.merged_parts(batch, limits_of(limits, true), kind);
}

}  // namespace shadowgraph
