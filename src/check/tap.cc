#include "check/tap.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

namespace shadowgraph {
namespace {

std::vector<TappedLaunch> launches_of(const Graph& graph) {
  std::vector<TappedLaunch> all;
  for (const NodeParams& node : graph.nodes()) {
    if (const auto* launch = std::get_if<KernelLaunch>(&node)) all.push_back({*launch});
  }
  return all;
}

/// What stands apart begins where it stands, and is waited for at the end.
void launch_all(Stream& stream, const std::vector<TappedLaunch>& all,
                std::vector<std::unique_ptr<Stream>>* sides) {
  for (const TappedLaunch& one : all) {
    if (!one.apart) {
      stream.launch(one.launch);
      continue;
    }
    Stream& side = *sides->emplace_back(std::make_unique<Stream>(stream.api()));
    side.wait_for(stream);
    side.launch(one.launch);
  }
  for (const auto& side : *sides) stream.wait_for(*side);
}

}  // namespace

Meta with_layers(Meta meta, const ModelConfig& model) {
  std::vector<LayerKind> layers = model.layers;
  // What stands in for layers of another backend is one of this backend's, as it was.
  const std::vector<LayerKind>& bound = meta.limits.model.layers;
  for (size_t i = 0; i < std::min(bound.size(), layers.size()); ++i) {
    const auto alike = [&](const LayerKind& k) { return k.math.index() == bound[i].math.index(); };
    if (!alike(layers[i])) layers[i] = *std::ranges::find_if(model.layers, alike);
  }
  meta.limits.model.layers = std::move(layers);
  for (Meta& child : meta.children) child = with_layers(std::move(child), model);
  return meta;
}

Status record_step(Stream& stream, const Backend& backend, const Meta& meta, const StepIo& io,
                   Tap* tap, bool capturing, Graph* graph) {
  const auto forward = [&](Stream& s) { backend.forward(s, meta, io); };
  if (tap == nullptr) return Graph::record(stream, forward, graph);
  Graph clean;
  Status status = Graph::record(stream, forward, &clean);
  if (!status.ok()) return status;
  std::vector<TappedLaunch> all = launches_of(clean);
  tap->launches(all, meta, capturing);
  std::vector<std::unique_ptr<Stream>> sides;
  return Graph::record(
      stream, [&](Stream& s) { launch_all(s, all, &sides); }, graph);
}

}  // namespace shadowgraph
