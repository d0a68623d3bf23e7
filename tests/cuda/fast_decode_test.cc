// The fast decode body against the oracle, run by fibers: within its arithmetic's bound, whatever
// shares a request's keys.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "backends/attention_launch.h"
#include "check/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "cuda/gpu_on_cpu.h"

namespace shadowgraph {
namespace {

struct Shape {
  DType dtype = DType::kBF16;
  std::vector<int32_t> lens;
  int32_t group = 4, dim = 64, page_size = 16, window_left = -1;
  bool hnd = false, csr = false, sinks = false, exact = false;
  float soft_cap = 0;
};

/// A decode over permuted pages, with its memory.
class Decode {
 public:
  explicit Decode(const Shape& s) : rng_(7) {
    const auto batch = static_cast<int64_t>(s.lens.size());
    const int64_t heads = kKvHeads * s.group;
    int32_t pages = 0, longest = 0;
    for (const int32_t n : s.lens) longest = std::max(longest, pages_of(s, n));
    for (const int32_t n : s.lens) pages += pages_of(s, n);
    const int64_t slots = int64_t{pages + 1} * s.page_size;
    q_ = random(batch * heads * s.dim, s.dtype, s.exact ? 0 : 1);
    k_ = random(slots * kKvHeads * s.dim, s.dtype, 1);
    v_ = random(slots * kKvHeads * s.dim, s.dtype, 1);
    out_.resize(static_cast<size_t>(batch * heads * s.dim) * 4);
    lse_.resize(static_cast<size_t>(batch * heads));
    lay_table(s, pages, longest);
    call.q = TensorView(q_.data(), s.dtype, {batch, heads, s.dim});
    const auto plane = [&](std::vector<std::byte>& of) {
      return s.hnd ? TensorView(of.data(), s.dtype, {pages + 1, kKvHeads, s.page_size, s.dim})
                   : TensorView(of.data(), s.dtype, {pages + 1, s.page_size, kKvHeads, s.dim});
    };
    call.cache = s.hnd ? KvCache::hnd(plane(k_), plane(v_)) : KvCache::nhd(plane(k_), plane(v_));
    call.pages =
        s.csr ? PageTable::csr(indptr_, ids_, last_) : PageTable::dense(table_, longest, lens_);
    call.params = {.num_qo_heads = static_cast<int32_t>(heads),
                   .num_kv_heads = kKvHeads,
                   .head_dim_qk = s.dim,
                   .head_dim_vo = s.dim,
                   .sm_scale = 0.25f,
                   .causal = true,
                   .window_left = s.window_left,
                   .logits_soft_cap = s.soft_cap};
    for (int64_t i = 0; s.sinks && i < heads; ++i) sinks_.push_back(rng_.signed_unit());
    call.params.sinks = sinks_;
    call.out = TensorView(out_.data(), DType::kF32, {batch, heads, s.dim});
    call.lse = NaturalLse(TensorView(lse_.data(), DType::kF32, {batch, heads}));
  }

  PagedAttention call;

 private:
  static constexpr int32_t kKvHeads = 2;

  static int32_t pages_of(const Shape& s, int32_t keys) {
    return (keys + s.page_size - 1) / s.page_size;
  }
  std::vector<std::byte> random(int64_t count, DType t, float size) {
    std::vector<std::byte> values(static_cast<size_t>(count) * size_of(t));
    for (int64_t i = 0; i < count; ++i) store_float(values.data(), t, i, size * rng_.signed_unit());
    return values;
  }
  void lay_table(const Shape& s, int32_t pages, int32_t longest) {
    lens_ = s.lens;
    std::vector<int32_t> order(static_cast<size_t>(pages));
    std::iota(order.begin(), order.end(), 1);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[rng_.below(static_cast<uint32_t>(i))]);
    table_.assign(s.lens.size() * static_cast<size_t>(longest), -1);
    indptr_ = {0};
    for (size_t r = 0; r < s.lens.size(); ++r) {
      for (int32_t p = 0; p < pages_of(s, s.lens[r]); ++p) {
        ids_.push_back(order[ids_.size()]);
        table_[r * static_cast<size_t>(longest) + static_cast<size_t>(p)] = ids_.back();
      }
      indptr_.push_back(static_cast<int32_t>(ids_.size()));
      last_.push_back(s.lens[r] == 0 ? 1 : (s.lens[r] - 1) % s.page_size + 1);
    }
  }

  Rng rng_;
  std::vector<std::byte> q_, k_, v_, out_;
  std::vector<float> lse_, sinks_;
  std::vector<int32_t> table_, lens_, indptr_, ids_, last_;
};

void expect_within_bound(const Shape& shape, const std::string& what) {
  Decode d(shape);
  use_fast_gpu_bodies(true);
  const int64_t before = fast_gpu_bodies_run();
  ASSERT_TRUE(run_gpu_body(attention_launch(d.call)));
  use_fast_gpu_bodies(false);
  EXPECT_EQ(fast_gpu_bodies_run(), before + 1) << what;
  const Judgement j = judge(d.call, {d.call.out, d.call.lse.tensor},
                            *find_arithmetic("cuda_fast_decode"), {.bounded = true});
  EXPECT_TRUE(j.findings.ok()) << what << '\n' << j.findings.to_string();
}

TEST(FastDecode, LiesWithinItsBound) {
  expect_within_bound({.lens = {1, 16, 17, 0, 70, 129}}, "lengths");
  expect_within_bound({.lens = {100, 3}, .dim = 128}, "head_dim 128");
  expect_within_bound({.dtype = DType::kF16, .lens = {65, 31}, .hnd = true}, "f16, HND");
  expect_within_bound({.lens = {200}, .group = 16, .page_size = 64, .csr = true}, "group 16, CSR");
  expect_within_bound({.lens = {90, 5}, .group = 1, .window_left = 20, .sinks = true},
                      "window, sinks");
  expect_within_bound({.lens = {50}, .soft_cap = 2.f}, "soft cap");
}

TEST(FastDecode, BlocksThatShareKeysMergeThem) {
  expect_within_bound({.lens = {1100, 40, 600}}, "a cluster");
}

TEST(FastDecode, EqualWeightsAreTheMean) {
  Decode d({.lens = {64}, .exact = true});
  use_fast_gpu_bodies(true);
  ASSERT_TRUE(run_gpu_body(attention_launch(d.call)));
  use_fast_gpu_bodies(false);
  const Judgement j = judge(d.call, {d.call.out, d.call.lse.tensor},
                            *find_arithmetic("cuda_fast_decode"), {.bounded = true});
  EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
  EXPECT_LT(j.error_over_bound, 1);
}

TEST(FastDecode, APageThatIsNotInThePoolLosesTheRow) {
  Decode d({.lens = {40, 40}});
  const_cast<int32_t&>(d.call.pages.page_table[1]) = 999;
  use_fast_gpu_bodies(true);
  ASSERT_TRUE(run_gpu_body(attention_launch(d.call)));
  use_fast_gpu_bodies(false);
  uint32_t bits = 0;
  std::memcpy(&bits, d.call.out.at(0, 3), 4);
  EXPECT_EQ(bits, 0xffffffffu);
  std::memcpy(&bits, d.call.out.at(1, 3), 4);
  EXPECT_NE(bits, 0xffffffffu);
}

}  // namespace
}  // namespace shadowgraph
