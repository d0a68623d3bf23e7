// Case: one experiment with a kernel as plain data. Everything that a run needs follows from it, so
// the same Case gives the same bits on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "attn/cases/attention_case.h"
#include "attn/cases/recurrent_case.h"
#include "attn/cases/sparse_case.h"

namespace shadowgraph {

/// What q, K and V hold; of calls over states in brackets; of the sparse family the same, see
/// fuzz/call/sparse_data.cc.
enum class CaseData : uint8_t {
  // T0: q = 0, V small integers: every weight is exactly 1 [small integers, decays 1 and 0]
  kUniform,
  // T0: a few keys score far above the rest: weights exactly 1 and 0 [the same; q has two ones]
  kSelector,
  kRandom,  // T1: uniform in [-1, 1)
  kPeaked,  // T1: the same with q eight times as large [and decays near 1]
  // T0: all logits of a row are one number, far above 0 or far below, each row's its own: every
  // weight is exactly 1. Up to some 10^5; and up to 10^33, where types bear it [as kUniform]
  kShifted,
  kHuge,
};

/// Is all of a row's logits one number, which is not 0?
constexpr bool is_shifted(CaseData d) { return d == CaseData::kShifted || d == CaseData::kHuge; }
/// Is the result known bit for bit (T0)?
constexpr bool is_exact(CaseData d) {
  return d == CaseData::kUniform || d == CaseData::kSelector || is_shifted(d);
}

struct Case {
  CaseData data = CaseData::kUniform;
  uint64_t seed = 0;  // of the values
  std::variant<AttentionCase, MergeCase, RecurrentCase, SparseCase> call;
  // No result may depend on these
  int32_t more_threads = 0;  // that run the call with the one that makes it
  bool far = false;          // pools lie behind 2^32 elements that nobody has

  CaseKernel kernel() const;
  /// A call of that kernel, of which nothing else is chosen.
  void set_kernel(CaseKernel kernel);
  /// The alternative that is called, null if another is.
  template <class Call>
  const Call* as() const {
    return std::get_if<Call>(&call);
  }
  /// Tokens, or rows, of which the call leaves something.
  int64_t tokens() const;
  /// One line a person can read.
  std::string to_string() const;
};

}  // namespace shadowgraph
