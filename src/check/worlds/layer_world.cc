#include "check/worlds/layer_world.h"

#include <variant>

#include "check/worlds/dense_world.h"
#include "check/worlds/recurrent_world.h"
#include "check/worlds/sparse_world.h"
#include "check/worlds/v4_world.h"

namespace shadowgraph {
namespace {

/// One overload for every alternative of LayerMath.
struct MakeWorld {
  const LayerPlace& place;

  std::unique_ptr<LayerWorld> operator()(const DenseAttention& /*layer*/) const {
    return std::make_unique<DenseWorld>(place);
  }
  std::unique_ptr<LayerWorld> operator()(const RecurrentLayer& layer) const {
    return std::make_unique<RecurrentWorld>(place, layer);
  }
  std::unique_ptr<LayerWorld> operator()(const SparseLayer& layer) const {
    return std::make_unique<SparseWorld>(place, layer);
  }
  std::unique_ptr<LayerWorld> operator()(const V4Layer& layer) const {
    return std::make_unique<V4World>(place, layer);
  }
};

}  // namespace

std::unique_ptr<LayerWorld> make_layer_world(const LayerPlace& place) {
  return std::visit(MakeWorld{place}, place.model.layers[place.kind].math);
}

}  // namespace shadowgraph
