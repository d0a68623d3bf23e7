// Judges the metadata of one step: a batch, and the arrays that your engine made of it, by role. It
// is the judge of recorded steps (docs/traces.md), for arrays that are in memory. In short:
//
//   Status status = testing::judge(batch, std::vector<testing::RoleValue>{
//       {.role = "kv_lens", .values = ConstTensorView(lens, DType::kI32, {4})},
//       {.role = "page_table", .values = ConstTensorView(table, DType::kI32, {4, 8})},
//       {.role = "max_seqlen_k", .number = 128}}, {.page_size = 16});
//
// Link shadowgraph::testing. Tested by tests/check/judge_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/engine/engine.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph::testing {

/// An array or a number of the host, and what it tells about the step: its values, whatever
/// integers hold them. Rows behind the batch's are padding. The kernel runs as many rows as the
/// first of cu_seqlens_q, q_lens, kv_lens, kv_indptr, cu_seqlens_k has: an array with fewer is a
/// finding (trace.shape), one with more is the buffer of a larger batch. Roles:
///
///   kv_lens, q_lens             [rows] keys of a row, the step's own counted; new tokens
///   cu_seqlens_q, cu_seqlens_k  [rows + 1] offsets of queries and of keys, from 0
///   page_table                  [rows, columns] by `unit`
///   kv_indptr, kv_indices       lists: [rows + 1] offsets, and entries by `unit`
///   last_page_len               [rows] tokens of a row's last page; with lists of pages
///   slots                       [tokens] where each new token is stored
///   custom_mask                 row by row [q_len, kv_len], without windows: 1 seen, 0 hidden
///   max_seqlen_q, max_seqlen_k  numbers: the longest query and the most keys, or more
///
/// Other names of `shadowgraph list fields laws` are roles, too ("positions", "swa_page_table").
/// Several values may have one role, such as the host's copy.
struct RoleValue {
  std::string_view role;
  ConstTensorView values = {};         // int32, int64, uint8 or bool; any strides
  std::optional<int64_t> number = {};  // in place of values, for a role that is a number
  int32_t unit = 0;                    // tokens of a column or entry: 1, or a page's; 0: a page's
  std::string_view name = {};          // its name in findings; empty: the role
};

/// From least to most.
struct LengthRange {
  int32_t least = 0, most = 0;
};

/// Facts about the step that the batch does not hold.
struct JudgeOptions {
  int32_t page_size = 1;               // tokens of a page, a power of two
  int32_t pool_pages = 0;              // ids of pages are below it; 0: not known
  int32_t max_context_len = 0;         // tokens of a request, drafts aside; 0: not known
  int32_t window_left = -1;            // of layers with a window: keys before the query; -1: none
  LengthRange pad_kv_lens = {0, 1};    // kv_lens of padding
  const Engine* engine = &kAnyEngine;  // where padding leads and is stored; which page is nobody's
};

/// Judges the batch, also alone (validate(batch), slots that two tokens have, stores that do not
/// lead to the keys; pool.*, step.*, slot.*), then each value. All findings, of each law and field
/// the first and how many more: with row, column, value and limit. A batch that contradicts itself
/// is judged alone. A value that cannot be judged is a finding: test.options, input.dtype,
/// input.null, left_out.*, skip.*. Reads every live element; keeps nothing.
Status judge(const ForwardBatch& batch, std::span<const RoleValue> values,
             const JudgeOptions& options = {});

}  // namespace shadowgraph::testing
