// A wrapper of FlashInfer: what the layers that share it attend over in a step, and how that is
// planned. Read by bind, fill and forward alike. Source: spec
// backends-flashinfer-triton-linear-sparse 2.1 to 2.4. Tested by
// tests/backends/flashinfer_test.cc.
#pragma once

#include <algorithm>

#include "attn/mask.h"
#include "backends/flashinfer.h"
#include "backends/flashinfer_plan.h"
#include "backends/rows.h"

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

/// One query a row: lists of a draft decode are those of its branches.
inline bool has_single_queries(const Limits& limits) {
  return is_decode_or_idle(limits.mode) || limits.mode == ForwardMode::kDraftDecode;
}
inline int32_t branches_of(const Limits& limits) {
  return limits.mode == ForwardMode::kDraftDecode ? std::max(1, limits.model.topk) : 1;
}

/// fn(i, row) for every request of the bucket. What it has no tokens for, padding does not ask for.
template <class Fn>
void for_each_row(const ForwardBatch& batch, const Limits& limits, Fn fn) {
  int32_t tokens = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    RequestRow row = row_of(batch, limits, i);
    row.extent.q_len = std::min(row.extent.q_len, limits.tokens - tokens);
    tokens += row.extent.q_len * branches_of(limits);
    fn(i, row);
  }
}

}  // namespace shadowgraph
