// Judging a result: every element of out and lse against the oracle, with the bound of the kernel's
// arithmetic. Tested by tests/check/compare_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/dual_chunk.h"
#include "attn/result_axes.h"
#include "attn/visit/any_call.h"
#include "check/bounds/arithmetic.h"
#include "core/laws.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/attention/promises.h"

namespace shadowgraph {

/// What a kernel returned, and its conventions.
struct Result {
  ConstTensorView out;  // [rows, heads, head_dim_vo], f32 | f16 | bf16; may be undefined
  ConstTensorView lse;  // [rows, heads], f32 | f64, any strides; may be undefined
  LseBase lse_base = LseBase::kNatural;
  LseSink lse_sink = LseSink::kExcluded;
  // [rows, heads], f32 | f64: the largest logit that a row sees, natural; may be undefined
  ConstTensorView max_logits = {};
  ResultAxes axes = {};  // as findings name places
};

/// How to judge: the laws that findings name, and whether the LSE of rows that see no key follows
/// our law or is only described (a recorded kernel has its own mark for them: +inf, a large finite
/// number, NaN).
struct JudgeOptions {
  LawId bound = "num.bound";
  LawId lse_bound = "num.lse_bound";
  bool recorded = false;
  std::string prefix = {};  // of the fields in findings: "gpu." gives "gpu.out"
  // The data is such that every bound is finite, except of rows whose every key has a bias like the
  // lowest float, beyond f32 to base 2: another one is a finding
  bool bounded = false;
  // The data is such that out is one key's V: it is that to the bit, and the LSE is not judged
  bool exact = false;
  EmptyRowMark empty_mark = {};  // of a recorded kernel
  bool any_for_nan = false;      // rows whose result is NaN may hold anything
  // Results that are merged into each query row's, instead of Arithmetic::parts for all; empty: so
  std::vector<int32_t> parts = {};
};

struct Judgement {
  // Largest |result - oracle| / bound; infinite where one of the two is not finite and the other
  // is, or differs.
  double error_over_bound = 0, lse_error_over_bound = 0;
  int64_t rows = 0;         // (query row, head) pairs
  int64_t empty_rows = 0;   // of them, those that see no key
  int64_t marked_rows = 0;  // of these, those with a mark that nobody promised
  // Those with an infinite bound, of out or LSE: there any number will do
  int64_t unbounded_rows = 0;
  std::vector<std::string> notes;
  Status findings;  // at most one for each law, at its worst element
};

/// q's type rounds P, result.out's type is the last rounding. Requires a call that the engine
/// accepts.
Judgement judge(const AnyCall& call, const Result& result, const Arithmetic& arithmetic,
                const JudgeOptions& options);
/// Also for merges of natural-log states, which are no AnyCall.
Judgement judge(const MergeStates<LseBase::kNatural>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options);
Judgement judge(const DualChunkCall<PagedAttention>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options);
Judgement judge(const DualChunkCall<RaggedAttention>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options);

}  // namespace shadowgraph
