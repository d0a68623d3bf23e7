// Which of a layer's tensors have a row for each token of a step.
#include <initializer_list>

#include "attn/tensor_rows.h"
#include "shadowgraph/layers/layer_kind.h"

namespace shadowgraph {
namespace {

template <class Tensors>
Tensors part_of(Tensors t, int64_t first, int64_t count,
                std::initializer_list<ConstTensorView Tensors::*> views) {
  for (const auto view : views)
    if ((t.*view).defined()) t.*view = rows_of(t.*view, first, count);
  return t;
}

}  // namespace

RecurrentTensors RecurrentTensors::rows(int64_t first, int64_t count) const {
  using T = RecurrentTensors;
  return part_of(*this, first, count, {&T::x, &T::gate, &T::b, &T::z});
}

SparseTensors SparseTensors::rows(int64_t first, int64_t count) const {
  using T = SparseTensors;
  return part_of(*this, first, count,
                 {&T::index_q, &T::index_weights, &T::index_k, &T::index_k_scale});
}

V4Tensors V4Tensors::rows(int64_t first, int64_t count) const {
  using T = V4Tensors;
  return part_of(*this, first, count, {&T::latents, &T::kv_score, &T::index_scores});
}

}  // namespace shadowgraph
