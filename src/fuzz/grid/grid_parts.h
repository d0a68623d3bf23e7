// The parts of the step grids: batches that share a model, pools and graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/small_steps.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// So many shapes: each is made when its step runs.
struct StepShapes {
  uint64_t count = 0;
  std::function<StepShape(uint64_t number)> make;
};

struct GridPart {
  ModelConfig model;
  int32_t width = 0;   // of req_to_token
  int32_t bucket = 0;  // rows of the one graph; 0: eagerly only
  int64_t max_tokens = 0;
  std::vector<StepShapes> shapes;  // one after the other
  // Each shape in every order of the pool's first so many pages, as metadata alone; 0: as it is
  int32_t permuted_pages = 0;

  uint64_t orders() const {
    uint64_t n = 1;
    for (int32_t i = 2; i <= permuted_pages; ++i) n *= static_cast<uint64_t>(i);
    return n;
  }
  uint64_t num_shapes() const {
    uint64_t n = 0;
    for (const StepShapes& some : shapes) n += some.count;
    return n;
  }
  /// Requires number < num_shapes().
  StepShape shape(uint64_t number) const {
    size_t i = 0;
    for (; number >= shapes[i].count; ++i) number -= shapes[i].count;
    return shapes[i].make(number);
  }
  /// Steps: shape by shape, each in all orders.
  uint64_t size() const { return num_shapes() * orders(); }
};

}  // namespace shadowgraph
