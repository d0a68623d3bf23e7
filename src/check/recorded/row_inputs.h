// The inputs of single rows of two calls, held against each other: parameters, terms, q, keys and
// values. Tested by tests/check/promises_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attn/visit/any_call.h"
#include "check/mistakes/call_scene.h"

namespace shadowgraph {

/// The inputs that rows of a paged or packed call read; a call of another kind has none that are
/// known. The call must outlive this.
class RowInputs {
 public:
  /// Rows first .. first + count - 1. Requires a call that the engine accepts.
  RowInputs(const AnyCall& call, int64_t first, int64_t count);

  /// "sm_scale, keys": what of row i of these differs from row i of the others, by the names of
  /// recordings and of AttentionTerms; empty: nothing that is known. Requires as many heads.
  std::string differing(const RowInputs& other, int64_t i) const;

 private:
  struct Row {
    size_t request = 0;
    int64_t query = 0;
    // Places among the request's keys that a head sees; a head without a list sees those of head 0
    std::map<int32_t, std::vector<int32_t>> seen = {{0, {}}};

    const std::vector<int32_t>& of_head(int32_t head) const {
      const auto own = seen.find(head);
      return own == seen.end() ? seen.at(0) : own->second;
    }
  };
  /// The effect of terms on a row and head: factors, and what is added to the logit of each key.
  std::vector<double> effects(const AttentionTerms& terms, const Row& row, int32_t head) const;

  std::optional<CallScene> scene_;
  int64_t first_ = 0;
  std::vector<Row> rows_;              // [count]
  std::vector<int64_t> first_biases_;  // [requests] its first key, of the keys of all requests
};

}  // namespace shadowgraph
