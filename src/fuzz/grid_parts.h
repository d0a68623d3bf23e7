// The parts of the step grids: batches that share a model, pools and graphs.
#pragma once

#include <vector>

#include "runtime/small_steps.h"
#include "shadowgraph/backend.h"

namespace shadowgraph {

struct GridPart {
  ModelConfig model;
  int32_t width = 0;   // of req_to_token
  int32_t bucket = 0;  // rows of the one graph; 0: eagerly only
  int64_t max_tokens = 0;
  std::vector<StepShape> shapes;
};

}  // namespace shadowgraph
