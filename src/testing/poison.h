// What an element of a builder's array holds until a step writes it: a number that no metadata has,
// which also says how long ago it was written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace shadowgraph::testing {

/// Integers have one poison for each age; of bytes most are a legal mask, so they have two.
template <class T>
inline constexpr int kOldest = 255;
template <>
inline constexpr int kOldest<uint8_t> = 1;
template <class T>
inline constexpr T kFirstPoison = std::numeric_limits<T>::min();
template <>
inline constexpr uint8_t kFirstPoison<uint8_t> = 0xa5;

/// age: steps since it was written, 0: never.
template <class T>
constexpr T poison(int age) {
  return static_cast<T>(kFirstPoison<T> + std::min(age, kOldest<T>));
}

/// nullopt: the element is written.
template <class T>
constexpr std::optional<int> poison_age(T value) {
  if (value < kFirstPoison<T> || value > poison<T>(kOldest<T>)) return std::nullopt;
  return static_cast<int>(value - kFirstPoison<T>);
}

}  // namespace shadowgraph::testing
