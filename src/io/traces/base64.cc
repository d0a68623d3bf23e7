#include "io/traces/base64.h"

#include <array>
#include <cstdint>

namespace shadowgraph {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;

constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  return values;
}();

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  char* to = text.data();
  const auto byte = [&](size_t i) { return uint32_t{static_cast<uint8_t>(bytes[i])}; };
  const auto digits = [&](uint32_t bits, int count) {
    for (int j = 0; j < count; ++j) to[j] = kDigits[bits >> (18 - 6 * j) & 63];
    to += 4;
  };
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) digits(byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2), 4);
  if (bytes.size() - i == 2) digits(byte(i) << 16 | byte(i + 1) << 8, 3);
  if (bytes.size() - i == 1) digits(byte(i) << 16, 2);
  return text;
}

bool from_base64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes->reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t bits = 0;
    for (size_t j = i; j < i + 4; ++j) {
      const bool digit = j + padding < text.size();
      const uint8_t value = digit ? kValues[static_cast<uint8_t>(text[j])] : uint8_t{0};
      if (value == kNoDigit) return false;
      bits = bits << 6 | value;
    }
    for (int shift = 16; shift >= 0; shift -= 8) *bytes += static_cast<char>(bits >> shift & 255);
  }
  bytes->resize(bytes->size() - padding);
  return true;
}

}  // namespace shadowgraph
