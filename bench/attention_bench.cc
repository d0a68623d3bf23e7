// How fast the attention calls are. Before a shape is timed, the same shape with one request is
// held against the oracle: a fast wrong answer is an error here, not a figure.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "check/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "shadowgraph/attention.h"

namespace shadowgraph {
namespace {

struct Shape {
  const char* name;
  int32_t batch, q_len, kv_len, num_qo_heads, num_kv_heads, head_dim, page_size;
};

constexpr Shape kShapes[] = {
    {"decode_gqa", 8, 1, 2048, 32, 8, 128, 16},  {"decode_mqa", 8, 1, 2048, 16, 1, 128, 64},
    {"decode_short", 64, 1, 128, 16, 4, 64, 16}, {"prefill", 1, 256, 256, 8, 2, 128, 16},
    {"extend", 2, 64, 1024, 8, 2, 128, 16},
};

/// A call and the memory it stands on. Pages are dealt in reverse order.
struct Problem {
  std::vector<std::byte> q, k, v, out;
  std::vector<float> lse;
  std::vector<int32_t> page_table, cache_seqlens, cu_seqlens_q;
  PagedAttention call;

  Problem(const Shape& s, int32_t batch, DType dtype) {
    const int32_t pages = (s.kv_len + s.page_size - 1) / s.page_size;
    const int64_t rows = int64_t{batch} * s.q_len;
    page_table.resize(static_cast<size_t>(batch) * pages);
    std::iota(page_table.rbegin(), page_table.rend(), 0);
    cache_seqlens.assign(static_cast<size_t>(batch), s.kv_len);
    for (int32_t i = 0; i <= batch && s.q_len > 1; ++i) cu_seqlens_q.push_back(i * s.q_len);

    call.q = fill(q, dtype, {rows, s.num_qo_heads, s.head_dim});
    const auto cache = {int64_t{batch} * pages, int64_t{s.page_size}, int64_t{s.num_kv_heads},
                        int64_t{s.head_dim}};
    call.cache = KvCache::nhd(fill(k, dtype, cache), fill(v, dtype, cache));
    call.pages = PageTable::dense(page_table, pages, cache_seqlens);
    call.cu_seqlens_q = cu_seqlens_q;
    call.params.num_qo_heads = s.num_qo_heads;
    call.params.num_kv_heads = s.num_kv_heads;
    call.params.head_dim_qk = call.params.head_dim_vo = s.head_dim;
    call.params.sm_scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    call.params.causal = true;
    call.out = fill(out, dtype, {rows, s.num_qo_heads, s.head_dim});
    lse.resize(static_cast<size_t>(rows * s.num_qo_heads));
    call.lse = NaturalLse(TensorView(lse.data(), DType::kF32, {rows, s.num_qo_heads}));
  }

  static TensorView fill(std::vector<std::byte>& memory, DType dtype,
                         std::initializer_list<int64_t> shape) {
    TensorView view(nullptr, dtype, shape);
    memory.resize(static_cast<size_t>(view.numel()) * size_of(dtype));
    view.data = memory.data();
    Rng rng(static_cast<uint64_t>(view.numel()));
    for (int64_t i = 0; i < view.numel(); ++i) store_float(view.data, dtype, i, rng.signed_unit());
    return view;
  }
};

/// Empty if one request of this shape has the oracle's result, else what differs.
std::string fault(const Shape& shape, DType dtype) {
  const Problem one(shape, 1, dtype);
  Status status = attention_with_kvcache(one.call);
  if (status.ok()) {
    const Result result{.out = one.call.out, .lse = one.call.lse.tensor};
    status = judge(one.call, result, *find_arithmetic("ours_portable"), {}).findings;
  }
  return status.ok() ? "" : status.to_string();
}

/// Figures: keys read a second over all query heads, K and V bytes a second (decode: what bounds
/// it), and flops.
void attention(benchmark::State& state, const Shape& shape, DType dtype) {
  const std::string wrong = fault(shape, dtype);
  if (!wrong.empty()) return state.SkipWithError(wrong.c_str());
  const Problem problem(shape, shape.batch, dtype);
  for (auto _ : state) {
    if (!attention_with_kvcache(problem.call).ok()) return state.SkipWithError("refused");
  }
  // Pairs that attend: every query sees the prefix, and half of the triangle of new tokens.
  const double q = shape.q_len, prefix = shape.kv_len - q;
  const double pairs = shape.batch * (q * prefix + q * (q + 1) / 2);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["flops"] =
      benchmark::Counter(4 * pairs * shape.num_qo_heads * shape.head_dim, rate);
  const auto kv_bytes = 2.0 * shape.batch * shape.kv_len * shape.num_kv_heads * shape.head_dim *
                        static_cast<double>(size_of(dtype));
  state.counters["kv_bytes"] = benchmark::Counter(kv_bytes, rate);
}

void register_all() {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::string name = std::string(shape.name) + '/' + std::string(name_of(dtype));
      benchmark::RegisterBenchmark(name.c_str(), attention, shape, dtype)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace shadowgraph

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  shadowgraph::register_all();
  benchmark::AddCustomContext("isa", std::string(shadowgraph::current_isa()));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
