// The inputs of single rows of two calls, held against each other: parameters, q, keys and values.
// Tested by tests/check/promises_test.cc.
#pragma once

#include <cstdint>
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
  /// recordings; empty: nothing that is known.
  std::string differing(const RowInputs& other, int64_t i) const;

 private:
  std::optional<CallScene> scene_;
  int64_t first_ = 0;
  std::vector<std::vector<int32_t>> tokens_;  // [count] that a row sees
};

}  // namespace shadowgraph
