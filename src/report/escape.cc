#include "report/escape.h"

#include <algorithm>
#include <cstdint>

namespace shadowgraph {
namespace {

constexpr char kHex[] = "0123456789abcdef";

struct CodePoint {
  uint32_t value = 0;
  size_t size = 0;  // bytes; 0: not UTF-8
};

/// The first code point of a text that is not empty. Overlong forms, surrogates and values past
/// U+10FFFF are not UTF-8.
CodePoint decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
  uint32_t value = lead & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || (value >= 0xd800 && value < 0xe000) || value > 0x10ffff) return {};
  return {value, size};
}

bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) ||        // C0, DEL, C1
         c == 0x061c || c == 0x200e || c == 0x200f ||  // direction marks
         (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) ||  // line separators, direction overrides
         (c & 0xfffe) == 0xfffe;          // no characters
}

/// A byte for each of text's, or '\xNN' for each byte of what is not printable.
template <class Special>
std::string escape(std::string_view text, const Special& special) {
  std::string s;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    const size_t size = std::max<size_t>(c.size, 1);
    if (c.size == 0 || is_control(c.value)) {
      for (size_t i = 0; i < size; ++i) {
        const auto byte = static_cast<uint8_t>(text[i]);
        s += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    } else {
      if (special(c.value)) s += '\\';
      s += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return s;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./=:,+@%#").find(c) != std::string_view::npos;
}

}  // namespace

std::string escape_controls(std::string_view text) {
  return escape(text, [](uint32_t) { return false; });
}

std::string escape_xml(std::string_view text) {
  std::string s;
  for (const char c : escape_controls(text)) {
    switch (c) {
      case '&': s += "&amp;"; break;
      case '<': s += "&lt;"; break;
      case '>': s += "&gt;"; break;
      case '"': s += "&quot;"; break;
      case '\'': s += "&#39;"; break;
      default: s += c;
    }
  }
  return s;
}

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::string shell_word(std::string_view text) {
  if (!text.empty() && text[0] != '#' && std::all_of(text.begin(), text.end(), is_plain)) {
    return std::string(text);
  }
  if (escape_controls(text) != text) {
    // A hex digit after \xNN is not swallowed: bash reads at most two.
    return "$'" + escape(text, [](uint32_t c) { return c == '\'' || c == '\\'; }) + '\'';
  }
  std::string s = "'";
  for (char c : text) s += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return s + '\'';
}

}  // namespace shadowgraph
