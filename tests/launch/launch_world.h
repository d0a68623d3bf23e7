// A device with an arena and a stream, for tests of launches: buffers bound and written, a launch
// run eagerly and as a replay, and what the shadow found.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/choices.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

using Bytes = std::vector<std::byte>;
using Ints = std::vector<int32_t>;

/// What a call that is refused leaves in its outputs.
inline bool is_poison(const Bytes& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; });
}

class LaunchWorld {
 public:
  LaunchWorld() : stream_(device), arena_(device, 1 << 18) {}

  Buffer bind(const char* name, DType dtype, std::vector<int64_t> shape, int64_t granule = 1) {
    const BufferSpec spec{name, dtype, std::move(shape), Lifetime::kPersistent, granule};
    std::vector<Buffer> buffers;
    const Status status = arena_.bind({&spec, 1}, &buffers);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return buffers.at(0);
  }
  template <class T>
  Buffer bind_values(const char* name, DType dtype, const std::vector<T>& values) {
    Buffer b = bind(name, dtype, {static_cast<int64_t>(values.size())});
    write(b, 0, values);
    return b;
  }
  template <class T>
  void write(const Buffer& b, int64_t at, const std::vector<T>& values) {
    EXPECT_TRUE(arena_.write(b, at, std::span<const T>(values)).ok());
    EXPECT_TRUE(arena_.upload(stream_.handle()).ok());
  }
  /// Floats in [-1, 1), in the buffer's type: f32 or bf16.
  void randomise(const Buffer& b) { write_bytes(b, random(b.dtype, b.numel())); }
  void write_bytes(const Buffer& b, const Bytes& bytes) { write_bytes(b, 0, bytes, b.numel()); }
  /// Elements from at on.
  void write_bytes(const Buffer& b, int64_t at, const Bytes& bytes, int64_t count) {
    EXPECT_TRUE(arena_.write(b, at, bytes.data(), count).ok());
    EXPECT_TRUE(arena_.upload(stream_.handle()).ok());
  }
  Bytes random(DType dtype, int64_t count) {
    Bytes bytes(static_cast<size_t>(count) * size_of(dtype));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const float x = rng_.signed_unit();
      uint32_t word = 0;
      std::memcpy(&word, &x, sizeof word);
      if (dtype == DType::kBF16) word >>= 16;
      std::memcpy(&bytes[i * size_of(dtype)], &word, size_of(dtype));
    }
    return bytes;
  }
  void set_owner(const Buffer& b, int64_t row, OwnerId owner) {
    EXPECT_TRUE(arena_.set_owner(b, b.rows(row, 1), owner).ok());
  }

  template <class T>
  static std::span<const T> elements(const Buffer& b) {
    return {reinterpret_cast<const T*>(b.data), static_cast<size_t>(b.numel())};
  }
  Bytes bytes(const Buffer& b) {
    stream_.synchronize();
    return {b.data, b.data + b.bytes()};
  }
  void fill(const Buffer& b, uint32_t byte) { stream_.fill(b.data, byte, b.bytes()); }
  /// What no launch leaves: neither results nor poison.
  void clear(const Buffer& b) { fill(b, 0x55); }
  /// What the call run() leaves in that buffer, when it is made by itself on the device's memory.
  template <class Run>
  Bytes expected(const Buffer& b, const Run& run) {
    clear(b);
    stream_.synchronize();
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return bytes(b);
  }

  /// All that was found, "law: ..." a line; "ok".
  std::string found() {
    stream_.synchronize();
    Status status = stream_.take_status();
    status.add(device.take_findings());
    return status.to_string();
  }
  /// Runs the launch eagerly, then as a replay; prepare() before each, check() after.
  template <class Prepare, class Check>
  void run_both(const KernelLaunch& launch, Prepare prepare, Check check) {
    prepare();
    stream_.launch(launch);
    {
      SCOPED_TRACE("eager");
      check();
    }
    prepare();
    record(launch).replay(stream_);
    SCOPED_TRACE("replayed");
    check();
  }
  GraphExec record(const KernelLaunch& launch) {
    Graph graph;
    GraphExec exec;
    Status status = Graph::record(
        stream_, [&](Stream& s) { s.launch(launch); }, &graph);
    if (status.ok()) status = GraphExec::instantiate(graph, &exec);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return exec;
  }
  Stream& stream() { return stream_; }

  SimDevice device;

 protected:
  Rng rng_{1};

 private:
  Stream stream_;
  Arena arena_;
};

}  // namespace shadowgraph
