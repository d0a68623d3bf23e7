#include "oracle/compress_oracle.h"

#include <cmath>
#include <limits>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// One more member: a row [channels * head_dim] of floats, of which `half` is taken.
void add_member(PoolTruth* pool, const CompressShape& shape, const std::vector<double>& row,
                int64_t half, const std::vector<double>& ape) {
  const auto dim = static_cast<Eigen::Index>(ape.size());
  const Eigen::Index n = pool->score.rows();
  for (RowMatrix* m : {&pool->score, &pool->ape, &pool->kv}) m->conservativeResize(n + 1, dim);
  for (Eigen::Index c = 0; c < dim; ++c) {
    pool->kv(n, c) = row[static_cast<size_t>(half * dim + c)];
    pool->score(n, c) = row[static_cast<size_t>((shape.halves() + half) * dim + c)];
    pool->ape(n, c) = ape[static_cast<size_t>(c)];
  }
}

void finish(PoolTruth* pool) {
  pool->pooled = Eigen::ArrayXd::Zero(pool->kv.cols());
  for (Eigen::Index c = 0; c < pool->kv.cols(); ++c) {
    const Eigen::ArrayXd x = pool->score.col(c).array() + pool->ape.col(c).array();
    const double most = x.maxCoeff();
    if (most == -std::numeric_limits<double>::infinity()) continue;
    double mass = 0, sum = 0;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      if (x[i] == -std::numeric_limits<double>::infinity()) continue;
      mass += std::exp(x[i] - most);
      sum += std::exp(x[i] - most) * pool->kv(i, c);
    }
    pool->pooled[c] = sum / mass;
  }
}

std::vector<double> values(const std::byte* from, DType type, int64_t count) {
  std::vector<double> row;
  for (int64_t i = 0; i < count; ++i) row.push_back(load_float(from, type, i));
  return row;
}

}  // namespace

std::vector<float> compress_truth(
    const Compress& call, const std::function<void(int64_t token, const PoolTruth& pool)>& visit) {
  const int64_t width = call.state.shape[2], ratio = call.shape.ratio;
  std::vector<float> state;
  for (int64_t page = 0; page < call.state.shape[0]; ++page)
    for (int64_t slot = 0; slot < ratio; ++slot)
      for (int64_t c = 0; c < width; ++c)
        state.push_back(load_float(call.state.at(page, slot), DType::kF32, c));
  const auto row_at = [&](int32_t page, int64_t slot) {
    return state.begin() + (page * ratio + slot) * width;
  };
  for (int64_t t = 0; t < call.kv_score.shape[0]; ++t) {
    const int64_t len = call.seq_len(t);
    const int32_t own = call.indices[static_cast<size_t>(t)];
    if (own < 0 || own < call.first_page) continue;
    for (int64_t c = 0; c < width; ++c)
      row_at(own, (len - 1) % ratio)[c] = load_float(call.kv_score.at(t), call.kv_score.dtype, c);
    if (len % ratio != 0) continue;
    PoolTruth pool;
    const int64_t window = call.shape.window();
    for (int64_t i = 0; i < window; ++i) {
      const int64_t position = len - window + i;
      if (position < 0) continue;
      const bool older = position < len - ratio;
      const int32_t page = older ? call.extra[static_cast<size_t>(t)] : own;
      const auto row = row_at(page, position % ratio);
      add_member(&pool, call.shape, std::vector<double>(row, row + width),
                 call.shape.overlaps() && !older ? 1 : 0,
                 values(call.ape.at(i), DType::kF32, call.ape.shape[1]));
    }
    finish(&pool);
    visit(t, pool);
  }
  return state;
}

PoolTruth pool_truth(const PoolNormRope& call, int64_t block) {
  PoolTruth pool;
  const int64_t dim = call.out.shape[1], ratio = call.shape.ratio;
  for (int64_t i = 0; i < call.kv_score.shape[1]; ++i) {
    const int64_t half = i < ratio ? 0 : 1;
    add_member(&pool, call.shape,
               values(call.kv_score.at(block, i), call.kv_score.dtype, call.kv_score.shape[2]),
               half, values(call.ape.at(i - half * ratio, half * dim), DType::kF32, dim));
  }
  finish(&pool);
  return pool;
}

NormTruth norm_truth(const Eigen::ArrayXd& x, const ConstTensorView& weight, double eps,
                     const ConstTensorView& freqs, int64_t row) {
  NormTruth t;
  t.x = x;
  t.root = std::sqrt(x.square().mean() + eps);
  t.normed = x / t.root;
  for (Eigen::Index c = 0; c < x.size(); ++c)
    t.normed[c] *= load_float(weight.at(c), DType::kF32, 0);
  t.out = t.normed;
  const Eigen::Index first = x.size() - freqs.shape[1];
  for (Eigen::Index i = 0; i < freqs.shape[1] / 2; ++i) {
    const double cos = load_float(freqs.at(row, 2 * i), DType::kF32, 0);
    const double sin = load_float(freqs.at(row, 2 * i + 1), DType::kF32, 0);
    const Eigen::Index a = first + 2 * i;
    t.out[a] = t.normed[a] * cos - t.normed[a + 1] * sin;
    t.out[a + 1] = t.normed[a] * sin + t.normed[a + 1] * cos;
  }
  return t;
}

}  // namespace shadowgraph
