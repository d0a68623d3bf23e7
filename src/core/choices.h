// Choices: the only source of variety. A generated case is a function of a stream of bounded
// integers; whoever feeds the stream (a seed, a recorded sequence, a fuzzer's bytes, an odometer)
// chooses the case, and shrinks it by shrinking the stream. Tested by tests/core/choices_test.cc.
#pragma once

#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shadowgraph {

/// A small counter-based generator (SplitMix64; Steele, Lea, Flood 2014): the same numbers on every
/// machine.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 <= r < bound, by multiplication; the bias of bound / 2^32 does not matter here.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
  /// Uniform in [-1, 1), a multiple of 2^-23.
  float signed_unit() {
    return static_cast<float>(static_cast<int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f;
  }

  /// An independent stream for item number index; (a, b) and (b, a) are two streams.
  static Rng stream(uint64_t seed, uint64_t index) {
    const uint64_t of_seed = Rng(seed).next();
    return Rng(Rng(of_seed ^ index).next());
  }

 private:
  uint64_t state_;
};

/// Any order of the elements is as likely as any other.
template <class T>
void shuffle(std::vector<T>& list, Rng& rng) {
  for (size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[rng.below(static_cast<uint32_t>(i))]);
}

class Choices {
 public:
  /// Random choices.
  explicit Choices(Rng rng) : rng_(rng) {}
  /// Recorded choices; past their end every choice is 0, the simplest.
  explicit Choices(std::span<const uint32_t> recorded)
      : rng_(0), replay_(recorded.begin(), recorded.end()), replaying_(true) {}

  /// Choices of a caller, who is told the bound; a number beyond it counts from 0 again.
  using Chooser = uint32_t (*)(void* context, uint32_t bound);
  Choices(Chooser chooser, void* context) : rng_(0), chooser_(chooser), context_(context) {}

  /// 0 <= r < bound. 0 should be the simplest outcome: shrinking goes there.
  uint32_t below(uint32_t bound) {
    assert(bound > 0);
    uint32_t value = 0;
    if (chooser_ != nullptr) {
      value = chooser_(context_, bound) % bound;
    } else if (!replaying_) {
      value = rng_.below(bound);
    } else if (made_.size() < replay_.size()) {
      value = replay_[made_.size()] % bound;
    }
    made_.push_back(value);
    bounds_.push_back(bound);
    return value;
  }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint32_t>(high - low + 1)));
  }
  bool one_in(uint32_t n) { return below(n) == n - 1; }
  template <class T>
  T of(std::initializer_list<T> options) {
    return *(options.begin() + below(static_cast<uint32_t>(options.size())));
  }

  /// What was chosen so far: feeding it back gives the same case.
  const std::vector<uint32_t>& made() const { return made_; }
  /// The bound of each choice.
  const std::vector<uint32_t>& bounds() const { return bounds_; }

 private:
  Rng rng_;
  std::vector<uint32_t> replay_, made_, bounds_;
  bool replaying_ = false;
  Chooser chooser_ = nullptr;
  void* context_ = nullptr;
};

/// The odometer: what to choose next, once choices have made a case, so that every case comes once.
/// The first `fixed` ones stay as they are. nullopt: there is no other case.
std::optional<std::vector<uint32_t>> next_choices(const Choices& choices, size_t fixed = 0);

/// "3.0.1": as a command takes it; of none "0", which means the same.
std::string to_text(std::span<const uint32_t> choices);
/// nullopt: no such list.
std::optional<std::vector<uint32_t>> choices_of(std::string_view text);

/// What a case read of a list; made: its choices (Choices::made).
struct ChoicesRead {
  std::vector<size_t> out_of_range;  // places of numbers that were too large: another was read
  size_t behind = 0;                 // numbers behind the last choice
  bool none = true;                  // no number was read as it stands
};
ChoicesRead compare_choices(std::span<const uint32_t> given, std::span<const uint32_t> made);

}  // namespace shadowgraph
