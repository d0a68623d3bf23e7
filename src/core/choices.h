// Choices: the only source of variety. A generated case is a function of a stream of bounded
// integers; whoever feeds the stream (a seed, a recorded sequence, a fuzzer's bytes, an odometer)
// chooses the case, and shrinks it by shrinking the stream. Tested by tests/core/choices_test.cc.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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

/// A named draw of a generated case, which is a factor of its covering design, and its outcome.
struct Level {
  std::string_view factor;                 // a literal of the generator
  int64_t value = 0;                       // level_value's
  std::string (*text)(int64_t) = nullptr;  // of the value
  bool is_number = false;                  // and not a name, or yes or no

  bool operator==(const Level& other) const {
    return value == other.value && factor == other.factor;
  }
  /// "page_size 4".
  std::string to_string() const { return std::string(factor) + " " + text(value); }
};

/// Numbers, truth values and enumerators; a float has the number of its bits.
template <class T>
constexpr int64_t level_value(T v) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<int32_t>(v);
  } else {
    return static_cast<int64_t>(v);
  }
}

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// "4", "yes", or an enumerator's name where a name_of knows it.
template <class T>
std::string level_text(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0 ? "yes" : "no";
  } else if constexpr (std::is_same_v<T, float>) {
    std::string s = std::to_string(std::bit_cast<float>(static_cast<int32_t>(value)));
    s.erase(s.find_last_not_of('0') + 1);
    return s.ends_with('.') ? s + "0" : s;
  } else if constexpr (requires { name_of(static_cast<T>(value)); }) {
    return std::string(name_of(static_cast<T>(value)));
  } else {
    return std::to_string(value);
  }
}

/// Levels that random choices should take. Choices that were made give their case without them.
struct Wishes {
  std::vector<Level> levels;  // a named draw takes its own, where it has that
  bool even = false;          // other named draws take each of their levels as often as any other
};

class Choices {
 public:
  /// Random choices.
  explicit Choices(Rng rng, Wishes wishes = {}) : rng_(rng), wishes_(std::move(wishes)) {}
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
    return make(value, bound);
  }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint32_t>(high - low + 1)));
  }
  bool one_in(uint32_t n) { return below(n) == n - 1; }
  template <class T>
  T of(std::initializer_list<T> options) {
    return *(options.begin() + below(static_cast<uint32_t>(options.size())));
  }

  /// The same draws with a name: factors of a covering design (core/covering.h). A factor has few
  /// levels, and the case has what comes out. Of draws with one name the first has the wish.
  bool one_in(std::string_view factor, uint32_t n) {
    return choose<bool>(factor, n, [n](uint32_t raw) { return raw == n - 1; });
  }
  int between(std::string_view factor, int low, int high) {
    return choose<int>(factor, static_cast<uint32_t>(high - low + 1),
                       [low](uint32_t raw) { return low + static_cast<int>(raw); });
  }
  template <class T>
  T of(std::string_view factor, std::span<const T> options) {
    return choose<T>(factor, static_cast<uint32_t>(options.size()),
                     [options](uint32_t raw) { return options[raw]; });
  }
  template <class T>
  T of(std::string_view factor, std::initializer_list<T> options) {
    return of(factor, std::span<const T>(options.begin(), options.size()));
  }

  /// What was chosen so far: feeding it back gives the same case.
  const std::vector<uint32_t>& made() const { return made_; }
  /// The bound of each choice.
  const std::vector<uint32_t>& bounds() const { return bounds_; }
  /// The outcomes of the named draws, in their order.
  const std::vector<Level>& levels() const { return levels_; }

 private:
  uint32_t make(uint32_t value, uint32_t bound) {
    made_.push_back(value);
    bounds_.push_back(bound);
    return value;
  }
  template <class T, class ValueOf>
  T choose(std::string_view factor, uint32_t bound, ValueOf value_of) {
    const auto level_of = [&](uint32_t raw) { return level_value<T>(value_of(raw)); };
    uint32_t raw = bound;
    const auto wish = std::ranges::find(wishes_.levels, factor, &Level::factor);
    if (wish != wishes_.levels.end()) {
      for (raw = 0; raw < bound && level_of(raw) != wish->value;) ++raw;
      wishes_.levels.erase(wish);
    }
    if (raw == bound && wishes_.even) {
      std::vector<uint32_t> first_of_level;
      for (uint32_t r = 0; r < bound; ++r)
        if (std::ranges::find(first_of_level, level_of(r), level_of) == first_of_level.end())
          first_of_level.push_back(r);
      raw = first_of_level[rng_.below(static_cast<uint32_t>(first_of_level.size()))];
    }
    const T value = value_of(raw < bound ? make(raw, bound) : below(bound));
    levels_.push_back({factor, level_value(value), level_text<T>, is_number<T>});
    return value;
  }

  Rng rng_;
  Wishes wishes_;
  std::vector<Level> levels_;
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
/// Do both make the same case? Past the end of a list every choice is 0.
bool same_choices(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace shadowgraph
