// What the simulated device costs: a replay beside a plain loop, a checked launch beside an
// unchecked one, the shadow beside the memory. Both sides of a ratio run in turn, in one process;
// a figure is the median over rounds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"
#include "launch/attention_launch.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;

/// Nanoseconds of one call of f, over enough calls to be seen.
template <class F>
double time_of(F f, int calls) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) f();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Runs a and b in turn; reports the median of a / b and of both.
template <class A, class B>
void paired(benchmark::State& state, A a, B b, int calls, const char* name_a, const char* name_b) {
  std::vector<double> ratios, as, bs;
  for (auto _ : state) {
    as.push_back(time_of(a, calls));
    bs.push_back(time_of(b, calls));
    ratios.push_back(as.back() / bs.back());
  }
  state.counters["ratio"] = median(ratios);
  state.counters[name_a] = median(as);
  state.counters[name_b] = median(bs);
}

Progress nothing(LaunchFrame&) { return Progress::kDone; }
constexpr Kernel kEmpty{.name = "empty", .body = nothing};

void BM_ReplayOf100EmptyLaunches(benchmark::State& state) {
  SimDevice device({.choose = {}, .checked = state.range(0) != 0});
  Stream stream(device);
  Graph graph;
  GraphExec exec;
  Status status = Graph::record(
      stream,
      [](Stream& s) {
        KernelLaunch launch;
        launch.kernel = &kEmpty;
        for (int i = 0; i < 100; ++i) s.launch(launch);
      },
      &graph);
  status.add(GraphExec::instantiate(graph, &exec));
  if (!status.ok()) return state.SkipWithError(status.to_string().c_str());

  KernelLaunch launch;
  LaunchFrame frame{.launch = launch};
  std::vector<Progress (*)(LaunchFrame&)> calls(100, nothing);
  benchmark::DoNotOptimize(calls.data());
  paired(
      state, [&] { exec.replay(stream); },
      [&] {
        for (const auto call : calls) benchmark::DoNotOptimize(call(frame));
      },
      100, "replay_ns", "loop_ns");
}
BENCHMARK(BM_ReplayOf100EmptyLaunches)->ArgName("checked")->Arg(0)->Arg(1)->Iterations(201);

/// 8 rows, 512 keys, 4 / 2 heads, d = 64, bf16, page 16, shuffled pages.
struct Decode {
  static constexpr int32_t kBatch = 8, kKeys = 512, kHeads = 4, kKvHeads = 2, kDim = 64, kPage = 16;
  static constexpr int32_t kPages = kBatch * kKeys / kPage;

  explicit Decode(bool checked) : device({.choose = {}, .checked = checked}), stream(device) {
    q = buffer("q", kBatch * kHeads * kDim * 2, kHeads * kDim * 2);
    k = buffer("k", kPages * kPage * kKvHeads * kDim * 2, kDim * 2);
    v = buffer("v", kPages * kPage * kKvHeads * kDim * 2, kDim * 2);
    out = buffer("out", kBatch * kHeads * kDim * 2, kHeads * kDim * 2);
    lse = buffer("lse", kBatch * kHeads * 4, kHeads * 4);
    table = static_cast<int32_t*>(buffer("page_table", kPages * 4, 4));
    lens = static_cast<int32_t*>(buffer("cache_seqlens", kBatch * 4, 4));
    fill();
    call.q = ConstTensorView(q, DType::kBF16, {kBatch, kHeads, kDim});
    const TensorView keys(k, DType::kBF16, {kPages, kPage, kKvHeads, kDim});
    const TensorView values(v, DType::kBF16, {kPages, kPage, kKvHeads, kDim});
    call.cache = KvCache::nhd(keys, values);
    call.pages = PageTable::dense({table, kPages}, kKeys / kPage, {lens, kBatch});
    call.params = {.num_qo_heads = kHeads,
                   .num_kv_heads = kKvHeads,
                   .head_dim_qk = kDim,
                   .head_dim_vo = kDim,
                   .sm_scale = 0.125f,
                   .causal = true};
    call.out = TensorView(out, DType::kBF16, {kBatch, kHeads, kDim});
    call.lse = NaturalLse(TensorView(lse, DType::kF32, {kBatch, kHeads}));
    call.options.num_threads = 1;
    launch = attention_launch(call);
  }

  void* buffer(const char* name, size_t bytes, size_t granule) {
    void* p = nullptr;
    device.malloc(bytes, &p);
    device.declare_buffer({.address = p, .bytes = bytes, .granule_bytes = granule, .name = name});
    return p;
  }
  void upload(void* to, const void* from, size_t bytes) {
    device.memcpy({.dst = to, .src = from, .width = bytes});
    device.device_synchronize();
  }
  void fill() {
    Rng rng(1);
    const auto random = [&](void* to, size_t elements) {
      std::vector<uint16_t> bits(elements);
      for (uint16_t& b : bits)
        b = static_cast<uint16_t>(std::bit_cast<uint32_t>(rng.signed_unit()) >> 16);
      upload(to, bits.data(), elements * 2);
    };
    random(q, kBatch * kHeads * kDim);
    random(k, kPages * kPage * kKvHeads * kDim);
    random(v, kPages * kPage * kKvHeads * kDim);
    std::vector<int32_t> ids(kPages), keys(kBatch, kKeys);
    std::iota(ids.begin(), ids.end(), 0);
    for (uint32_t i = kPages - 1; i > 0; --i) std::swap(ids[i], ids[rng.below(i + 1)]);
    upload(table, ids.data(), ids.size() * 4);
    upload(lens, keys.data(), keys.size() * 4);
  }
  void run() {
    device.launch_kernel(launch, stream.handle());
    device.stream_synchronize(stream.handle());
  }

  SimDevice device;
  Stream stream;
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *lse = nullptr;
  int32_t *table = nullptr, *lens = nullptr;
  PagedAttention call;
  KernelLaunch launch;
};

void BM_CheckedDecode(benchmark::State& state) {
  Decode checked(true), unchecked(false);
  paired(
      state, [&] { checked.run(); }, [&] { unchecked.run(); }, 20, "checked_ns", "unchecked_ns");
  if (const Status status = checked.device.take_findings(); !status.ok())
    state.SkipWithError(status.to_string().c_str());
  const auto per_byte = [&](const void* p) {
    const SimDevice::ShadowCost cost = checked.device.shadow_cost(p);
    return static_cast<double>(cost.shadow_bytes) / static_cast<double>(cost.arena_bytes);
  };
  state.counters["shadow_per_byte_metadata"] = per_byte(checked.table);
  state.counters["shadow_per_byte_kv"] = per_byte(checked.k);
}
BENCHMARK(BM_CheckedDecode)->Iterations(201);

}  // namespace
}  // namespace shadowgraph

BENCHMARK_MAIN();
