#include "kernels/sparse/compress.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "check/bounds/array_judge.h"
#include "check/bounds/rounding.h"
#include "kernels/footprint_elements.h"
#include "kernels/small_compress.h"

namespace shadowgraph::compress_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// A request from its start, one that goes on, a decode step that ends a block, and one that does
/// not; and one without tokens.
SmallCompress batch(int32_t ratio, DType type = DType::kF32) {
  SmallCompress s(ratio);
  s.type = s.out_type = type;
  s.add_request(1, ratio + 1, {8, 0, 3});  // the page before the first block is nobody's
  s.add_request(ratio * 3 - 1, 3, {5, 2, 7});
  s.add_request(ratio * 2, 1, {4, 1});
  s.add_request(5, 0, {8, 8});
  s.add_request(ratio * 2 + 1, 1, {8, 6});
  s.fill(3);
  return s;
}

TEST(Compress, BlocksAndStatesAreTheOracles) {
  for (const int32_t ratio : {2, 4, 8, 128})  // an engine's, and those of small models
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      const SmallCompress before = batch(ratio, type);
      SmallCompress after = before;
      ASSERT_EQ(after.run(), "ok");
      double worst = 0;
      EXPECT_EQ(judged(before, after, &worst), "") << ratio;
      EXPECT_GT(worst, 0.9) << ratio;
    }
}

TEST(Compress, TheJudgeSeesASlip) {
  const std::function<void(SmallCompress&)> slips[] = {
      [](SmallCompress& s) { s.extra.back() = 0, s.indices.back() = 8; },
      [](SmallCompress& s) { s.lens.back() += 1; },
      [](SmallCompress& s) { s.ape[s.ape.size() - 1] ^= std::byte{1}; },
      [](SmallCompress& s) { s.state[s.state.size() / 9 * 2 + 7] ^= std::byte{1}; },
      [](SmallCompress& s) { s.kv_score[3] ^= std::byte{1}; },
  };
  for (const int32_t ratio : {4, 128})
    for (const auto& slip : slips) {
      const SmallCompress right = batch(ratio);
      SmallCompress after = right;
      slip(after);
      ASSERT_EQ(after.run(), "ok");
      double worst = 0;
      EXPECT_NE(judged(right, after, &worst), "") << ratio << ", " << &slip - slips;
    }
  // The block before: ratio 4 alone has it.
  SmallCompress right = batch(4), after = right;
  after.extra[static_cast<size_t>(right.cu[2])] = 8;
  ASSERT_EQ(after.run(), "ok");
  double worst = 0;
  EXPECT_NE(judged(right, after, &worst), "");
}

TEST(Compress, TheFormulaByHand) {
  SmallCompress s(4);
  s.dim = 1;
  s.add_request(8, 1, {1, 0});
  s.fill(1);
  // Rows [kv_a, kv_b, score_a, score_b]: only the oldest a and the newest b count.
  std::vector<float> state(static_cast<size_t>(s.pages) * 16, -kInf);
  state[16] = 6, state[18] = 0;
  s.state = bytes_of(state);
  s.kv_score = bytes_of(std::vector<float>{1000, 3, 1000, 1});
  s.ape = bytes_of(std::vector<float>{0, 9, 9, 9, 9, 9, 9, -1 + std::log(2.F)});
  ASSERT_EQ(s.run(), "ok");
  // log 2 and the last ape are rounded to f32, so the exponent is wrong by 2^-23 at most, and the
  // weight w = 2 by that part of it; d out / d w = -1/3. Then out is rounded.
  EXPECT_LE(std::abs(load_float(s.out.data(), DType::kF32, 0) - (6 + 2 * 3) / 3.0),
            0x1p-23 + 4 * rounding_to(DType::kF32).u);
  EXPECT_EQ(load_float(s.state.data(), DType::kF32, 13), 3);
}

TEST(Compress, StepsAreTheSameAsOneCallAndThreadsDoNotMatter) {
  for (const int32_t ratio : {4, 128}) {
    SmallCompress whole = batch(ratio), steps = whole;
    whole.options.num_threads = 3;
    ASSERT_EQ(whole.run(), "ok");
    steps.options.num_threads = 1;
    for (int64_t t = 0; t < steps.tokens(); ++t) {
      Compress c = steps.call();
      const auto i = static_cast<size_t>(t);
      const std::vector<int32_t> cu = {0, 1};
      c.cu_seqlens_q = cu;
      c.seq_lens = c.seq_lens.subspan(i, 1), c.indices = c.indices.subspan(i, 1);
      c.extra = c.extra.subspan(i, 1);
      c.kv_score.data = c.kv_score.at(t), c.out.data = c.out.at(t);
      c.kv_score.shape[0] = c.out.shape[0] = 1;
      ASSERT_EQ(compress(c).to_string(), "ok");
    }
    EXPECT_EQ(steps.out, whole.out);
    EXPECT_EQ(steps.state, whole.state);
  }
}

/// Padded rows of a bucket: as if they were not there.
TEST(Compress, TokensOfThePaddingPageAreDropped) {
  SmallCompress s = batch(4);
  for (size_t t = static_cast<size_t>(s.cu[1]); t < static_cast<size_t>(s.cu[2]); ++t)
    s.indices[t] = 0, s.lens[t] = 4;
  for (size_t t = 0; t < 5; ++t) s.indices[t] = t == 4 ? 3 : 7;
  s.first_page = 1;
  SmallCompress after = s;
  ASSERT_EQ(after.run(), "ok");
  double worst = 0;
  EXPECT_EQ(judged(s, after, &worst), "");
  const auto written = written_bytes(compress_footprint(after.call()), after.state);
  EXPECT_EQ(std::count(written.begin(), written.begin() + std::ssize(written) / 9, 1), 0);
}

TEST(Compress, WhatItDoesNotReadHasNoInfluenceAndItWritesWhatItSays) {
  for (const int32_t ratio : {4, 128}) {
    SmallCompress plain = batch(ratio), poisoned = plain;
    const Footprint spans = compress_footprint(poisoned.call());
    for (Bytes* b : {&poisoned.kv_score, &poisoned.ape, &poisoned.state, &poisoned.out})
      poison_others(spans, b, Access::kRead);
    const Bytes before = poisoned.state;
    ASSERT_EQ(plain.run(), "ok");
    ASSERT_EQ(poisoned.run(), "ok");
    const auto out = written_bytes(spans, poisoned.out);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(poisoned.out[i], out[i] ? plain.out[i] : std::byte{0xff});
    }
    const auto state = written_bytes(spans, poisoned.state);
    for (size_t i = 0; i < state.size(); ++i) {
      ASSERT_EQ(poisoned.state[i], state[i] ? plain.state[i] : before[i]);
    }
  }
}

TEST(Compress, ABlockThatTheCallWritesWholeIsNotReadOfBefore) {
  for (const int32_t ratio : {4, 128}) {
    SmallCompress s = batch(ratio);
    const auto read = elements(compress_footprint(s.call()), s.state, Access::kRead);
    ASSERT_FALSE(read.empty());
    EXPECT_GE(*read.begin(), ratio * s.width());  // page 0 is the first request's first block
  }
}

/// Gathered windows of three blocks, some of whose tokens are removed.
struct SmallPoolNorm {
  CompressShape shape;
  int64_t dim, rope = 6;
  DType type = DType::kF32;
  Bytes kv_score, ape, weight, freqs, out;
  CallOptions options;

  explicit SmallPoolNorm(int32_t ratio, int64_t d = 40) : dim(d) {
    shape.ratio = ratio;
    Rng rng(5);
    const int64_t width = shape.channels() * dim;
    std::vector<float> rows;
    for (int64_t i = 0; i < 3 * shape.window() * width; ++i) {
      const bool is_score = i % width >= width / 2, removed = i / width % 5 == 1;
      rows.push_back(is_score && removed ? -kInf : 3 * rng.signed_unit());
    }
    kv_score = bytes_of(rows);
    ape = random_f32(rng, shape.ratio * shape.halves() * dim), weight = random_f32(rng, dim);
    freqs = random_f32(rng, 3 * rope);
    out.assign(static_cast<size_t>(3 * dim) * 4, std::byte{0x7e});
  }
  PoolNormRope call() {
    PoolNormRope c;
    c.shape = shape;
    c.kv_score =
        ConstTensorView(kv_score.data(), DType::kF32, {3, shape.window(), shape.channels() * dim});
    c.ape = ConstTensorView(ape.data(), DType::kF32, {shape.ratio, shape.halves() * dim});
    c.weight = ConstTensorView(weight.data(), DType::kF32, {dim});
    c.freqs = ConstTensorView(freqs.data(), DType::kF32, {3, rope});
    c.out = TensorView(out.data(), DType::kF32, {3, dim});
    c.options = options;
    return c;
  }
  std::string run() { return pool_norm_rope(call()).to_string(); }
};

double worst_of(SmallPoolNorm right, const SmallPoolNorm& got) {
  const PoolNormRope call = right.call();
  ArrayJudge judge("num.bound", "out");
  for (int64_t block = 0; block < 3; ++block) {
    const PoolTruth pool = pool_truth(call, block);
    const NormTruth truth = norm_truth(pool.pooled, call.weight, call.eps, call.freqs, block);
    const Eigen::ArrayXd bound =
        norm_bound(truth, pool_bound(pool, {}), call.weight, call.freqs, block, {});
    for (int64_t c = 0; c < right.dim; ++c) {
      judge.take(block, c, load_float(got.out.data(), DType::kF32, block * right.dim + c),
                 truth.out[c], with_rounding(truth.out[c], bound[c], DType::kF32));
    }
  }
  return judge.worst();
}

TEST(PoolNormRope, ResultsAreTheOracles) {
  for (const int32_t ratio : {4, 128}) {
    const SmallPoolNorm before(ratio);
    SmallPoolNorm after = before;
    ASSERT_EQ(after.run(), "ok");
    EXPECT_LE(worst_of(before, after), 1);
    EXPECT_GT(worst_of(before, after), 0.7);
    SmallPoolNorm threads = before;
    threads.options.num_threads = 3;
    ASSERT_EQ(threads.run(), "ok");
    EXPECT_EQ(threads.out, after.out);
    for (Bytes SmallPoolNorm::*buffer : {&SmallPoolNorm::ape, &SmallPoolNorm::weight,
                                         &SmallPoolNorm::freqs, &SmallPoolNorm::kv_score}) {
      SmallPoolNorm slip = before;
      (slip.*buffer)[2] ^= std::byte{0x40};
      ASSERT_EQ(slip.run(), "ok");
      EXPECT_GT(worst_of(before, slip), 1);
    }
  }
}

TEST(PoolNormRope, ItIsNormRopeOfWhatIsPooled) {
  SmallPoolNorm s(4);
  ASSERT_EQ(s.run(), "ok");
  const PoolNormRope call = s.call();
  for (int64_t block = 0; block < 3; ++block) {
    // Pooled values are rounded to f32 on this way: so only to the bound.
    std::vector<float> x;
    for (const double v : pool_truth(call, block).pooled) x.push_back(static_cast<float>(v));
    std::vector<float> out(x.size());
    NormRope norm;
    norm.x = ConstTensorView(x.data(), DType::kF32, {1, s.dim});
    norm.weight = call.weight;
    norm.freqs = ConstTensorView(call.freqs.at(block), DType::kF32, {1, s.rope});
    norm.out = TensorView(out.data(), DType::kF32, {1, s.dim});
    ASSERT_EQ(norm_rope(norm).to_string(), "ok");
    Eigen::ArrayXd rounded(s.dim);
    for (int64_t c = 0; c < s.dim; ++c) rounded[c] = x[static_cast<size_t>(c)];
    const NormTruth truth = norm_truth(rounded, norm.weight, norm.eps, norm.freqs, 0);
    const Eigen::ArrayXd bound =
        norm_bound(truth, Eigen::ArrayXd::Zero(s.dim), norm.weight, norm.freqs, 0, {});
    // What is pooled and not rounded lies within its bound and that rounding of these x.
    const PoolTruth pooled = pool_truth(call, block);
    const Eigen::ArrayXd before =
        pool_bound(pooled, {}) + rounding_to(DType::kF32).u * pooled.pooled.abs();
    const Eigen::ArrayXd wide = norm_bound(truth, before, norm.weight, norm.freqs, 0, {});
    for (int64_t c = 0; c < s.dim; ++c) {
      EXPECT_LE(std::abs(out[static_cast<size_t>(c)] - truth.out[c]),
                with_rounding(truth.out[c], bound[c], DType::kF32));
      EXPECT_LE(std::abs(load_float(s.out.data(), DType::kF32, block * s.dim + c) - truth.out[c]),
                with_rounding(truth.out[c], wide[c], DType::kF32));
    }
    const Footprint spans = norm_rope_footprint(norm);
    EXPECT_EQ(spans.size(), 4U);
  }
}

TEST(PoolNormRope, AChannelWithoutAScoreIsZero) {
  SmallPoolNorm s(4, 2);
  s.rope = 0, s.freqs.clear();
  std::vector<float> rows;
  for (int i = 0; i < 3 * 8; ++i) rows.insert(rows.end(), {1, 2, 1, 2, -kInf, 0, -kInf, 0});
  s.kv_score = bytes_of(rows);
  ASSERT_EQ(s.run(), "ok");
  EXPECT_EQ(load_float(s.out.data(), DType::kF32, 0), 0);
  EXPECT_NE(load_float(s.out.data(), DType::kF32, 1), 0);
}

TEST(PoolNormRope, ItReadsAllAndWritesAll) {
  SmallPoolNorm s(4);
  const Footprint spans = pool_norm_rope_footprint(s.call());
  for (const Bytes* b : {&s.kv_score, &s.ape, &s.weight, &s.freqs})
    EXPECT_EQ(elements(spans, *b, Access::kRead).size(), b->size() / 4);
  EXPECT_EQ(elements(spans, s.out, Access::kWrite).size(), s.out.size() / 4);
}

}  // namespace
}  // namespace shadowgraph::compress_test
