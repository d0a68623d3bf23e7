// What layers have alike in a runner's world: specs of their buffers, numbers and copies from the
// host, and outputs held against those of a request alone. Tested by
// tests/check/{recurrent,sparse,v4}_world_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "check/runner.h"
#include "core/choices.h"
#include "shadowgraph/arena.h"
#include "shadowgraph/graph.h"

namespace shadowgraph {

/// A buffer whose vectors, along its last axis, are written whole.
BufferSpec vectors_of(const char* name, DType dtype, std::vector<int64_t> shape,
                      Lifetime lifetime = Lifetime::kPersistent);
inline BufferSpec f32_vectors(const char* name, std::vector<int64_t> shape,
                              Lifetime lifetime = Lifetime::kPersistent) {
  return vectors_of(name, DType::kF32, std::move(shape), lifetime);
}
/// Elements of an index of its first axis; of none 0.
int64_t row_elements(const Buffer& b);

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

/// num.bits unless the rows of an f32 output from that one on have the bits of a request alone.
Status compare_outputs(const Buffer& out, int64_t first, std::span<const float> want);

}  // namespace shadowgraph
