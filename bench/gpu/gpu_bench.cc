// What the fast GPU bodies reach on this GPU, in units of its limits: decode and merge by memory,
// prefill by the tensor cores. Each shape is a graph, captured once; inputs are rotated so that a
// replay finds none of them in the cache; times are by events, medians over replays.
// Usage: gpu_bench [--portable | --check | --cpu]; --check: results alone; --cpu: the same shapes
// on this machine's cores, by the CPU's engine. Without a GPU it says so in one line.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/gpu/small_call.h"
#include "check/bounds/compare.h"
#include "check/device_calls.h"
#include "core/choices.h"
#include "cuda/cuda_kernels.h"
#include "launch/attention_launch.h"
#include "launch/merge_launch.h"
#include "shadowgraph/device/cuda_device.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {
namespace {

constexpr size_t kPastCache = size_t{256} << 20;  // bytes that are read between two uses of one
constexpr int kReplays = 21;
constexpr size_t kLeastLaunches = 16;  // of decode, in a graph
constexpr double kMemoryRate = 4.8;    // TB/s, of an H200 by its data sheet
constexpr int32_t kHeads = 32, kKvHeads = 8, kDim = 128;

void require(DeviceError error, const char* what) {
  if (error == DeviceError::kSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, std::string(name_of(error)).c_str());
  std::exit(1);
}
void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

/// Device memory of one shape.
class Memory {
 public:
  explicit Memory(DeviceApi& api) : api_(api) {}
  ~Memory() {
    for (void* p : all_) api_.free(p);
  }
  std::byte* take(size_t bytes) {
    void* p = nullptr;
    require(api_.malloc(bytes, &p), "cudaMalloc");
    all_.push_back(p);
    return static_cast<std::byte*>(p);
  }
  /// bf16 numbers in (-2, 2): a block of them, again and again.
  std::byte* random(size_t bytes) {
    std::byte* const to = take(bytes);
    for (size_t at = 0; at < bytes; at += block().size()) {
      const size_t some = std::min(block().size(), bytes - at);
      require(api_.memcpy({.dst = to + at, .src = block().data(), .width = some}), "cudaMemcpy");
    }
    return to;
  }
  template <class T>
  T* copy_of(const std::vector<T>& values) {
    std::byte* const to = take(values.size() * sizeof(T));
    require(api_.memcpy({.dst = to, .src = values.data(), .width = values.size() * sizeof(T)}),
            "cudaMemcpy");
    return reinterpret_cast<T*>(to);
  }

 private:
  static const std::vector<std::byte>& block() {
    static const std::vector<std::byte> block = [] {
      std::vector<std::byte> bytes(size_t{8} << 20);
      Rng rng(3);
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const auto bits = static_cast<uint16_t>(0x3c00u + rng.below(0x400) + (rng.below(2) << 15));
        std::memcpy(&bytes[i], &bits, 2);
      }
      return bytes;
    }();
    return block;
  }

  DeviceApi& api_;
  std::vector<void*> all_;
};

enum class Runs : uint8_t { kAsGraph, kEagerly };

/// Median seconds of what body launches; between: on the stream before each run.
double seconds_of(DeviceApi& api, const std::function<void(Stream&)>& body,
                  Runs runs = Runs::kAsGraph, const std::function<void(Stream&)>& between = {}) {
  Stream stream(api);
  Graph graph;
  GraphExec exec;
  require(api.device_synchronize(), "cudaDeviceSynchronize");  // copies of what it reads
  body(stream);                                                // loads what the first launch loads
  stream.synchronize();
  require(Graph::record(stream, body, &graph));
  require(GraphExec::instantiate(graph, &exec));
  EventHandle start, end;
  require(api.event_create_with_flags(kEventDefault, &start), "cudaEventCreate");
  require(api.event_create_with_flags(kEventDefault, &end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < kReplays + 3; ++i) {
    if (between) between(stream);
    require(api.event_record(start, stream.handle()), "cudaEventRecord");
    if (runs == Runs::kAsGraph) exec.replay(stream);
    if (runs == Runs::kEagerly) body(stream);
    require(api.event_record(end, stream.handle()), "cudaEventRecord");
    stream.synchronize();
    float ms = 0;
    require(api.event_elapsed_time(start, end, &ms), "cudaEventElapsedTime");
    if (i >= 3) times.push_back(ms);
  }
  require(stream.take_status());
  api.event_destroy(start), api.event_destroy(end);
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2] * 1e-3;
}

/// Where shapes are measured: on a GPU, or by the CPU's engine, whose memory is a simulated
/// device's.
struct Machine {
  DeviceApi& api;
  double copy_rate = 0;  // TB/s; 0: no GPU

  bool is_gpu() const { return copy_rate > 0; }

  /// Median seconds of one of the launches: as many as `least`, in turn, in one graph.
  double seconds(const std::vector<KernelLaunch>& launches, size_t least = 1,
                 const std::function<void(Stream&)>& between = {}) const {
    if (!is_gpu()) return cpu_seconds(launches);
    const size_t all = std::max(least, launches.size());
    const auto body = [&](Stream& stream) {
      for (size_t i = 0; i < all; ++i) stream.launch(launches[i % launches.size()]);
    };
    return seconds_of(api, body, Runs::kAsGraph, between) / static_cast<double>(all);
  }
  void print(const std::string& shape, double seconds, double rate, const char* unit, double goal,
             const std::string& shares) const {
    std::printf("%s  %10.1f us  %7.3g %s", shape.c_str(), seconds * 1e6, rate, unit);
    if (is_gpu())
      std::printf("%s  goal %.4g %s", shares.c_str(), goal, rate >= goal ? "met" : "missed");
    std::printf("\n");
  }

 private:
  static double cpu_seconds(const std::vector<KernelLaunch>& launches) {
    constexpr size_t kRuns = 4;  // the first to warm up
    std::vector<double> times;
    for (size_t i = 0; i < kRuns; ++i) {
      const KernelLaunch& launch = launches[i % launches.size()];
      LaunchFrame frame{launch};
      const auto start = std::chrono::steady_clock::now();
      launch.kernel->body(frame);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      if (i > 0) times.push_back(time.count());
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }
};

std::string format(const char* pattern, auto... values) {
  char text[200];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

AttentionParams params() {
  return {.num_qo_heads = kHeads,
          .num_kv_heads = kKvHeads,
          .head_dim_qk = kDim,
          .head_dim_vo = kDim,
          .sm_scale = 0.0883883f,
          .causal = true};
}

/// A decode batch over pages in random order, `sets` of them with pools of their own.
class DecodeSets {
 public:
  DecodeSets(DeviceApi& api, int32_t batch, int32_t len, int32_t page)
      : memory_(api), batch_(batch), len_(len) {
    const int64_t pages = int64_t{batch} * ((len + page - 1) / page);
    const size_t plane =
        static_cast<size_t>(pages + 1) * static_cast<size_t>(page) * kKvHeads * kDim * 2;
    const size_t sets = std::max<size_t>(2, (kPastCache + 2 * plane - 1) / (2 * plane));
    std::vector<int32_t> table(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 1);
    Rng rng(5);
    for (size_t i = table.size(); i > 1; --i)
      std::swap(table[i - 1], table[rng.below(static_cast<uint32_t>(i))]);
    const size_t row = static_cast<size_t>(batch) * kHeads * kDim * 2;
    lens = memory_.copy_of(std::vector<int32_t>(static_cast<size_t>(batch), len));
    for (size_t i = 0; i < sets; ++i) {
      PagedAttention c;
      c.q = TensorView(memory_.random(row), DType::kBF16, {batch, kHeads, kDim});
      const auto pool = [&] {
        return TensorView(memory_.random(plane), DType::kBF16, {pages + 1, page, kKvHeads, kDim});
      };
      c.cache = KvCache::nhd(pool(), pool());
      const std::span<const int32_t> ids(memory_.copy_of(table), table.size());
      c.pages = PageTable::dense(ids, pages / batch, {lens, static_cast<size_t>(batch)});
      c.params = params();
      c.out = TensorView(memory_.take(row), DType::kBF16, {batch, kHeads, kDim});
      c.lse = NaturalLse(TensorView(memory_.take(static_cast<size_t>(batch) * kHeads * 4),
                                    DType::kF32, {batch, kHeads}));
      calls.push_back(attention_launch(c));
    }
  }
  /// Bytes of K and V in one set.
  double kv_bytes() const { return 4.0 * batch_ * len_ * kKvHeads * kDim; }

  std::vector<KernelLaunch> calls;
  int32_t* lens = nullptr;

 private:
  Memory memory_;
  int32_t batch_, len_;
};

void bench_decode(const Machine& machine) {
  struct Shape {
    int32_t batch, len;
    double goal;
  };
  constexpr Shape kShapes[] = {
      {1, 16384, 2.0}, {8, 4096, 3.2}, {32, 4096, 4.2}, {64, 8192, 4.4}, {128, 1024, 3.9}};
  for (const int32_t page : {16, 64}) {
    for (const Shape& s : kShapes) {
      DecodeSets sets(machine.api, s.batch, s.len, page);
      // Lengths change before every replay, by a few keys.
      std::vector<int32_t> lens(static_cast<size_t>(s.batch));
      int replay = 0;
      const auto change = [&](Stream& stream) {
        std::fill(lens.begin(), lens.end(), s.len - replay++ % 8);
        stream.copy(sets.lens, lens.data(), lens.size() * sizeof(int32_t));
        stream.synchronize();
      };
      const double seconds = machine.seconds(sets.calls, kLeastLaunches, change);
      const double rate = sets.kv_bytes() / seconds * 1e-12;
      machine.print(
          format("decode  batch %3d  keys %5d  page %2d", s.batch, s.len, page), seconds, rate,
          "TB/s", s.goal,
          format("  %4.2f of 4.8  %4.2f of copy", rate / kMemoryRate, rate / machine.copy_rate));
    }
  }
}

/// Times a prefill of 4 causal prompts; its operations count visible pairs only.
void bench_prefill(const Machine& machine) {
  constexpr int32_t kBatch = 4, kLen = 8192, kPage = 64;
  constexpr double kTensorCores = 990;  // TFLOP/s of bf16, of an H200 by its data sheet
  Memory memory(machine.api);
  const int64_t tokens = kBatch * kLen, pages = tokens / kPage;
  const auto tensor = [&](int64_t heads) {
    return TensorView(memory.random(static_cast<size_t>(tokens * heads * kDim) * 2), DType::kBF16,
                      {tokens, heads, kDim});
  };
  const auto pool = [&] {
    return TensorView(memory.random(static_cast<size_t>(tokens + kPage) * kHeads * kDim * 2),
                      DType::kBF16, {pages + 1, kPage, kHeads, kDim});
  };
  std::vector<int32_t> table(static_cast<size_t>(pages)), cu(kBatch + 1), lens(kBatch, kLen);
  std::iota(table.begin(), table.end(), 1);
  for (size_t i = 0; i < cu.size(); ++i) cu[i] = static_cast<int32_t>(i) * kLen;
  PagedAttention c;
  c.q = tensor(kHeads);
  c.cache = KvCache::nhd(pool(), pool());
  c.pages = PageTable::dense({memory.copy_of(table), table.size()}, pages / kBatch,
                             {memory.copy_of(lens), lens.size()});
  c.cu_seqlens_q = {memory.copy_of(cu), cu.size()};
  c.params = params();
  c.params.num_kv_heads = kHeads;
  c.out = tensor(kHeads);
  const KernelLaunch launch = attention_launch(c);
  if (machine.is_gpu() && cuda::choose_kernel(launch)->fits == nullptr) {
    std::printf("prefill: the portable body takes too long here\n");
    return;
  }
  const double seconds = machine.seconds({launch});
  const double flops = 4.0 * kDim * kHeads * kBatch * (0.5 * kLen * (kLen + 1.0));
  const double rate = flops / seconds * 1e-12;
  machine.print(format("prefill %d x %d causal, %d heads", kBatch, kLen, kHeads), seconds, rate,
                "TFLOP/s", 340, format("  %4.2f of 990", rate / kTensorCores));
}

void bench_merge(const Machine& machine) {
  constexpr int64_t kRows = 65536, kMergeHeads = 32;
  Memory memory(machine.api);
  MergeState<LseBase::kNatural> c;
  const auto values = [&] {
    return TensorView(memory.random(static_cast<size_t>(kRows * kMergeHeads * kDim) * 2),
                      DType::kBF16, {kRows, kMergeHeads, kDim});
  };
  const auto lses = [&] {
    return TensorView(memory.random(static_cast<size_t>(kRows * kMergeHeads) * 4), DType::kF32,
                      {kRows, kMergeHeads});
  };
  c.v_a = values(), c.v_b = values(), c.out = values();
  c.s_a = lses(), c.s_b = lses();
  c.lse = NaturalLse(lses());
  const KernelLaunch launch = merge_launch(c);
  const double seconds = machine.seconds({launch});
  const double rate = 3.0 * kRows * kMergeHeads * (kDim * 2 + 4) / seconds * 1e-12;
  machine.print(format("merge   rows %d x 32 heads", static_cast<int>(kRows)), seconds, rate,
                "TB/s", 0.85 * machine.copy_rate,
                format("  %4.2f of copy", rate / machine.copy_rate));
}

/// TB/s, bytes read and written: of copies outside of graphs, whose copy nodes are slower.
double copy_bandwidth(DeviceApi& api) {
  constexpr size_t kBytes = size_t{2} << 30;
  Memory memory(api);
  std::byte *const from = memory.take(kBytes), *const to = memory.take(kBytes);
  const auto copy = [&](Stream& s) { s.copy(to, from, kBytes); };
  // First until its clocks are those of a GPU at work.
  for (int i = 0; i < 20; ++i) (void)seconds_of(api, copy, Runs::kEagerly);
  const double rate = 2.0 * kBytes / seconds_of(api, copy, Runs::kEagerly) * 1e-12;
  std::printf("copy    %.2f TB/s; as a node of a graph %.2f\n", rate,
              2.0 * kBytes / seconds_of(api, copy) * 1e-12);
  return rate;
}

/// Each feature of the fast bodies, eagerly and replayed, against the oracle: false if one is
/// wrong.
bool check_results(DeviceApi& api) {
  DeviceCalls calls(api);
  bool right = true;
  for (const auto& [name, shape] : small::shapes()) {
    small::Call c(shape);
    Status status = calls.run(c.call);
    Judgement j;
    if (status.ok()) {
      j = judge(c.call, {c.call.out, c.call.lse.tensor},
                *find_arithmetic(small::arithmetic_of(shape)), {.bounded = true});
      status = j.findings;
    }
    right = right && status.ok();
    std::printf("check   %-40s %s  error / bound %.3f\n", name, status.ok() ? "right" : "WRONG",
                j.error_over_bound);
    if (!status.ok()) std::printf("%s\n", status.to_string().c_str());
  }
  return right;
}

void measure(const Machine& machine) {
  bench_merge(machine);
  bench_decode(machine);
  bench_prefill(machine);
}

int run_on_cpu() {
  SimDevice memory({.seed = 0, .choose = {}, .checked = false});
  measure({memory});
  return 0;
}

int run(bool results_alone) {
  std::string why;
  const std::unique_ptr<DeviceApi> api = open_cuda_device(&why);
  if (api == nullptr) {
    std::printf("gpu_bench: %s: nothing to measure\n", why.c_str());
    return 0;
  }
  std::printf("bodies: %s\n", cuda::uses_fast_kernels() ? "fast where they fit" : "portable");
  const bool right = check_results(*api);
  if (results_alone) return right ? 0 : 1;
  measure({*api, copy_bandwidth(*api)});
  return right ? 0 : 1;
}

}  // namespace
}  // namespace shadowgraph

int main(int count, char** args) {
  const auto given = [&](const char* option) {
    return count > 1 && std::strcmp(args[1], option) == 0;
  };
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (given("--cpu")) return shadowgraph::run_on_cpu();
  if (!given("--portable")) setenv("SHADOWGRAPH_CUDA_FAST", "1", 1);
  return shadowgraph::run(given("--check"));
}
