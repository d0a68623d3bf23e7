// How a kernel's results lie: findings name a place by the indices that its user has.
#pragma once

#include <cstdint>
#include <vector>

namespace shadowgraph {

/// Results are judged as out [rows, heads, dim] and LSE [rows, heads]; their own axes may be
/// [batch, q_len] for rows, and heads before rows (or before q_len) in the LSE.
struct ResultAxes {
  int64_t q_len = 0;  // of every request; 0: rows are one axis
  bool lse_heads_first = false;

  /// The indices of an element of out, as the kernel's user has them.
  std::vector<int64_t> out(int64_t row, int64_t head, int64_t dim) const {
    if (q_len == 0) return {row, head, dim};
    return {row / q_len, row % q_len, head, dim};
  }
  std::vector<int64_t> lse(int64_t row, int64_t head) const {
    if (q_len == 0) return lse_heads_first ? std::vector{head, row} : std::vector{row, head};
    const int64_t query = row % q_len;
    if (lse_heads_first) return {row / q_len, head, query};
    return {row / q_len, query, head};
  }
};

}  // namespace shadowgraph
