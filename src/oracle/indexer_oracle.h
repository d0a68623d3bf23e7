// The oracle of the indexer: its definitions, in double, one key at a time; choices by sorting. It
// shares nothing with the kernels but the vocabulary. Calls must be such that they are accepted.
// Tested by tests/kernels/indexer_logits_test.cc, act_quant_test.cc and index_lists_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// I(t, s), and what an error bound needs to know of the way to it.
struct IndexScore {
  double score = 0;
  double weighted = 0;  // |k_scale| sum_h |w_h| relu(q_h . k)
  double products = 0;  // |k_scale| sum_h |w_h| sum_i |q_hi k_i|
};
/// Requires first(token) <= s < last(token).
IndexScore index_score(const IndexerLogits& call, int64_t token, int64_t s);

/// Places of the `most` largest, ascending: of equal ones the first; NaN is as -infinity.
std::vector<int32_t> largest_places(const std::vector<double>& scores, int64_t most);

/// The e4m3 value nearest to x, ties to the even one, past 448 that.
double nearest_e4m3(double x);

/// The scale of a block before it is rounded to f32. amax: its largest magnitude, before the floor.
double block_scale(double amax, bool ue8m0);

}  // namespace shadowgraph
