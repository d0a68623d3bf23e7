// What the simulated device costs: a replay beside a plain loop, a checked launch beside an
// unchecked one, the shadow beside the memory. Both sides of a ratio run in turn, in one process;
// a figure is the median over rounds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "bench/device_decode.h"
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

void BM_CheckedDecode(benchmark::State& state) {
  bench::DeviceDecode checked(true), unchecked(false);
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
