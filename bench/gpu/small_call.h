// Small calls that the fast GPU bodies take, and what their results are judged by: for their test
// and, on a GPU, for their bench.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::small {

struct Shape {
  DType dtype = DType::kBF16;
  std::vector<int32_t> lens = {}, q_lens = {};  // no queries: a decode
  int32_t group = 4, dim = 64, page_size = 16, window_left = -1;
  bool hnd = false, csr = false, sinks = false, exact = false;
  float soft_cap = 0;
  DType out = DType::kF32;
};

/// A call over permuted pages, with its memory.
class Call {
 public:
  explicit Call(const Shape& s) : rng_(7) {
    for (const int32_t n : s.q_lens) cu_q_.push_back(cu_q_.back() + n);
    const auto batch = s.q_lens.empty() ? static_cast<int64_t>(s.lens.size()) : cu_q_.back();
    if (!s.q_lens.empty()) call.cu_seqlens_q = cu_q_;
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
    call.out = TensorView(out_.data(), s.out, {batch, heads, s.dim});
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
  std::vector<int32_t> table_, lens_, indptr_, ids_, last_, cu_q_ = {0};
};

struct NamedShape {
  const char* name;
  Shape shape;
};

/// Each feature of the fast bodies at least once.
inline std::vector<NamedShape> shapes() {
  return {
      {"decode of many lengths", {.lens = {1, 16, 17, 0, 70, 129}}},
      {"decode of many requests", {.lens = std::vector<int32_t>(20, 37), .window_left = 30}},
      {"decode, head_dim 128", {.lens = {100, 3}, .dim = 128}},
      {"decode, f16, HND", {.dtype = DType::kF16, .lens = {65, 31}, .hnd = true}},
      {"decode, group 16, CSR", {.lens = {200}, .group = 16, .page_size = 64, .csr = true}},
      {"decode, window, sinks", {.lens = {90, 5}, .group = 1, .window_left = 20, .sinks = true}},
      {"decode, soft cap", {.lens = {50}, .soft_cap = 2.f}},
      {"decode, bf16 rows", {.lens = {50, 1}, .out = DType::kBF16}},
      {"decode, blocks that share keys", {.lens = {1100, 40, 600}}},
      {"prefill of many lengths", {.lens = {130, 70}, .q_lens = {130, 5}, .group = 1}},
      {"prefill, head_dim 128", {.lens = {90}, .q_lens = {40}, .group = 1, .dim = 128}},
      {"prefill, many tiles", {.lens = {400, 290}, .q_lens = {300, 140}, .group = 1, .dim = 128}},
      {"prefill, many tiles, f16, window, sinks",
       {.dtype = DType::kF16,
        .lens = {700},
        .q_lens = {200},
        .group = 1,
        .window_left = 290,
        .sinks = true}},
      {"prefill, f16, HND",
       {.dtype = DType::kF16, .lens = {65, 3}, .q_lens = {1, 3}, .group = 2, .hnd = true}},
      {"prefill, bf16 rows",
       {.lens = {65, 300}, .q_lens = {65, 3}, .group = 2, .out = DType::kBF16}},
      {"prefill, f16 rows", {.lens = {70}, .q_lens = {70}, .group = 1, .out = DType::kF16}},
      {"prefill, window, CSR, sinks",
       {.lens = {120},
        .q_lens = {20},
        .group = 1,
        .page_size = 64,
        .window_left = 33,
        .csr = true,
        .sinks = true}},
      {"prefill, soft cap, no keys, no queries",
       {.lens = {30, 0, 9}, .q_lens = {30, 2, 0}, .group = 1, .soft_cap = 2.f}},
  };
}

/// Which line of check/bounds/arithmetics.inc judges the shape.
inline std::string_view arithmetic_of(const Shape& s) {
  return s.q_lens.empty() ? "cuda_fast_decode" : "cuda_fast_prefill";
}

}  // namespace shadowgraph::small
