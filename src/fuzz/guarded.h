// GuardedBuffer: memory full of poison, with margins that nobody may touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace shadowgraph {

/// All bits set: NaN in every float type, -1 in every integer.
inline constexpr std::byte kPoison{0xff};

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  /// `skew` bytes off a 64-byte boundary.
  GuardedBuffer(int64_t bytes, int64_t skew)
      : memory_(static_cast<size_t>(bytes + skew + 3 * kMargin), kPoison), size_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = static_cast<int64_t>((kMargin - address % kMargin) % kMargin) + kMargin + skew;
  }
  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }
  int64_t size() const { return size_; }

  /// Is everything poison, margins included?
  bool untouched() const {
    // Equal to itself one byte further on: all bytes are the first.
    return memory_.empty() ||
           (memory_[0] == kPoison &&
            std::memcmp(memory_.data(), memory_.data() + 1, memory_.size() - 1) == 0);
  }
  void poison() { std::fill(memory_.begin(), memory_.end(), kPoison); }
  /// Offset from data() of the first byte that differs, margins included; nothing if none does.
  std::optional<int64_t> first_difference(const GuardedBuffer& other) const {
    const auto [mine, its] =
        std::mismatch(memory_.begin(), memory_.end(), other.memory_.begin(), other.memory_.end());
    if (mine == memory_.end() && its == other.memory_.end()) return std::nullopt;
    return mine - memory_.begin() - start_;
  }
  /// A number that changes when any byte does, margins included.
  uint64_t fingerprint() const {
    uint64_t lanes[4] = {1, 2, 3, 4};
    size_t i = 0;
    for (; i + sizeof lanes <= memory_.size(); i += sizeof lanes) {
      uint64_t words[4];
      std::memcpy(words, memory_.data() + i, sizeof words);
      for (int n = 0; n < 4; ++n) {
        lanes[n] = (lanes[n] ^ words[n]) * 0x9e3779b97f4a7c15u;
        lanes[n] ^= lanes[n] >> 29;
      }
    }
    uint64_t h = lanes[0] + 3 * lanes[1] + 5 * lanes[2] + 7 * lanes[3];
    for (; i < memory_.size(); ++i)
      h = (h ^ std::to_integer<uint64_t>(memory_[i])) * 0x100000001b3u;
    return h;
  }

 private:
  static constexpr int64_t kMargin = 64;
  std::vector<std::byte> memory_;
  int64_t size_ = 0, start_ = 0;
};

}  // namespace shadowgraph
