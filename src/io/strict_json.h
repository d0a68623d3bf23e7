// JSON from strangers: one object, no duplicate keys at any level, bounded depth, keys and values.
// The values are our own: those of nlohmann-json allocate when destroyed, which out of memory ends
// the program. Tested by tests/io/safetensors_test.cc and allocation_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/laws.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

inline constexpr size_t kMaxJsonDepth = 4;       // unless a caller says otherwise
inline constexpr size_t kMaxJsonKeys = 100'000;  // of one object
inline constexpr size_t kMaxJsonKeyLength = 1024;
inline constexpr size_t kMaxJsonValues = 2'000'000;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue, std::less<>>;

  // Integers: uint64_t without a sign, int64_t with one; past 64 bits they are double.
  std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string, Array, Object> value;

  /// The alternative, or null.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  /// The member, or null.
  const JsonValue* find(std::string_view key) const;
  /// Whatever number it is; of one past 2^53 the nearest double.
  std::optional<double> number() const;
  /// For messages: a number or a string as it is, of a container only its size.
  std::string describe() const;
};

struct JsonDocument {
  JsonValue root;                                          // an object
  std::map<std::string, size_t, std::less<>> key_offsets;  // root's keys: byte offset of their end
};

/// text must be one object, from its first byte on. Syntax, depth and size break `syntax`; keys
/// break io.key. name is the file's, base the offset of text in it. On failure *out is untouched.
Status parse_strict_json(std::string_view text, LawId syntax, const std::string& name, size_t base,
                         JsonDocument* out, size_t max_depth = kMaxJsonDepth);

/// text between quotes, escaped.
std::string json_quoted(std::string_view text);

}  // namespace shadowgraph
