#include "report/pairs.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

int64_t PairsReport::num_met() const { return std::ranges::count(met, true); }

bool PairsReport::join(const PairsReport& other) {
  unmet.clear();
  if (other.of == 0) return true;
  if (of == 0) of = other.of, met = other.met;
  if (of != other.of) return false;
  for (size_t i = 0; i < met.size(); ++i)
    if (other.met[i]) met[i] = true;
  return true;
}

std::string PairsReport::to_hex() const {
  std::string digits;
  for (size_t i = 0; i < met.size(); i += 4) {
    size_t value = 0;
    for (size_t j = i; j < i + 4; ++j) value = 2 * value + (j < met.size() && met[j] ? 1 : 0);
    digits += kDigits[value];
  }
  return digits;
}

bool PairsReport::set_hex(std::string_view digits) {
  if (static_cast<int64_t>(digits.size()) != (of + 3) / 4) return false;
  met.assign(static_cast<size_t>(of), false);
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t value = kDigits.find(digits[i]);
    if (value == std::string_view::npos) return false;
    for (size_t j = 0; j < 4; ++j) {
      const bool is_met = (value >> (3 - j) & 1) != 0;
      if (4 * i + j < met.size()) {
        met[4 * i + j] = is_met;
      } else if (is_met) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace shadowgraph
