// Calls over chosen keys, generated: lists of every length and form, of pools of every layout, one
// or two of them. And the ladder for one: on exact data the known result; elsewhere the derived
// bound; the same latents in other slots, pages and forms, with -1 between them, tokens in another
// order or alone, other gaps, threads and instruction set: the same bits; all that no token names
// is poison, and nothing but the tokens' own rows is written. Tested by
// tests/fuzz/sparse_case_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attn/case.h"
#include "core/choices.h"
#include "fuzz/laws.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

struct SparseCase {
  CaseData data = CaseData::kUniform;
  uint64_t seed = 0;
  int32_t heads = 1, head_dim = 16, head_dim_v = 16;
  LatentLayout layout = LatentLayout::kRows, extra_layout = LatentLayout::kRows;
  DType q_dtype = DType::kF32, rows_dtype = DType::kF32, out_dtype = DType::kF32;
  bool has_extra = false, sinks = false;
  LseSink lse_sink = LseSink::kExcluded;
  // How many keys each token sees: of the first list, of the second
  std::vector<int32_t> seen, seen_extra;

  int64_t tokens() const { return static_cast<int64_t>(seen.size()); }
  /// One line a person can read.
  std::string to_string() const;
};

SparseCase generate_sparse(Choices& choices);

/// Changes a call behind its case: a planted slip.
using SparseSlip = std::function<void(SparseAttention&)>;

Status check_sparse_case(const SparseCase& x, const RunOptions& options,
                         const SparseSlip& slip = {});

}  // namespace shadowgraph
