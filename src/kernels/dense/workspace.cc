#include "kernels/dense/workspace.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <new>

namespace shadowgraph {
namespace {

constexpr std::align_val_t kAlignment{kCacheLine};

/// Memory that grows and stays. What it held is lost when it grows.
class Chunk {
 public:
  std::byte* at_least(int64_t bytes) {
    if (bytes > size_) {
      // A half more than asked for: lengths grow from step to step.
      const int64_t size = bytes + bytes / 2;
      memory_.reset();
      size_ = 0;
      memory_.reset(
          static_cast<std::byte*>(::operator new[](static_cast<size_t>(size), kAlignment)));
      size_ = size;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace

int64_t saturating_bytes(int64_t count, int64_t each) {
  constexpr int64_t kMost = int64_t{1} << 60;  // no edge: more than any memory
  int64_t bytes = 0;
  return __builtin_mul_overflow(count, each, &bytes) ? kMost : std::min(bytes, kMost);
}

std::optional<Carver> Workspace::take(int64_t bytes) {
  assert(taken_ < kTakes);
  if (own_) {
    static thread_local std::array<Chunk, kTakes> chunks;
    return Carver(chunks[static_cast<size_t>(taken_++)].at_least(bytes));
  }
  const auto address = reinterpret_cast<uintptr_t>(given_.data());
  const auto skip = static_cast<int64_t>(-address % static_cast<uintptr_t>(kCacheLine));
  if (skip + bytes > static_cast<int64_t>(given_.size())) return std::nullopt;
  given_ = given_.subspan(static_cast<size_t>(skip));
  const Carver carver(given_.data());
  given_ = given_.subspan(static_cast<size_t>(bytes));
  ++taken_;
  return carver;
}

}  // namespace shadowgraph
