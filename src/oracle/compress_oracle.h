// The oracle of DeepSeek-V4's compressor: its definition, in double, by positions of tokens. It
// shares nothing with the kernel but the vocabulary. Calls must be such that they are accepted,
// with the state as it is before them. Tested by tests/kernels/compress_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <vector>

#include "oracle/oracle.h"
#include "shadowgraph/layers/compress.h"

namespace shadowgraph {

/// What is pooled: [members, head_dim] each, the oldest member first; and the result.
struct PoolTruth {
  RowMatrix score, ape, kv;
  Eigen::ArrayXd pooled;
};

/// Visits every token that ends a block. The state behind all tokens, dense, in the order of
/// call.state.
std::vector<float> compress_truth(
    const Compress& call, const std::function<void(int64_t token, const PoolTruth& pool)>& visit);

PoolTruth pool_truth(const PoolNormRope& call, int64_t block);

/// Norm and rotation of one row: x [head_dim].
struct NormTruth {
  Eigen::ArrayXd x;
  double root = 1;        // sqrt(mean of squares + eps)
  Eigen::ArrayXd normed;  // before the rotation
  Eigen::ArrayXd out;
};
NormTruth norm_truth(const Eigen::ArrayXd& x, const ConstTensorView& weight, double eps,
                     const ConstTensorView& freqs, int64_t row);

}  // namespace shadowgraph
