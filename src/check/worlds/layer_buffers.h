// What layers have alike in a runner's world: specs of their buffers, numbers and copies from the
// host, and outputs held against those of a request alone. Tested by tests/check/*_world_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "check/runner.h"
#include "core/choices.h"
#include "graph/memory/memory.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

/// A buffer whose vectors, along its last axis, are written whole.
BufferSpec vectors_of(const char* name, DType dtype, std::vector<int64_t> shape,
                      Lifetime lifetime = Lifetime::kPersistent);
inline BufferSpec f32_vectors(const char* name, std::vector<int64_t> shape,
                              Lifetime lifetime = Lifetime::kPersistent) {
  return vectors_of(name, DType::kF32, std::move(shape), lifetime);
}
/// RunnerOptions::wide_pools, where this build and this device have such memory. A diagnosis reads
/// whole pools.
inline bool has_wide_pools(const RunnerOptions& o) {
  return kHasWideMemory && o.wide_pools && !o.make_device && !o.diagnose;
}
/// What these elements are on the device.
inline std::span<std::byte> bytes_at(const Buffer& b, Elements e) {
  const size_t size = size_of(b.dtype);
  return {b.data + static_cast<size_t>(e.first) * size, static_cast<size_t>(e.count) * size};
}

/// In [-1, 1); of exact data small integers: what is foreign shows.
std::vector<float> layer_numbers(int64_t count, RunnerData data, Rng& rng);

/// Copies from the host, whose sources live until the device has idled.
class HostCopies {
 public:
  explicit HostCopies(Stream& stream) : stream_(stream) {}

  void copy(std::byte* to, const void* from, size_t bytes);
  template <class T>
  void copy(std::byte* to, const std::vector<T>& values) {
    copy(to, values.data(), values.size() * sizeof(T));
  }
  /// The device idles.
  void clear() { in_flight_.clear(); }

 private:
  Stream& stream_;
  std::deque<std::vector<std::byte>> in_flight_;
};

/// A layer's tensors over the first tokens: one of each number, which lives as long as this.
template <class Tensors>
class TensorsOfTokens {
 public:
  const Tensors& first(int64_t tokens, const Tensors& whole) {
    return narrowed_.try_emplace(tokens, whole.rows(0, tokens)).first->second;
  }

 private:
  std::map<int64_t, Tensors> narrowed_;
};

/// num.bits unless the rows of an f32 output from that one on have the bits of a request alone.
Status compare_outputs(const Buffer& out, int64_t first, std::span<const float> want);

}  // namespace shadowgraph
