#include "bench/merge_problem.h"

#include <cstring>
#include <set>

#include "bench/problem.h"
#include "check/bounds/compare.h"
#include "core/choices.h"

namespace shadowgraph::bench {
namespace {

constexpr float kLargestLse = 12;

std::vector<float> random_lse(int64_t n, uint64_t seed) {
  std::vector<float> lse(static_cast<size_t>(n));
  Rng rng(seed);
  for (float& one : lse) one = kLargestLse * rng.signed_unit();
  return lse;
}

}  // namespace

MergeProblem::MergeProblem(const Shape& shape, uint64_t seed, int threads) {
  const int64_t rows = shape.merged_rows, heads = shape.num_qo_heads, dim = shape.head_dim_vo;
  call_.options.num_threads = shape.threads == 0 ? threads : shape.threads;
  call_.options.isa = shape.isa;
  const auto values = [&](HugeMemory& owner, uint64_t s) {
    owner = random_memory(rows * heads * dim, shape.dtype, s, call_.options.num_threads);
    return TensorView(owner.data(), shape.dtype, {rows, heads, dim});
  };
  const auto states = [&](std::vector<float>& owner, uint64_t s) {
    owner = random_lse(rows * heads, s);
    return TensorView(owner.data(), DType::kF32, {rows, heads});
  };
  call_.v_a = values(v_a_, seed), call_.v_b = values(v_b_, seed + 1);
  call_.out = values(out_, seed + 2);
  call_.s_a = states(s_a_, seed + 3), call_.s_b = states(s_b_, seed + 4);
  call_.lse = NaturalLse(states(lse_, seed + 5));
}

Status MergeProblem::run() { return merge_state(call_); }

Status MergeProblem::check() {
  Status status;
  const int64_t rows = call_.out.shape[0], heads = call_.out.shape[1], dim = call_.out.shape[2];
  for (const int64_t row : std::set<int64_t>{0, rows / 2, rows - 1}) {
    const auto bytes = static_cast<size_t>(heads * dim) * size_of(call_.out.dtype);
    std::vector<std::byte> v(2 * bytes);
    std::memcpy(v.data(), call_.v_a.at(row, 0), bytes);
    std::memcpy(v.data() + bytes, call_.v_b.at(row, 0), bytes);
    std::vector<float> s(2 * static_cast<size_t>(heads));
    std::memcpy(s.data(), call_.s_a.at(row, 0), s.size() / 2 * sizeof(float));
    std::memcpy(s.data() + heads, call_.s_b.at(row, 0), s.size() / 2 * sizeof(float));
    MergeStates<LseBase::kNatural> one;
    one.v = ConstTensorView(v.data(), call_.out.dtype, {1, 2, heads, dim});
    one.s = ConstTensorView(s.data(), DType::kF32, {1, 2, heads});
    one.out = TensorView(call_.out.at(row, 0), call_.out.dtype, {1, heads, dim});
    one.lse = NaturalLse(TensorView(call_.lse.tensor.at(row, 0), DType::kF32, {1, heads}));
    const Result result{one.out, one.lse.tensor, LseBase::kNatural};
    status.add(judge(one, result, *find_arithmetic("ours_portable"), {.bounded = true}).findings);
  }
  return status;
}

}  // namespace shadowgraph::bench
