// How fast the attention calls are, shape by shape, for Google Benchmark: the rows of the verb
// `bench` that attend, and with --benchmark_filter a grid of many more shapes. Ratios to the
// machine's limits are the verb's work. Before a shape is timed its result is held against the
// oracle: a fast wrong answer is an error here, not a figure.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/problem.h"
#include "bench/rows.h"
#include "bench/team.h"

namespace shadowgraph::bench {
namespace {

constexpr double kMostBytes = 6e9;  // of keys and values

struct Named {
  std::string name;
  Shape shape;
};

/// The problem of this name; the last one is kept, since a benchmark is entered several times.
Problem& problem_of(const Named& named) {
  static std::unique_ptr<Problem> problem;
  static std::string name;
  if (name != named.name) {
    problem.reset();
    name = named.name;
    problem = std::make_unique<Problem>(named.shape, 1, num_cores());
  }
  return *problem;
}

/// Figures: K and V bytes a second (decode: what bounds it), and flop of visible pairs a second.
void attention(benchmark::State& state, const Named& named) {
  if (kv_bytes_of(named.shape) > kMostBytes) return state.SkipWithError("too much memory");
  Problem& problem = problem_of(named);
  pin_team(problem.threads());
  Status status = problem.run();
  if (status.ok()) status = problem.check();
  if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  for (auto _ : state) {
    if (!problem.run().ok()) return state.SkipWithError("refused");
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["flops"] = benchmark::Counter(problem.flop(), rate);
  state.counters["kv_bytes"] = benchmark::Counter(problem.kv_bytes(), rate);
}

void add_decodes(std::vector<Named>& shapes) {
  constexpr std::pair<int32_t, int32_t> kHeads[] = {{32, 8}, {64, 8}, {32, 32}, {28, 4}};
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16})
    for (const auto& [qo, kv] : kHeads)
      for (const int32_t dim : {64, 128})
        for (const int32_t batch : {1, 8, 32})
          for (const int32_t len : {128, 1024, 4096, 16384})
            shapes.push_back(
                {fmt::format("decode/{}/h{}_{}/d{}/b{}/{}", name_of(t), qo, kv, dim, batch, len),
                 decode(t, batch, len).heads(qo, kv).dim(dim)});
}

/// What section "Shapes" of docs/performance.md lists beside the rows.
std::vector<Named> grid() {
  static constexpr int32_t kRagged[] = {17, 64, 300, 1024, 4096, 16384};
  std::vector<Named> shapes;
  add_decodes(shapes);
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto name = name_of(t);
    shapes.push_back({fmt::format("ragged/{}", name), ragged_decode(t, kRagged)});
    shapes.push_back({fmt::format("split/{}/32k", name), decode(t, 1, 32768).heads(4, 1)});
    shapes.push_back({fmt::format("window/{}/16k", name), decode(t, 8, 16384).window(1023)});
    shapes.push_back({fmt::format("window_prefill/{}/16k", name), prefill(t, 16384).window(1023)});
    for (const bool fast : {false, true}) {
      if (fast && t != DType::kBF16) continue;
      const std::string kind = fmt::format("{}{}", name, fast ? "_fast" : "");
      const auto add = [&](const std::string& what, Shape shape) {
        shape.fast_arith = fast;
        shapes.push_back({what, shape});
      };
      for (const int32_t n : {128, 512, 2048})
        add(fmt::format("prefill/{}/{}", kind, n), prefill(t, n));
      Shape four = prefill(t, 512);
      four.batch = 4;
      add(fmt::format("prefill/{}/4x512", kind), four);
      for (const int32_t prefix : {4096, 8192})
        for (const int32_t n : {16, 64, 512})
          add(fmt::format("extend/{}/{}_on_{}", kind, n, prefix), extend(t, n, prefix));
      add(fmt::format("mla_decode/{}/b8/4096", kind), mla_decode(t, 8, 4096));
    }
  }
  return shapes;
}

void register_all(bool with_grid) {
  static std::vector<Named> shapes;
  for (const Row& row : rows()) {
    if (row.shape.attends()) shapes.push_back({std::string(row.id), row.shape});
  }
  if (with_grid) {
    for (Named& named : grid()) shapes.push_back(std::move(named));
  }
  for (const Named& named : shapes) {
    benchmark::RegisterBenchmark(named.name.c_str(),
                                 [&named](benchmark::State& state) { attention(state, named); })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace shadowgraph::bench

int main(int argc, char** argv) {
  bool filtered = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    filtered |= option.starts_with("--benchmark_filter") || option.starts_with("--benchmark_list");
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  shadowgraph::bench::register_all(filtered);
  benchmark::AddCustomContext("isa", std::string(shadowgraph::current_isa()));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
