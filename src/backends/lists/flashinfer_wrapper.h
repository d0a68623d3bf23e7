// A wrapper of FlashInfer: what the layers that share it attend over in a step, and how that is
// planned. Read by bind, fill and forward alike. Facts: docs/metadata.md "FlashInfer". Tested by
// tests/backends/flashinfer_test.cc.
#pragma once

#include "attn/mask.h"
#include "backends/fill/csr_rows.h"
#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_plan.h"

namespace shadowgraph {

/// Which wrapper a layer uses.
int wrapper_of(const ModelConfig& model, const LayerKind& kind);

struct FlashInferWrapper {
  LayerKind kind;            // of its layers, which agree in what metadata depends on
  bool used = false;         // some layer has it
  bool window_pool = false;  // its slots are those of the window's pool
  bool ragged = false;       // its list ends with the prefix: own tokens are a call of their own
  bool items = false;        // queries see the items that they are of
  bool masked = false;       // a mask takes the place of causal and window

  static FlashInferWrapper of(const Limits& limits, int wrapper);

  /// A request's tokens in the list, or its encoder's. A draft's branch ends with its own.
  KvRange keys(const RequestRow& row) const;
  /// The most keys of a list, and of all lists together.
  int64_t max_keys(const Limits& limits) const;
  int64_t all_keys(const Limits& limits) const;
  PlanShape shape(const Limits& limits, FlashInfer::Part part) const;
};

}  // namespace shadowgraph
