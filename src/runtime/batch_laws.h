// Laws of a step's input that its batch alone shows. Histories (check_pool.cc, check_step.cc) and
// recorded steps (check/traces/trace_input.cc) ask them alike. Tested by
// tests/runtime/check_pool_test.cc and tests/check/trace_input_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// pool.slot: the first columns of row `row` of req_to_token hold allocated slots, none of page 0.
/// pool.page: the first `paged` of them lie at their column's offset in a page, behind their
/// neighbour. is_allocated: whether a slot that is not of page 0 is one.
void check_columns(std::span<const int32_t> columns, int64_t row, int64_t page_size, int64_t paged,
                   const std::function<bool(int64_t)>& is_allocated, Status* status);

/// The position of new token `token`: the prefix, plus its place in the chain, or its depth in the
/// tree. one: a batch of one request, with a mask if it verifies a tree.
int64_t position_of(const ForwardBatch& one, int64_t token);

}  // namespace shadowgraph
