// One simulated device with what the patterns of frameworks need: a stream, an arena, tensors, and
// kernels with rows.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "conformance/kernels.h"
#include "graph/memory/graph_pool.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

using Ints = std::vector<int32_t>;

inline int32_t* ints(const Buffer& b) { return reinterpret_cast<int32_t*>(b.data); }
inline std::span<const std::byte> bytes_of(const Ints& values) {
  return std::as_bytes(std::span(values));
}

// Kernels whose accesses belong to rows.
namespace kernels {

inline void span(Footprint* spans, const void* p, int64_t first, int64_t count, Access access,
                 int32_t row) {
  spans->push_back({p, first, count, sizeof(int32_t), access, row});
}
/// Row i: reads rows[i] and slot[i], and there cache.
inline void row_spans(const LaunchFrame& f, size_t rows, Access rows_access, size_t cache,
                      Access cache_access, size_t slot, Footprint* spans) {
  const auto* slots = f.pointer<int32_t>(slot);
  for (int32_t i = 0; i < f.scalar<int32_t>(3); ++i) {
    span(spans, slots, i, 1, Access::kRead, i);
    span(spans, f.pointer<int32_t>(rows), i, 1, rows_access, i);
    span(spans, f.pointer<int32_t>(cache), slots[i], 1, cache_access, i);
  }
}

/// scatter(cache, slot, x, n): cache[slot[i]] = x[i].
inline const Kernel scatter{"scatter",
                            [](LaunchFrame& f) {
                              for (int32_t i = 0; i < f.scalar<int32_t>(3); ++i)
                                f.pointer<int32_t>(0)[f.pointer<int32_t>(1)[i]] =
                                    f.pointer<int32_t>(2)[i];
                              return Progress::kDone;
                            },
                            [](const LaunchFrame& f, Footprint* spans) {
                              row_spans(f, 2, Access::kRead, 0, Access::kWrite, 1, spans);
                            }};

/// gather(out, cache, slot, n): out[i] = cache[slot[i]].
inline const Kernel gather{"gather",
                           [](LaunchFrame& f) {
                             for (int32_t i = 0; i < f.scalar<int32_t>(3); ++i)
                               f.pointer<int32_t>(0)[i] =
                                   f.pointer<int32_t>(1)[f.pointer<int32_t>(2)[i]];
                             return Progress::kDone;
                           },
                           [](const LaunchFrame& f, Footprint* spans) {
                             row_spans(f, 0, Access::kWrite, 1, Access::kRead, 2, spans);
                           }};

/// attend(out, x, n) on f32: every row a sum over all rows, so that the order of additions shows.
inline const Kernel attend{
    "attend",
    [](LaunchFrame& f) {
      const int32_t n = f.scalar<int32_t>(2);
      const auto* x = f.pointer<float>(1);
      for (int32_t i = 0; i < n; ++i) {
        float sum = 0;
        for (int32_t j = 0; j < n; ++j) sum += std::exp(x[i] * x[j]);
        f.pointer<float>(0)[i] = sum;
      }
      return Progress::kDone;
    },
    [](const LaunchFrame& f, Footprint* spans) {
      span(spans, f.pointer<float>(1), 0, f.scalar<int32_t>(2), Access::kRead, -1);
      span(spans, f.pointer<float>(0), 0, f.scalar<int32_t>(2), Access::kWrite, -1);
    }};

}  // namespace kernels

class Rig {
 public:
  static SimOptions options(uint64_t seed, size_t memory_bytes) {
    SimOptions o;
    o.seed = seed, o.memory_bytes = memory_bytes;
    return o;
  }
  explicit Rig(uint64_t seed = 0)
      : device(options(seed, size_t{1} << 26)),
        stream(device),
        allocator(device),
        arena(device, 1 << 16) {}

  Buffer bind(const char* name, int64_t rows, Lifetime lifetime = Lifetime::kPersistent,
              DType dtype = DType::kI32) {
    const BufferSpec spec{name, dtype, {rows}, lifetime};
    std::vector<Buffer> buffers;
    const Status status = arena.bind({&spec, 1}, &buffers);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return buffers.at(0);
  }
  void write(const Buffer& b, const Ints& values) {
    Status status = arena.write(b, 0, std::span<const int32_t>(values));
    if (status.ok()) status = arena.upload(stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  /// What is there when all work of the stream is done; not an output in the sense of a pattern.
  Ints read(const void* p, size_t count) {
    Ints values(count);
    stream.synchronize();
    stream.copy(values.data(), p, count * sizeof(int32_t));
    stream.synchronize();
    return values;
  }
  Ints read(const Buffer& b) { return read(b.data, static_cast<size_t>(b.numel())); }
  Ints read(const WeakOutput& output) {
    Ints values(output.bytes / sizeof(int32_t));
    const Status status = output.read(stream, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status.to_string();
    return values;
  }
  WeakOutput output(const void* p, size_t count) {
    return WeakOutput::of(device, p, count * sizeof(int32_t));
  }

  PooledGraph record(const std::function<void(Stream&)>& body,
                     std::shared_ptr<GraphPool> pool = nullptr) {
    if (pool == nullptr) pool = GraphPool::create(device);
    PooledGraph recorded;
    const Status status = PooledGraph::record(stream, allocator, pool, body, &recorded);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return recorded;
  }
  /// All work done; the ids of what was found since the last call, sorted, each once.
  std::string found() {
    stream.synchronize();
    Status all = device.take_findings();
    all.add(stream.take_status());
    std::set<std::string> ids;
    for (const Finding& f : std::as_const(all).findings()) ids.insert(f.id);
    std::string text;
    for (const std::string& id : ids) text += (text.empty() ? "" : " ") + id;
    return text;
  }

  SimDevice device;
  Stream stream;
  TensorAllocator allocator;
  Arena arena;
};

/// The same under several schedules: what a program is told must not depend on the device's pace.
inline void on_every_schedule(const std::function<void(Rig&)>& program) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rig rig(seed);
    program(rig);
  }
}

/// One launch over n elements.
template <class... Values>
void launch(Stream& s, const Kernel& kernel, const Values&... values) {
  KernelLaunch l;
  l.kernel = &kernel, l.block.x = 64, l.args = k::args(values...);
  s.launch(l);
}

}  // namespace shadowgraph
