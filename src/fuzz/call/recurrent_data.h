// The values of a Case over recurrent states, as bytes in their types, in logical order, before
// anything is laid out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/call/data.h"

namespace shadowgraph {

struct RecurrentData {
  using Bytes = std::vector<std::byte>;

  std::vector<int64_t> first_token;  // [rows + 1]
  std::vector<int32_t> parents;      // [tokens], of a tree
  // [rows]: the elements of the slot's state, as it lies there; of a row from zero what is left of
  // another's; then those of slots that are nobody's. Poison where data is not exact
  std::vector<Bytes> slots;

  // linear_attention: [tokens, heads, dim], skip [1, heads, 1]; log_decay of rank 1 as skip
  LogicalTensor q, k, v, z, log_decay, beta, skip;
  // causal_conv1d: [tokens, dim, 1], [dim, 1, width], [1, dim, 1]
  LogicalTensor x, weight, bias;

  static constexpr int kForeignSlots = 4;
};

RecurrentData make_recurrent_data(const Case& x);

}  // namespace shadowgraph
