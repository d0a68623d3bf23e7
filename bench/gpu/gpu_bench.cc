// What the fast GPU bodies reach on this GPU, in units of its limits: decode and merge by memory,
// prefill by the tensor cores. Each shape is a graph, captured once; inputs are rotated so that a
// replay finds none of them in the cache; times are by events, medians over replays.
// Usage: gpu_bench [--portable | --check]; --check: results alone. Without a GPU it says so in one
// line.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/attention_launch.h"
#include "backends/merge_launch.h"
#include "bench/gpu/small_call.h"
#include "check/compare.h"
#include "check/device_calls.h"
#include "core/choices.h"
#include "cuda/cuda_kernels.h"
#include "shadowgraph/cuda_device.h"
#include "shadowgraph/graph.h"

namespace shadowgraph {
namespace {

constexpr size_t kPastCache = size_t{256} << 20;  // bytes that are read between two uses of one
constexpr int kReplays = 21;
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

/// Median seconds of what body launches, as a graph; between: on the stream before each replay.
double seconds_of(DeviceApi& api, const std::function<void(Stream&)>& body,
                  const std::function<void(Stream&)>& between = {}) {
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
    exec.replay(stream);
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
  /// Of one set.
  double kv_bytes() const { return 4.0 * batch_ * len_ * kKvHeads * kDim; }

  std::vector<KernelLaunch> calls;
  int32_t* lens = nullptr;

 private:
  Memory memory_;
  int32_t batch_, len_;
};

void bench_decode(DeviceApi& api, double copy_rate) {
  struct Shape {
    int32_t batch, len;
    double goal;
  };
  constexpr Shape kShapes[] = {
      {1, 16384, 2.0}, {8, 4096, 3.2}, {32, 4096, 4.2}, {64, 8192, 4.4}, {128, 1024, 3.9}};
  for (const int32_t page : {16, 64}) {
    for (const Shape& s : kShapes) {
      DecodeSets sets(api, s.batch, s.len, page);
      const auto launch_all = [&](Stream& stream) {
        for (const KernelLaunch& call : sets.calls) stream.launch(call);
      };
      // Lengths change before every replay, by a few keys.
      std::vector<int32_t> lens(static_cast<size_t>(s.batch));
      int replay = 0;
      const auto change = [&](Stream& stream) {
        std::fill(lens.begin(), lens.end(), s.len - replay++ % 8);
        stream.copy(sets.lens, lens.data(), lens.size() * sizeof(int32_t));
        stream.synchronize();
      };
      const double seconds =
          seconds_of(api, launch_all, change) / static_cast<double>(sets.calls.size());
      const double rate = sets.kv_bytes() / seconds * 1e-12;
      std::printf(
          "decode  batch %3d  keys %5d  page %2d  %8.1f us  %5.2f TB/s  %4.2f of copy  "
          "goal %.1f %s\n",
          s.batch, s.len, page, seconds * 1e6, rate, rate / copy_rate, s.goal,
          rate >= s.goal ? "met" : "missed");
    }
  }
}

/// Of 4 causal prompts, in tera-operations: visible pairs alone.
void bench_prefill(DeviceApi& api) {
  constexpr int32_t kBatch = 4, kLen = 8192, kPage = 64;
  Memory memory(api);
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
  if (cuda::choose_kernel(launch)->fits == nullptr) {
    std::printf("prefill: the portable body takes too long here\n");
    return;
  }
  const double seconds = seconds_of(api, [&](Stream& s) { s.launch(launch); });
  const double flops = 4.0 * kDim * kHeads * kBatch * (0.5 * kLen * (kLen + 1.0));
  std::printf("prefill %d x %d causal, %d heads  %8.3f ms  %6.1f TFLOP/s  goal 340 %s\n", kBatch,
              kLen, kHeads, seconds * 1e3, flops / seconds * 1e-12,
              flops / seconds >= 340e12 ? "met" : "missed");
}

void bench_merge(DeviceApi& api, double copy_rate) {
  constexpr int64_t kRows = 65536, kMergeHeads = 32;
  Memory memory(api);
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
  const double seconds = seconds_of(api, [&](Stream& s) { s.launch(launch); });
  const double rate = 3.0 * kRows * kMergeHeads * (kDim * 2 + 4) / seconds * 1e-12;
  std::printf("merge   rows %ld  %8.1f us  %5.2f TB/s  %4.2f of copy  goal 0.85 %s\n",
              static_cast<long>(kRows), seconds * 1e6, rate, rate / copy_rate,
              rate / copy_rate >= 0.85 ? "met" : "missed");
}

/// TB/s, bytes read and written.
double copy_bandwidth(DeviceApi& api) {
  constexpr size_t kBytes = size_t{2} << 30;
  Memory memory(api);
  std::byte *const from = memory.take(kBytes), *const to = memory.take(kBytes);
  const double seconds = seconds_of(api, [&](Stream& s) { s.copy(to, from, kBytes); });
  const double rate = 2.0 * kBytes / seconds * 1e-12;
  std::printf("copy    %.2f TB/s\n", rate);
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
  const double copy_rate = copy_bandwidth(*api);
  bench_merge(*api, copy_rate);
  bench_decode(*api, copy_rate);
  bench_prefill(*api);
  return right ? 0 : 1;
}

}  // namespace
}  // namespace shadowgraph

int main(int count, char** args) {
  const auto given = [&](const char* option) {
    return count > 1 && std::strcmp(args[1], option) == 0;
  };
  if (!given("--portable")) setenv("SHADOWGRAPH_CUDA_FAST", "1", 1);
  return shadowgraph::run(given("--check"));
}
