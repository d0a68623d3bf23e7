// Laws of a step's input that its batch alone shows. Histories (check_pool.cc, check_step.cc) and
// recorded steps (check/traces/trace_input.cc) ask them alike. Tested by
// tests/runtime/check_pool_test.cc and tests/check/trace_input_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/engine/engine.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Columns of a row of req_to_token that lead to keys.
struct LiveColumns {
  std::span<const int32_t> slots;  // from the row's first column on
  int64_t row = 0;
  int64_t first = 0;  // live from here on
  int64_t paged = 0;  // in whole pages up to here
};

/// pool.slot: live columns hold allocated slots, none of the engine's reserved page. pool.page:
/// those that are paged lie at their column's offset in a page, behind their neighbour.
/// is_allocated: whether a slot of another page is one.
void check_columns(const LiveColumns& columns, int64_t page_size, const Engine& engine,
                   const std::function<bool(int64_t)>& is_allocated, Status* status);

/// The position of new token `token`: the prefix, plus its place in the chain, or its depth in the
/// tree. one: a batch of one request, with a mask if it verifies a tree.
int64_t position_of(const ForwardBatch& one, int64_t token);

}  // namespace shadowgraph
