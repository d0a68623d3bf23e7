// The derived error bound of an indexer's scores: how far a kernel's may lie from the oracle's,
// given its arithmetic. Nothing in it is tuned.
//
// g(m, u) = m u / (1 - m u); W = |k_scale| sum_h |w_h| relu(q_h . k), P the same of
// p = sum_i |q_i k_i|.
//
// dot      Products of e4m3 are exact. They are added in any order, by u_dot_sum (0: exactly), and
//          the dot is rounded by u_dot: |d^ - d| <= u_dot |d| + g(128, u_dot_sum) (1 + u_dot) p.
//          relu does not make errors larger, and of a dot below 0 leaves but the second part.
// heads    So what is summed is wrong by E = u_dot W + g(128, u_dot_sum) (1 + u_dot) P, and each
//          addend goes through a product with the weight, one with the scale, and `heads` additions
//          at most: g(heads + 2, u) (W + E) on top.
//
// Sources: Higham, Accuracy and Stability of Numerical Algorithms, ch. 3. Tested by
// tests/kernels/indexer_logits_test.cc and tests/check/indexer_vectors_test.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "check/bounds/rounding.h"
#include "oracle/indexer_oracle.h"

namespace shadowgraph {

/// The defaults are ours: dots are exact, the rest in double; twice, as the oracle rounds, too.
struct IndexerArithmetic {
  std::string_view kernel = "ours";
  double u_dot_sum = 0, u_dot = 0;
  double u = 0x1p-52;
};

inline constexpr IndexerArithmetic kIndexerArithmetics[] = {
#define SG_INDEXER_ARITHMETIC(name, ...) \
  IndexerArithmetic{.kernel = #name __VA_OPT__(, ) __VA_ARGS__},
#include "check/bounds/indexer_arithmetics.inc"
#undef SG_INDEXER_ARITHMETIC
};

/// nullptr for a kernel that is not listed.
constexpr const IndexerArithmetic* find_indexer_arithmetic(std::string_view kernel) {
  for (const IndexerArithmetic& a : kIndexerArithmetics) {
    if (a.kernel == kernel) return &a;
  }
  return nullptr;
}

/// Absolute, of score.score, before it is rounded to the type of the logits.
inline double score_bound(const IndexScore& score, int64_t heads, const IndexerArithmetic& a) {
  const double error =
      a.u_dot * score.weighted + gamma_of(kIndexDim, a.u_dot_sum) * (1 + a.u_dot) * score.products;
  return error + gamma_of(static_cast<double>(heads) + 2, a.u) * (score.weighted + error);
}

}  // namespace shadowgraph
