// A small call of the compressor that owns its memory, and can be copied.
#pragma once

#include "check/bounds/compress_bound.h"
#include "check/bounds/linear_bound.h"
#include "kernels/small_indexer.h"

namespace shadowgraph {

/// Requests with a prefix each, all of whose blocks' pages are random.
struct SmallCompress {
  CompressShape shape;
  DType type = DType::kF32, out_type = DType::kF32;
  int64_t dim = 40, pages = 9;
  std::vector<int32_t> cu = {0}, lens, indices, extra;
  Bytes kv_score, ape, state, out;
  int32_t first_page = 0;
  CallOptions options;

  explicit SmallCompress(int32_t ratio) { shape.ratio = ratio; }

  /// Tokens first_len .. of a request, whose blocks lie in `of` in turn, from the block before on.
  void add_request(int32_t first_len, int32_t tokens, const std::vector<int32_t>& of) {
    const int32_t first_block = (first_len - 1) / shape.ratio;
    for (int32_t len = first_len; len < first_len + tokens; ++len) {
      const auto block = static_cast<size_t>((len - 1) / shape.ratio - first_block);
      lens.push_back(len), indices.push_back(of[block + 1]), extra.push_back(of[block]);
    }
    cu.push_back(cu.back() + tokens);
  }
  int64_t tokens() const { return cu.back(); }
  int64_t width() const { return shape.channels() * dim; }

  void fill(uint64_t seed) {
    Rng rng(seed);
    kv_score.resize(static_cast<size_t>(tokens() * width()) * size_of(type));
    for (int64_t i = 0; i < tokens() * width(); ++i)
      store_float(kv_score.data(), type, i, 3 * rng.signed_unit());
    ape = random_f32(rng, shape.window() * dim);
    state = random_f32(rng, pages * shape.ratio * width());
    out.assign(static_cast<size_t>(tokens() * dim) * size_of(out_type), std::byte{0x7e});
  }
  Compress call() {
    Compress c;
    c.shape = shape;
    c.kv_score = ConstTensorView(kv_score.data(), type, {tokens(), width()});
    c.ape = ConstTensorView(ape.data(), DType::kF32, {shape.window(), dim});
    c.cu_seqlens_q = cu, c.seq_lens = lens, c.indices = indices, c.extra = extra;
    c.state = TensorView(state.data(), DType::kF32, {pages, shape.ratio, width()});
    c.out = TensorView(out.data(), out_type, {tokens(), dim});
    c.options = options;
    c.first_page = first_page;
    return c;
  }
  std::string run() { return compress(call()).to_string(); }
};

/// The first thing that is not what the oracle says of `before`, or "". *worst: of the bound.
inline std::string judged(SmallCompress before, const SmallCompress& after, double* worst) {
  std::string found;
  Bytes out = before.out;
  const std::vector<float> state = compress_truth(before.call(), [&](int64_t t,
                                                                     const PoolTruth& pool) {
    const Eigen::ArrayXd bound = pool_bound(pool, {});
    for (int64_t c = 0; c < before.dim; ++c) {
      const int64_t i = t * before.dim + c;
      const double right = pool.pooled[c], got = load_float(after.out.data(), after.out_type, i);
      const double ratio = std::abs(got - right) / with_rounding(right, bound[c], after.out_type);
      *worst = std::max(*worst, ratio);
      if (!(ratio <= 1)) found = "out of token " + std::to_string(t);
      store_float(out.data(), after.out_type, i, static_cast<float>(got));
    }
  });
  if (out != after.out) found = "out of a token that ends no block";
  if (bytes_of(state) != after.state) found = "state";
  return found;
}

}  // namespace shadowgraph
