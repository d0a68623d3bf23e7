// The memory that a step's launches name, held against what was declared for it: however right the
// bytes are, another layer's pool or another graph's lengths are a fault, and so are two ideas of
// one intermediate result. No backend is known here. Tested by tests/check/launch_operands_test.cc.
#pragma once

#include "shadowgraph/device/graph.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// launch.operands unless each launch of the recording names memory of one layer of the step, of
/// the metadata that serves it, and of the pools' tables alone; launch.scratch unless launches
/// agree on each scratch buffer. meta: as it was bound; model: the layers'. Kernels that do not
/// list their operands are not judged.
Status judge_launches(const Graph& graph, const Meta& meta, const ModelConfig& model,
                      const StepIo& step);

}  // namespace shadowgraph
